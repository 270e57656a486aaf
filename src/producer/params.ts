/**
 * Parameters as a producer takes them: what JSON can say, and what the tool's schema lets through.
 */
import { contractInvalid, type ToolCallEnvelope } from '../shared/envelope.ts';
import { PawlError } from '../shared/failure.ts';
import { redact, secretsIn } from '../shared/redaction.ts';
import type { Offer } from './offers.ts';

const MAX_PARAMS_BYTES = 4 * 1_024 * 1_024;

/**
 * The parameters as they are now: whoever calls may change them while the call is handed in, such as for the next one. Throws
 * `CONTRACT_INVALID` when JSON cannot say them or they are too large.
 */
export function jsonParams(params: unknown): Record<string, unknown> {
  let text: string | undefined;
  let copy: unknown;
  try {
    text = JSON.stringify(params);
    copy = isContainer(params) ? copyOf(params) : params;
  } catch (error) {
    throw contractInvalid([
      { path: 'payload.params', message: error instanceof Error ? error.message : String(error) },
    ]);
  }
  if (text === undefined || !text.startsWith('{'))
    throw contractInvalid([
      {
        path: 'payload.params',
        message: `must be an object; got ${text === undefined ? typeof params : text.slice(0, 40)}`,
      },
    ]);
  if (text.length > MAX_PARAMS_BYTES)
    throw contractInvalid([
      { path: 'payload.params', message: `is ${text.length} characters long; at most ${MAX_PARAMS_BYTES} are allowed` },
    ]);
  return copy as Record<string, unknown>;
}

/** Of plain objects and lists. All else says by itself what its JSON is, or is refused where the call is named. */
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

export function checkParams(envelope: ToolCallEnvelope, offer: Offer): void {
  const { params } = envelope.payload;
  const faults = offer.validate(params);
  if (faults.length > 0) {
    const known = secretsIn(params);
    const issues = faults.map((issue) => ({ ...issue, message: redact(issue.message, known) }));
    const listed = issues
      .map((issue) => `${issue.path === '' ? 'the parameters' : issue.path}: ${issue.message}`)
      .join('; ');
    throw new PawlError('INVALID_PARAMS', `The parameters of ${offer.name} are not valid: ${listed}.`, { issues });
  }
}
