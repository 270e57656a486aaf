/** Cancels a call in any state, and waits for its settlement. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { isHarmless, type Settlement, unstartedLifetime } from '../../shared/calls/call-state.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { envelopeOf, markInDoubt, type Outcome, resultError } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { Effects } from '../../shared/retries/effects.ts';
import type { CallLedger, CallView } from '../../shared/store/ports.ts';
import { backgroundSchedule, type Schedule } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { ResultWaiters } from './result-waiters.ts';

export interface Cancellation {
  readonly settlement: Settlement;
  readonly result?: ToolResultEnvelope;
}

/** How long a cancellation waits for the worker's answer. */
const CANCEL_ANSWER_MS = 10_000;

interface CancelDeps {
  readonly ledger: CallLedger;
  readonly results: ResultWaiters;
  readonly inboxId: string;
  readonly settings: Pick<Settings, 'ttl' | 'tools'>;
  readonly schedule?: Schedule;
  /** Called when a call without a running attempt has ended. */
  onCancelled?(callId: string): Promise<void>;
}

/** Throws `UNKNOWN_CALL`. */
export async function cancelCall(deps: CancelDeps, callId: string): Promise<Cancellation> {
  const { ledger, results, schedule = backgroundSchedule } = deps;
  const waiting = results.wait(callId);
  try {
    const record = await ledger.read(callId);
    if (record === undefined) throw unknownCall(callId);
    const { requestId, toolName } = record.request.envelope;
    const ids = { requestId, toolName, callId: record.callId };
    const answer = await requestCancellation(deps, record);
    if (answer.kind === 'gone') throw new PawlError('UNKNOWN_CALL');
    if (answer.kind === 'too-late') {
      const finalOutcome = (await ledger.read(record.callId))?.outcome;
      return {
        settlement: 'too-late',
        ...(finalOutcome !== undefined && { result: envelopeOf(finalOutcome, ids) }),
      };
    }
    if (answer.kind === 'cancelled') await deps.onCancelled?.(record.callId);
    const outcome = await withinMs(waiting.outcome, CANCEL_ANSWER_MS, schedule);
    if (outcome === undefined) return { settlement: 'unsettled' };
    return { settlement: outcome.settlement ?? 'too-late', result: envelopeOf(outcome, ids) };
  } finally {
    waiting.stop();
  }
}

/** Ends a waiting call, or notifies the worker of a running one. */
export function requestCancellation(
  { ledger, inboxId, settings }: Pick<CancelDeps, 'ledger' | 'settings'> & { readonly inboxId?: string },
  record: CallView,
): ReturnType<CallLedger['cancel']> {
  const { toolNamespace, toolName, control = {} } = record.request.envelope;
  const ttls = ttlsOf(settings, { namespace: toolNamespace, name: toolName });
  return ledger.cancel(record.callId, {
    state: 'cancelled',
    beforeStart: cancelledOutcome(record, 'cancelled-before-start'),
    betweenAttempts: cancelledOutcome(record, 'cancelled'),
    ...unstartedLifetime(ttls, compensatedCallId({ control }) !== undefined),
    // A lost attempt may have had its effect, unless its tool has none.
    ...(partitionFor(record.callId).tier === 'read-only' || effectsOf(record) === 'none'
      ? {}
      : {
          inDoubt: { outcome: cancelledOutcome(record, 'unsettled'), ttlMs: Math.max(ttls.cancelledMs, ttls.doneMs) },
        }),
    ...(inboxId !== undefined && { inboxId }),
  });
}

function effectsOf({ request }: CallView): Effects | undefined {
  return request.tool?.effects;
}

/** The outcome of a call that was cancelled while no attempt ran. */
function cancelledOutcome(record: CallView, settlement: Settlement): Outcome {
  const error = resultError(failureOf('CANCELLED'), 'error');
  return {
    status: 'error',
    toolName: record.request.envelope.toolName,
    durationMs: record.readAtMs - record.createdAtMs,
    attempts: record.attempts.length,
    error: settlement === 'unsettled' && !isHarmless(effectsOf(record)) ? markInDoubt(error) : error,
    settlement,
  };
}

export function unknownCall(callId: string): PawlError {
  return new PawlError('UNKNOWN_CALL', `There is no call ${callId}, or its record has expired.`);
}
