/** Parameters as a producer accepts them: JSON-serializable, and valid by the tool's schema. */
import { contractInvalid, type ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { type Issue, PawlError } from '../../shared/errors/failure.ts';
import { redact, secretsIn } from '../../shared/errors/redaction.ts';
import { fitted } from '../../shared/schema/validator.ts';
import { whyTooMany } from '../../shared/schema/value-size.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';

const MAX_PARAMS_BYTES = 4 * 1_024 * 1_024;

/**
 * A copy of the parameters: the caller may change the original while the call is being submitted. Throws `CONTRACT_INVALID` when they are
 * not JSON-serializable or too large, and `INVALID_PARAMS` when they hold too many values.
 */
export function jsonParams(params: unknown): Record<string, unknown> {
  let text: string | undefined;
  try {
    text = JSON.stringify(params);
  } catch (error) {
    throw contractInvalid([
      { path: 'payload.params', message: error instanceof Error ? error.message : String(error) },
    ]);
  }
  if (text === undefined || !text.startsWith('{'))
    throw contractInvalid([
      {
        path: 'payload.params',
        message: `must be an object; got ${text === undefined ? typeof params : startOf(text, 40)}`,
      },
    ]);
  if (text.length > MAX_PARAMS_BYTES)
    throw contractInvalid([
      { path: 'payload.params', message: `is ${text.length} characters long; at most ${MAX_PARAMS_BYTES} are allowed` },
    ]);
  // No schema accepts more, and a copy of so many members would hold the event loop.
  const tooMany = whyTooMany(params);
  if (tooMany !== undefined)
    throw new PawlError('INVALID_PARAMS', `The parameters are not valid: the parameters: ${tooMany}.`, {
      issues: [{ path: '', message: tooMany }],
    });
  return (isContainer(params) ? copyOf(params) : params) as Record<string, unknown>;
}

/** Copies plain objects and lists. Other values define their JSON themselves, or are refused where the call is built. */
function copyOf(value: object): unknown {
  if (Array.isArray(value)) return value.map((item: unknown) => (isContainer(item) ? copyOf(item) : item));
  const prototype: unknown = Object.getPrototypeOf(value);
  if ((prototype !== Object.prototype && prototype !== null) || 'toJSON' in value) return value;
  const copy: Record<string, unknown> = { ...value };
  for (const name in copy) if (isContainer(copy[name])) copy[name] = copyOf(copy[name]);
  return copy;
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/**
 * The envelope as its tool takes it. Models send null for optional parameters when they are shown all as required; such nulls are left out,
 * if the parameters are valid without them. Throws `INVALID_PARAMS`.
 */
export async function checkParams(envelope: ToolCallEnvelope, tool: ResolvedTool): Promise<ToolCallEnvelope> {
  const { params } = envelope.payload;
  const { value, issues: faults } = await fitted(tool.inputSchema, tool.validate, params);
  if (faults.length === 0)
    return value === params
      ? envelope
      : { ...envelope, payload: { ...envelope.payload, params: value as typeof params } };
  const known = secretsIn(params);
  const issues = faults.map((issue) => ({ ...issue, message: redact(issue.message, known) }));
  const message = `The parameters of ${tool.name} are not valid: ${inSentence(issues)}.`;
  throw new PawlError('INVALID_PARAMS', message, { issues });
}

/** Whether parameters are valid as they came; false as well where the check takes place in a thread. */
export function areValidNow(params: unknown, tool: ResolvedTool): boolean {
  const faults = tool.validate(params);
  if (!(faults instanceof Promise)) return faults.length === 0;
  faults.catch(() => {});
  return false;
}

function inSentence(issues: readonly Issue[]): string {
  return issues.map(({ path, message }) => `${path === '' ? 'the parameters' : path}: ${message}`).join('; ');
}

/** A refusal for models, with its issues as a list instead of within the sentence. */
export function listed({ message, issues = [] }: { message: string; issues?: readonly Issue[] | undefined }): string {
  const sentence = inSentence(issues);
  const head = sentence === '' ? message : message.replace(`: ${sentence}.`, () => ':');
  const isSaid = (said: string) => head.toLowerCase().includes(said.toLowerCase());
  const unsaid = issues.filter((issue) => issue.path !== '' || !isSaid(issue.message));
  const lines = unsaid.map((issue) => `- ${inSentence([issue])}`);
  return [head, ...lines].join('\n');
}
