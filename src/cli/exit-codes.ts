/** The exit codes and their meanings. Commands, their help and their tests read this table. */
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { FAILURES, type FailureCode, type PawlError } from '../shared/errors/failure.ts';

export const EXIT_CODES = {
  success: { code: 0, meaning: 'success' },
  failed: { code: 1, meaning: 'the call ended in an error' },
  usage: { code: 2, meaning: 'wrong usage or configuration' },
  circuitOpen: { code: 3, meaning: 'circuit open' },
  timeout: { code: 4, meaning: 'timeout' },
  denied: { code: 5, meaning: 'denied' },
  outcomeUnknown: { code: 6, meaning: 'outcome unknown' },
  redisOutOfReach: { code: 7, meaning: 'Redis out of reach' },
} as const satisfies Record<string, { readonly code: number; readonly meaning: string }>;
export type ExitName = keyof typeof EXIT_CODES;

/** The exit codes of failures that mean the same for every command. */
const BY_FAILURE: Partial<Readonly<Record<FailureCode, ExitName>>> = {
  CIRCUIT_OPEN: 'circuitOpen',
  TIMEOUT: 'timeout',
  DEADLINE_EXCEEDED: 'timeout',
  PERMISSION_DENIED: 'denied',
  OUTCOME_UNKNOWN: 'outcomeUnknown',
  POISONED: 'outcomeUnknown',
  BACKEND_UNAVAILABLE: 'redisOutOfReach',
};

/** The exit code of a command that failed. Usage is the cause, unless the failure says otherwise. */
export function exitCodeOfError(error: PawlError): number {
  const name = BY_FAILURE[error.code] ?? (FAILURES[error.code].class === 'request' ? 'usage' : 'failed');
  return EXIT_CODES[name].code;
}

/** The exit code of a call that ended. */
export function exitCodeOfResult(result: ToolResultEnvelope): number {
  return EXIT_CODES[exitNameOf(result)].code;
}

function exitNameOf(result: ToolResultEnvelope): ExitName {
  if (result.status === 'success') return 'success';
  const code = Object.hasOwn(FAILURES, result.error.code) ? (result.error.code as FailureCode) : undefined;
  const byFailure = code === undefined ? undefined : BY_FAILURE[code];
  if (byFailure !== undefined && byFailure !== 'timeout') return byFailure;
  if (result.status === 'timeout') return 'timeout';
  if (result.status === 'circuit_open') return 'circuitOpen';
  // The call was refused before anything ran, because it is malformed or names something that does not exist.
  return code !== undefined && FAILURES[code].class === 'request' && result.attempts === 0 ? 'usage' : 'failed';
}

/** The table of exit codes for help texts. */
export function exitCodeLines(): string {
  return Object.values(EXIT_CODES)
    .map(({ code, meaning }) => `  ${code}  ${meaning}`)
    .join('\n');
}
