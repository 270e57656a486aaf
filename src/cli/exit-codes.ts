/** The exit codes and their meanings. Commands, their help and their tests read this table. */
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import type { PawlError } from '../shared/errors/failure.ts';
import type { FailureCode } from '../shared/errors/failure-codes.ts';
import { FAILURE_RESPONSES, type FailureExit } from '../shared/errors/failure-responses.ts';

export const EXIT_CODES = {
  success: { code: 0, meaning: 'success' },
  failed: { code: 1, meaning: 'the call ended in an error' },
  usage: { code: 2, meaning: 'wrong usage or configuration' },
  circuitOpen: { code: 3, meaning: 'circuit open' },
  timeout: { code: 4, meaning: 'timeout' },
  denied: { code: 5, meaning: 'denied' },
  outcomeUnknown: { code: 6, meaning: 'outcome unknown' },
  redisOutOfReach: { code: 7, meaning: 'Redis out of reach' },
} as const satisfies Record<'success' | FailureExit, { readonly code: number; readonly meaning: string }>;
type ExitName = keyof typeof EXIT_CODES;

/** The exit code of a command that failed. */
export function exitCodeOfError(error: PawlError): number {
  return EXIT_CODES[FAILURE_RESPONSES[error.code].exit].code;
}

export function exitCodeOfResult(result: ToolResultEnvelope): number {
  return EXIT_CODES[exitNameOf(result)].code;
}

function exitNameOf(result: ToolResultEnvelope): ExitName {
  if (result.status === 'success') return 'success';
  const { code } = result.error;
  const exit = Object.hasOwn(FAILURE_RESPONSES, code) ? FAILURE_RESPONSES[code as FailureCode].exit : 'failed';
  // After a retried time-out the call failed; before any attempt, the request is malformed or its tool does not exist.
  if (exit !== 'timeout' && exit !== 'usage' && exit !== 'failed') return exit;
  if (result.status === 'timeout') return 'timeout';
  if (result.status === 'circuit_open') return 'circuitOpen';
  return exit === 'usage' && result.attempts === 0 ? 'usage' : 'failed';
}

/** The table of exit codes for help texts. */
export function exitCodeLines(): string {
  return Object.values(EXIT_CODES)
    .map(({ code, meaning }) => `  ${code}  ${meaning}`)
    .join('\n');
}
