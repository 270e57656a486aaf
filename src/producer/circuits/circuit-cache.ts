/** A producer's copy of the fleet's circuits. Changes are broadcast, so an open circuit refuses a call without a round trip to Redis. */
import { type Circuit, FORCED_OPEN_RETRY_MS } from '../../shared/circuits/circuit-breaker.ts';
import { hasTarget } from '../../shared/circuits/circuit-key.ts';
import type { CircuitBroadcast } from '../../shared/store/redis/broadcasts.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Clock } from '../../shared/util/time.ts';

/** The most circuits in the copy: the number of targets is not bounded. */
const MAX_CIRCUITS = 2_000;

interface CachedCircuit {
  readonly partition: Partition;
  readonly circuit: Circuit;
  /** The circuit refuses calls until this time of the process's monotonic clock. */
  readonly untilMonotonicMs: number;
}

/** The refusal of a circuit. `reason` is from the operator who forced it open. */
export type CircuitRefusal =
  | { readonly state: 'OPEN'; readonly retryAfterMs: number }
  | { readonly state: 'FORCED_OPEN'; readonly reason: string; readonly retryAfterMs: number };

export class CircuitView {
  readonly #clock: Clock;
  /** Circuits by key; few keys are in more than one partition. */
  readonly #circuits = new Map<string, CachedCircuit[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  learn(broadcast: Pick<CircuitBroadcast, 'partition' | 'key' | 'circuit' | 'retryAfterMs'>): void {
    const { partition, key, circuit, retryAfterMs } = broadcast;
    const cached = this.#find(partition, key);
    // Broadcasts and reads may arrive out of order; the higher epoch is the later state, also of a closed circuit.
    if (cached !== undefined && cached.circuit.epoch > circuit.epoch) return;
    const rest = this.#circuits.get(key)?.filter((held) => held !== cached) ?? [];
    this.#circuits.set(key, [
      ...rest,
      { partition, circuit, untilMonotonicMs: this.#clock.monotonic() + retryAfterMs },
    ]);
    // A circuit that is dropped here is still checked by the worker.
    const oldest = this.#circuits.size > MAX_CIRCUITS ? [...this.#circuits.keys()].find(hasTarget) : undefined;
    if (oldest !== undefined) this.#circuits.delete(oldest);
  }

  /** Drops all circuits, because they may have changed while the connection was down. */
  clear(): void {
    this.#circuits.clear();
  }

  /**
   * Why a call must not start now; undefined lets it through, also when it may become the probe. `own` is the circuit of its tool, which
   * holds for all calls of the tool when an operator has forced it open.
   */
  refusal(partition: Partition, key: string, ownKey = key): CircuitRefusal | undefined {
    if (ownKey !== key && this.#find(partition, ownKey)?.circuit.state === 'FORCED_OPEN')
      return this.refusal(partition, ownKey);
    const cached = this.#find(partition, key);
    if (cached === undefined) return undefined;
    const { circuit } = cached;
    if (circuit.state === 'FORCED_OPEN')
      return { state: circuit.state, reason: circuit.reason, retryAfterMs: FORCED_OPEN_RETRY_MS };
    const remainingMs = cached.untilMonotonicMs - this.#clock.monotonic();
    return circuit.state === 'OPEN' && remainingMs > 0
      ? { state: circuit.state, retryAfterMs: Math.ceil(remainingMs) }
      : undefined;
  }

  #find({ tier, shard }: Partition, key: string): CachedCircuit | undefined {
    return this.#circuits.get(key)?.find(({ partition }) => partition.tier === tier && partition.shard === shard);
  }
}
