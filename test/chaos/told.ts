/** What a result's envelope says about the effect: Pawl's own words, nothing that only the test knows. */
import type { ToolResultEnvelope } from '../../src/index.ts';
import type { Told } from './protocol.ts';

/** Ends that say themselves that the effect may have happened. A cancelled attempt may have been in the middle of it. */
const IN_DOUBT: readonly string[] = ['OUTCOME_UNKNOWN', 'TIMEOUT', 'POISONED', 'RESULT_TOO_LARGE', 'CANCELLED'];
/** What an earlier attempt died of, when the last one failed: it may have had its effect. */
const LEFT_OPEN: readonly string[] = ['TIMEOUT', 'LEASE_LOST'];

export function toldOf({ status, output, error, attempts, retriedBy, callId }: ToolResultEnvelope): Told {
  if (status === 'success') return { kind: 'ok', output: output.content };
  const { code, message } = error;
  // A result that nobody of the fleet wrote is no word about the call.
  const forged = code === 'SIGNATURE_INVALID' && message.startsWith('The stored result');
  if (callId === undefined || code === 'IDEMPOTENCY_CONFLICT' || forged) return { kind: 'refused', code, message };
  const reached = code === 'DEADLINE_EXCEEDED' && attempts > 0;
  const before = retriedBy?.some(({ reasonCode }) => LEFT_OPEN.includes(reasonCode)) ?? false;
  return { kind: reached || before || IN_DOUBT.includes(code) ? 'doubt' : 'fail', code, message };
}
