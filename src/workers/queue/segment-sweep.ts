/** Moves the records of calls that ended long ago out of Redis, where the settings ask for it, and removes segments that have ended. */
import type { Settings } from '../../shared/config/config.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import { SegmentMover } from '../../shared/store/segments/segment-mover.ts';
import type { Logger } from '../../shared/telemetry/log.ts';

export class SegmentSweep {
  readonly #backend: Pick<Backend, 'ledger'>;
  readonly #mover: SegmentMover;
  readonly #log: Logger;
  #isFailing = false;

  constructor(backend: Pick<Backend, 'redis' | 'ledger'>, { segmentsAfterMs }: Settings, log: Logger) {
    const { blobs, segments } = backend.ledger.access;
    this.#backend = backend;
    this.#mover = new SegmentMover({ redis: backend.redis, blobs, segments, afterMs: segmentsAfterMs });
    this.#log = log;
  }

  /** Throws the first error after it has looked at all partitions: a store that one of them needs may be away. */
  async run(partitions: readonly Partition[]): Promise<void> {
    const errors: unknown[] = [];
    for (const partition of partitions)
      await this.#run(partition).catch((error: unknown) => {
        errors.push(error);
      });
    if (errors.length > 0) throw errors[0];
    this.#isFailing = false;
  }

  /** Logs a failure once, until a run succeeds: until then records stay in Redis, whose memory fills up. */
  warn({ message: error }: Error): void {
    if (!this.#isFailing) this.#log.warn({ event: 'calls_not_moved', error }, 'calls that ended cannot leave Redis');
    this.#isFailing = true;
  }

  async #run(partition: Partition): Promise<void> {
    const { ledger } = this.#backend;
    const keys = ledger.keys(partition);
    const { calls, written, removed } = await this.#mover.run(keys, await ledger.now());
    if (calls > 0)
      this.#log.info(
        { event: 'calls_moved', queue: keys.queue, calls, segments: written },
        'calls that ended left Redis for segments',
      );
    if (removed > 0)
      this.#log.info(
        { event: 'segments_removed', queue: keys.queue, segments: removed },
        'segments ended with their last calls',
      );
  }
}
