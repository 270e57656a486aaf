/**
 * Elicitation: a tool asks its caller for input. The tool ends its call with a request, and is called again with the answers, so that
 * no worker waits for a person and a restart loses nothing. Front doors that can ask (MCP) do; others return the request as the result.
 */
import { z } from 'zod';
import type { ToolResult } from '../tools/tool-result.ts';

/** The kinds of request that a client may support: to its user, its model, or for its folders. */
export const CLIENT_REQUEST_KINDS = ['elicitation', 'sampling', 'roots'] as const;

/** One request to the client, in MCP's form. */
export interface ClientRequest {
  readonly method: 'elicitation/create' | 'sampling/createMessage' | 'roots/list';
  readonly params?: Readonly<Record<string, unknown>>;
}

/** The output of a call that ended with a request for input. */
export interface InputRequired {
  readonly resultType: 'input_required';
  readonly inputRequests?: Readonly<Record<string, ClientRequest>>;
  /** State that returns with the answers. It stays in the call's record, and the client sees a reference to it. */
  readonly requestState?: unknown;
}

const ANSWERS_MARKER = 'x-pawl-answers';

/**
 * The parameter in which a tool receives answers: `input: z.object({ file: z.string(), answers: callerAnswers })`. Front doors fill it,
 * and models do not see it.
 */
export const callerAnswers = z
  .object({
    /** The client's answers by the names of the requests, unchecked. */
    responses: z.record(z.string(), z.unknown()),
    state: z.unknown().optional(),
    canAsk: z.array(z.enum(CLIENT_REQUEST_KINDS)),
  })
  .meta({ [ANSWERS_MARKER]: true })
  .optional();
export type CallerAnswers = NonNullable<z.output<typeof callerAnswers>>;

/** The result that a tool returns in order to ask. It is never the output of a call that is done. */
export function elicit(
  inputRequests: Readonly<Record<string, ClientRequest>>,
  requestState?: unknown,
): ToolResult<never> {
  const request: InputRequired = {
    resultType: 'input_required',
    inputRequests,
    ...(requestState !== undefined && { requestState }),
  };
  return { output: request as never };
}

/** The content of a form that a person accepted; undefined when they did not. */
export function acceptedForm(
  answers: CallerAnswers | undefined,
  name: string,
): Readonly<Record<string, unknown>> | undefined {
  const response = answers?.responses[name] as { readonly action?: unknown; readonly content?: unknown } | undefined;
  return response?.action === 'accept' && typeof response.content === 'object' && response.content !== null
    ? (response.content as Record<string, unknown>)
    : undefined;
}

export function isInputRequired(output: unknown): output is InputRequired {
  return (
    typeof output === 'object' &&
    output !== null &&
    (output as { resultType?: unknown }).resultType === 'input_required'
  );
}

/** The name of the parameter that takes answers, in a tool's JSON Schema. */
export function answersParameter(inputSchema: unknown): string | undefined {
  const properties = (inputSchema as { readonly properties?: Readonly<Record<string, unknown>> }).properties ?? {};
  return Object.keys(properties).find(
    (name) => (properties[name] as Record<string, unknown> | null)?.[ANSWERS_MARKER] === true,
  );
}
