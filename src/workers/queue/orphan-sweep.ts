/** Enqueues calls in flight again that have no job: an operator removed it, or Redis lost it. */
import type { BlobSweep } from '../../shared/store/blobs/blob-sweep.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Logger } from '../../shared/telemetry/log.ts';

/** A sweep checks calls in flight that are older than this. */
const SWEEP_AFTER_MS = 60_000;
/** The most calls of a partition that one sweep checks. */
const SWEEP_BATCH = 200;
/** A sweep looks at each value of the blob store, of which there may be tens of thousands. */
const BLOBS_EVERY_MS = 600_000;

export class OrphanSweep {
  readonly #ledger: Ledger;
  readonly #log: Logger;
  readonly #batch: number;
  readonly #blobs: BlobSweep | undefined;
  /** The time of the next sweep of the blob store. */
  #blobsAtMs = 0;
  /** By queue: the number of old calls that were checked. The next sweep continues there: the oldest may wait for people for days. */
  readonly #offsets = new Map<string, number>();

  constructor(ledger: Ledger, log: Logger, batch = SWEEP_BATCH) {
    this.#ledger = ledger;
    this.#log = log;
    this.#batch = batch;
    this.#blobs = ledger.access.blobs.sweepOf(ledger.access.fleet.prefix);
  }

  /** Removes expired entries, and enqueues calls again that are in flight without a job. */
  async run(partitions: readonly Partition[]): Promise<void> {
    const nowMs = await this.#ledger.now();
    for (const partition of partitions) {
      await this.#ledger.index.prune(partition, nowMs);
      await this.#requeueOrphans(partition, nowMs);
    }
    if (this.#blobs === undefined || nowMs < this.#blobsAtMs) return;
    this.#blobsAtMs = nowMs + BLOBS_EVERY_MS;
    await this.#blobs.run(nowMs);
  }

  async #requeueOrphans(partition: Partition, nowMs: number): Promise<void> {
    const { queue } = this.#ledger.keys(partition);
    const offset = this.#offsets.get(queue) ?? 0;
    const oldest = await this.#ledger.index.inflightBefore(partition, nowMs - SWEEP_AFTER_MS, this.#batch, offset);
    this.#offsets.set(queue, oldest.length < this.#batch ? 0 : offset + oldest.length);
    // A pending call needs its job when it expires, not before.
    const overdue = await this.#ledger.index.pendingBefore(partition, nowMs - SWEEP_AFTER_MS, this.#batch);
    for (const callId of [...oldest, ...overdue]) {
      const record = await this.#ledger.read(callId);
      if (record === undefined) continue;
      // An approval is bound to the generation of its call. All other calls get the next one. It is only one higher, because a
      // generation is also the time at which its call was made.
      const generation =
        record.phase === 'awaiting-approval' ? record.generation : String(Number(record.generation) + 1);
      if ((await this.#ledger.requeue(record, { reason: 'missing', generation })) !== 'queued') continue;
      this.#log.warn({ event: 'call_requeued', callId }, 'a call in flight had no job and was queued again');
    }
  }
}
