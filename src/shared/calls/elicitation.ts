/**
 * Asking whoever called. A tool that needs to know something more ends its call with a question, and is called again with the
 * answers: no worker waits for a person, and a restart of anything loses nothing. Front doors that can ask (MCP) do; to others the
 * question is the result.
 */
import { z } from 'zod';
import type { ToolResult } from '../tools/tool-result.ts';

/** What a client can be asked: its user, its model, its folders. */
export const ASKABLE = ['elicitation', 'sampling', 'roots'] as const;

/** One request to the client, as MCP has it: `elicitation/create`, `sampling/createMessage` or `roots/list`. */
export interface ClientRequest {
  readonly method: 'elicitation/create' | 'sampling/createMessage' | 'roots/list';
  readonly params?: Readonly<Record<string, unknown>>;
}

/** The output of a call that ended with a question. */
export interface Question {
  readonly resultType: 'input_required';
  readonly inputRequests?: Readonly<Record<string, ClientRequest>>;
  /** Comes back with the answers. It stays in the call's record: the client sees only where to find it. */
  readonly requestState?: unknown;
}

const MARK = 'x-pawl-answers';

/**
 * The parameter in which a tool gets answers: `input: z.object({ file: z.string(), answers: callerAnswers })`. Front doors fill it;
 * it is not shown to models.
 */
export const callerAnswers = z
  .object({
    /** By the names of the requests. From the client, unchecked. */
    responses: z.record(z.string(), z.unknown()),
    state: z.unknown().optional(),
    canAsk: z.array(z.enum(ASKABLE)),
  })
  .meta({ [MARK]: true })
  .optional();
export type CallerAnswers = NonNullable<z.output<typeof callerAnswers>>;

/** What a tool returns in order to ask: never the output of a call that is done. */
export function elicit(
  inputRequests: Readonly<Record<string, ClientRequest>>,
  requestState?: unknown,
): ToolResult<never> {
  const question: Question = {
    resultType: 'input_required',
    inputRequests,
    ...(requestState === undefined ? {} : { requestState }),
  };
  return { output: question as never };
}

/** What a person accepted in a form of that name; undefined when they did not. */
export function acceptedForm(
  answers: CallerAnswers | undefined,
  name: string,
): Readonly<Record<string, unknown>> | undefined {
  const response = answers?.responses[name] as { readonly action?: unknown; readonly content?: unknown } | undefined;
  return response?.action === 'accept' && typeof response.content === 'object' && response.content !== null
    ? (response.content as Record<string, unknown>)
    : undefined;
}

export function isQuestion(output: unknown): output is Question {
  return (
    typeof output === 'object' &&
    output !== null &&
    (output as { resultType?: unknown }).resultType === 'input_required'
  );
}

/** The name of the parameter that takes answers, in a tool's JSON Schema. */
export function answersParameter(inputSchema: unknown): string | undefined {
  const properties = (inputSchema as { readonly properties?: Readonly<Record<string, unknown>> }).properties ?? {};
  return Object.keys(properties).find((name) => (properties[name] as Record<string, unknown> | null)?.[MARK] === true);
}
