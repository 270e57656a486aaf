/** Cancelling a call: a call that waits ends at once; a running one is asked to stop. */
import type { RecordLifetime } from '../../calls/call-state.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { uuidv7 } from '../../util/time.ts';
import { broadcastChannel } from '../redis/broadcasts.ts';
import { Script } from '../redis/script.ts';
import type { LedgerAccess } from './ledger-context.ts';
import { END_CALL_LUA } from './settle.ts';

const cancelScript = new Script(new URL('./cancel.lua', import.meta.url), END_CALL_LUA);

/** The outcomes from which the script chooses, by what the call is doing. */
export interface CancelOutcomes extends RecordLifetime {
  readonly state: 'cancelled' | 'failed';
  readonly beforeStart: Outcome;
  readonly betweenAttempts: Outcome;
  /** Set when an attempt may have had its effect and this needs another outcome. Default: `betweenAttempts`. */
  readonly inDoubt?: { readonly outcome: Outcome; readonly ttlMs: number };
  readonly inboxId?: string;
}

/** `pending`: a deadline does not end a call that waits for an outside system. */
export interface CancelAnswer {
  readonly kind: 'cancelled' | 'requested' | 'too-late' | 'gone' | 'pending';
}

export async function writeCancellation(
  access: LedgerAccess,
  callId: string,
  cancellation: CancelOutcomes,
): Promise<CancelAnswer> {
  const keys = access.callKeys(callId);
  const { state, ttlMs, freeAfterMs } = cancellation;
  const inDoubt = cancellation.inDoubt ?? { outcome: cancellation.betweenAttempts, ttlMs };
  const [beforeStart, betweenAttempts, doubtful] = [
    cancellation.beforeStart,
    cancellation.betweenAttempts,
    inDoubt.outcome,
  ].map((outcome) => {
    const text = JSON.stringify(outcome);
    return { text, signature: access.signatures.sign('outcome', [callId, state], text) };
  }) as [SignedText, SignedText, SignedText];
  const [code] = await cancelScript.run(
    access.redis,
    [keys.base, keys.job('')],
    [
      callId,
      beforeStart.text,
      betweenAttempts.text,
      state,
      ttlMs,
      cancellation.inboxId ?? '',
      broadcastChannel(access.redis, access.fleet.prefix),
      beforeStart.signature,
      betweenAttempts.signature,
      access.retentionMs,
      uuidv7(),
      doubtful.text,
      doubtful.signature,
      inDoubt.ttlMs,
      freeAfterMs ?? '',
      (state === 'failed' ? access.deadLetterMs(callId) : undefined) ?? '',
    ],
  );
  return { kind: code as CancelAnswer['kind'] };
}

interface SignedText {
  readonly text: string;
  readonly signature: string;
}
