/**
 * Circuits of one process, with the fleet's rules (`breaker.ts` decides): an outcome counts only in the epoch in which its attempt
 * began, a change is decided on the epoch that was seen, and a new epoch starts with an empty window.
 */

import { type Circuit, CLOSED_CIRCUIT, type Sample } from '../shared/circuits/circuit-breaker.ts';
import type { CircuitAt, CountedFailure } from '../shared/store/circuits/circuits.ts';
import type { CircuitRecords } from '../shared/store/ports.ts';
import type { CircuitBroadcast } from '../shared/store/redis/circuit-messages.ts';
import type { Partition } from '../shared/store/redis/keys.ts';
import type { Clock } from '../shared/util/time.ts';

interface Held {
  readonly key: string;
  readonly partition: Partition;
  circuit: Circuit;
  /** The newest first. */
  window: readonly Sample[];
}

export class LocalCircuits implements CircuitRecords {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #onBroadcast: (broadcast: CircuitBroadcast) => void;
  readonly #held = new Map<string, Held>();

  constructor(clock: Pick<Clock, 'now'>, onBroadcast: (broadcast: CircuitBroadcast) => void) {
    this.#clock = clock;
    this.#onBroadcast = onBroadcast;
  }

  now(partition: Partition, key: string): Circuit {
    return this.#held.get(nameOf(partition, key))?.circuit ?? CLOSED_CIRCUIT;
  }

  async read(partition: Partition, key: string): Promise<Circuit> {
    return this.now(partition, key);
  }

  async list(partition: Partition): Promise<ReadonlyMap<string, Circuit>> {
    const here = [...this.#held.values()].filter(
      (held) =>
        held.partition.tier === partition.tier &&
        held.partition.shard === partition.shard &&
        held.circuit !== CLOSED_CIRCUIT,
    );
    return new Map(here.map(({ key, circuit }) => [key, circuit]));
  }

  async window(partition: Partition, key: string): Promise<readonly Sample[]> {
    return this.#held.get(nameOf(partition, key))?.window ?? [];
  }

  async addFailure(at: CircuitAt, { successesBefore = 0, ...counted }: Omit<CountedFailure, 'windowMs'>) {
    const { circuit, window } = this.#add(
      at,
      { ok: false, ...(successesBefore > 0 ? { successesBefore } : {}) },
      counted,
    );
    return { nowMs: this.#clock.now(), circuit, window };
  }

  addSuccess(partition: Partition, key: string, epoch: number, size: number): void {
    this.#add({ partition, key }, { ok: true }, { epoch, size });
  }

  #add(
    { partition, key }: CircuitAt,
    sample: Omit<Sample, 'atMs'>,
    { epoch, size }: Pick<CountedFailure, 'epoch' | 'size'>,
  ): Held {
    const held = this.#hold(partition, key);
    if (held.circuit.state === 'CLOSED' && held.circuit.epoch === epoch)
      held.window = [{ atMs: this.#clock.now(), ...sample }, ...held.window].slice(0, size);
    return held;
  }

  async change({ partition, key }: CircuitAt, from: Circuit, next: Circuit, retryAfterMs: number) {
    const held = this.#hold(partition, key);
    if (held.circuit.epoch !== from.epoch) return { changed: false, circuit: held.circuit };
    held.circuit = next;
    held.window = [];
    this.#onBroadcast({ type: 'circuit', partition, key, circuit: next, retryAfterMs });
    return { changed: true, circuit: next };
  }

  #hold(partition: Partition, key: string): Held {
    const name = nameOf(partition, key);
    const held = this.#held.get(name) ?? { key, partition, circuit: CLOSED_CIRCUIT, window: [] };
    this.#held.set(name, held);
    return held;
  }
}

function nameOf(partition: Partition, key: string): string {
  return `${partition.tier}.${partition.shard} ${key}`;
}
