/** Checks a call's parameters: JSON-serializable, and valid by the tool's schema. */
import { contractInvalid, type ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { type Issue, PawlError } from '../../shared/errors/failure.ts';
import { redact, secretsIn } from '../../shared/errors/redaction.ts';
import { notSerializable } from '../../shared/schema/canonical-json.ts';
import { fitToSchema } from '../../shared/schema/validator.ts';
import { sizeFault } from '../../shared/schema/value-size.ts';
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
    throw notSerializable(params, error);
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
  // No schema accepts more, and copying so many members would block the event loop.
  const tooMany = sizeFault(params);
  if (tooMany !== undefined)
    throw new PawlError('INVALID_PARAMS', `The parameters are not valid: the parameters: ${tooMany}.`, {
      issues: [{ path: '', message: tooMany }],
    });
  return (isContainer(params) ? copyOf(params) : params) as Record<string, unknown>;
}

/** Copies plain objects and lists. Other values have their own `toJSON`, or are refused when the call is built. */
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
 * Validates the parameters. Models send null for optional parameters if the exported schema requires all; such nulls are removed if
 * the parameters are valid without them. Throws `INVALID_PARAMS`.
 */
export async function checkParams(envelope: ToolCallEnvelope, tool: ResolvedTool): Promise<ToolCallEnvelope> {
  const { params } = envelope.payload;
  const { value, issues: faults } = await fitToSchema(tool.inputSchema, tool.validate, params);
  if (faults.length === 0)
    return value === params
      ? envelope
      : { ...envelope, payload: { ...envelope.payload, params: value as typeof params } };
  const secrets = secretsIn(params);
  const issues = faults.map((issue) => ({ ...issue, message: redact(issue.message, secrets) }));
  const message = `The parameters of ${tool.name} are not valid: ${issuesSentence(issues)}.`;
  throw new PawlError('INVALID_PARAMS', message, { issues });
}

/** Whether parameters are valid without changes. Also false when a worker thread has to check them. */
export function areValidNow(params: unknown, tool: ResolvedTool): boolean {
  const faults = tool.validate(params);
  if (!(faults instanceof Promise)) return faults.length === 0;
  faults.catch(() => {});
  return false;
}

function issuesSentence(issues: readonly Issue[]): string {
  return issues.map(({ path, message }) => `${path === '' ? 'the parameters' : path}: ${message}`).join('; ');
}

/** A refusal for models: its issues are a list instead of part of the sentence. */
export function listIssues({
  message,
  issues = [],
}: {
  message: string;
  issues?: readonly Issue[] | undefined;
}): string {
  const sentence = issuesSentence(issues);
  const head = sentence === '' ? message : message.replace(`: ${sentence}.`, () => ':');
  const isMentioned = (text: string) => head.toLowerCase().includes(text.toLowerCase());
  const unmentioned = issues.filter((issue) => issue.path !== '' || !isMentioned(issue.message));
  const lines = unmentioned.map((issue) => `- ${issuesSentence([issue])}`);
  return [head, ...lines].join('\n');
}
