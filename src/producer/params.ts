/**
 * Parameters as a producer takes them: what JSON can say, and what the tool's schema lets through.
 */
import { contractInvalid, type ToolCallEnvelope } from '../shared/envelope.ts';
import { PawlError } from '../shared/failure.ts';
import { redact, secretsIn } from '../shared/redaction.ts';
import type { Offer } from './offers.ts';

const MAX_PARAMS_BYTES = 4 * 1_024 * 1_024;

/** Parameters as they will look to the worker; throws `CONTRACT_INVALID` when JSON cannot say them or they are too large. */
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
        message: `must be an object; got ${text === undefined ? typeof params : text.slice(0, 40)}`,
      },
    ]);
  if (text.length > MAX_PARAMS_BYTES)
    throw contractInvalid([
      { path: 'payload.params', message: `is ${text.length} characters long; at most ${MAX_PARAMS_BYTES} are allowed` },
    ]);
  return params as Record<string, unknown>;
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
