/**
 * Circuits of one process, with the fleet's rules (`circuit-breaker.ts`). An outcome counts only in the epoch in which its attempt
 * began. A change applies only to the epoch that it was decided on. A new epoch starts with an empty window.
 */
import { type Circuit, type CircuitSample, CLOSED_CIRCUIT, type Sample } from '../shared/circuits/circuit-breaker.ts';
import type { CircuitAt } from '../shared/store/circuits/circuits.ts';
import type { CircuitRecords } from '../shared/store/ports.ts';
import type { CircuitBroadcast } from '../shared/store/redis/broadcasts.ts';
import type { Partition } from '../shared/store/redis/keys.ts';
import { getOrInsert } from '../shared/util/get-or-insert.ts';
import type { Clock } from '../shared/util/time.ts';

interface LocalCircuit {
  readonly key: string;
  readonly partition: Partition;
  circuit: Circuit;
  /** Samples, the newest first. */
  window: readonly Sample[];
}

export class LocalCircuits implements CircuitRecords {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #onBroadcast: (broadcast: CircuitBroadcast) => void;
  readonly #circuits = new Map<string, LocalCircuit>();

  constructor(clock: Pick<Clock, 'now'>, onBroadcast: (broadcast: CircuitBroadcast) => void) {
    this.#clock = clock;
    this.#onBroadcast = onBroadcast;
  }

  now(partition: Partition, key: string): Circuit {
    return this.#circuits.get(nameOf(partition, key))?.circuit ?? CLOSED_CIRCUIT;
  }

  async read(partition: Partition, key: string): Promise<Circuit> {
    return this.now(partition, key);
  }

  async list(partition: Partition): Promise<ReadonlyMap<string, Circuit>> {
    const inPartition = [...this.#circuits.values()].filter(
      (held) => nameOf(held.partition, '') === nameOf(partition, ''),
    );
    const open = inPartition.filter(({ circuit }) => circuit !== CLOSED_CIRCUIT);
    return new Map(open.map(({ key, circuit }) => [key, circuit]));
  }

  async window(partition: Partition, key: string): Promise<readonly Sample[]> {
    return this.#circuits.get(nameOf(partition, key))?.window ?? [];
  }

  async addFailure(partition: Partition, sample: CircuitSample, successesBefore = 0) {
    const outcome = { ok: false, ...(successesBefore > 0 ? { successesBefore } : {}) };
    const { circuit, window } = this.#add(partition, sample, outcome);
    return { nowMs: this.#clock.now(), circuit, window };
  }

  addSuccess(partition: Partition, sample: CircuitSample): void {
    this.#add(partition, sample, { ok: true });
  }

  #add(
    partition: Partition,
    { circuit, epoch, windowSize }: CircuitSample,
    outcome: Omit<Sample, 'atMs'>,
  ): LocalCircuit {
    const local = this.#circuitFor(partition, circuit);
    if (local.circuit.state === 'CLOSED' && local.circuit.epoch === epoch)
      local.window = [{ atMs: this.#clock.now(), ...outcome }, ...local.window].slice(0, windowSize);
    return local;
  }

  async change({ partition, key }: CircuitAt, from: Circuit, next: Circuit, retryAfterMs: number) {
    const local = this.#circuitFor(partition, key);
    if (local.circuit.epoch !== from.epoch) return { changed: false, circuit: local.circuit };
    local.circuit = next;
    local.window = [];
    this.#onBroadcast({ type: 'circuit', partition, key, circuit: next, retryAfterMs });
    return { changed: true, circuit: next };
  }

  #circuitFor(partition: Partition, key: string): LocalCircuit {
    const name = nameOf(partition, key);
    return getOrInsert(this.#circuits, name, () => ({ key, partition, circuit: CLOSED_CIRCUIT, window: [] }));
  }
}

function nameOf(partition: Partition, key: string): string {
  return `${partition.tier}.${partition.shard} ${key}`;
}
