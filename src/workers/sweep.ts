import type { Logger } from '../shared/log.ts';
import type { Place } from '../shared/store/keys.ts';
import type { Ledger } from '../shared/store/ledger.ts';

/** Calls in flight that are older than this are looked at: their job may have been lost. */
const SWEEP_AFTER_MS = 60_000;
const SWEEP_BATCH = 200;

/** Forgets what has expired, and queues again what is in flight without a job: somebody removed it, or Redis lost it. */
export async function sweep(ledger: Ledger, places: readonly Place[], log: Logger): Promise<void> {
  const nowMs = await ledger.now();
  for (const place of places) {
    await ledger.prune(place, nowMs);
    const old = await ledger.inflightBefore(place, nowMs - SWEEP_AFTER_MS, SWEEP_BATCH);
    for (const callId of old) {
      const record = await ledger.read(callId);
      if (record === undefined) continue;
      // A decision is about the generation under which its call waits.
      const generation = record.phase === 'awaiting-approval' ? record.generation : String(nowMs);
      if ((await ledger.requeue(record, 'missing', generation)) !== 'queued') continue;
      log.warn({ event: 'call_requeued', callId }, 'a call in flight had no job and was queued again');
    }
  }
}
