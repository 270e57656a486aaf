/**
 * A producer's copy of the fleet's circuits. The process that changes a circuit broadcasts it, so an open circuit refuses a call without
 * a question to Redis.
 */
import { type Circuit, FORCED_OPEN_RETRY_MS } from '../../shared/circuits/circuit-breaker.ts';
import { isOfTarget } from '../../shared/circuits/circuit-key.ts';
import type { CircuitBroadcast } from '../../shared/store/redis/circuit-messages.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Clock } from '../../shared/util/time.ts';

/** The copy holds at most this many circuits: the number of targets has no bound of its own. */
const MAX_HELD = 2_000;

interface Held {
  readonly partition: Partition;
  readonly circuit: Circuit;
  /** The circuit refuses calls until this moment of the process's own clock. */
  readonly untilMonotonicMs: number;
}

/** Why a circuit refuses a call. The operator who forced it open gave the `reason`. */
export type CircuitRefusal =
  | { readonly state: 'OPEN'; readonly retryAfterMs: number }
  | { readonly state: 'FORCED_OPEN'; readonly reason: string; readonly retryAfterMs: number };

export class CircuitView {
  readonly #clock: Clock;
  /** Circuits by key; hardly a key is held in more than one partition. */
  readonly #held = new Map<string, Held[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  learn(broadcast: Pick<CircuitBroadcast, 'partition' | 'key' | 'circuit' | 'retryAfterMs'>): void {
    const { partition, key, circuit, retryAfterMs } = broadcast;
    const known = this.#at(partition, key);
    // Broadcasts and readings may overtake each other; the higher epoch is the later state, also of a closed circuit.
    if (known !== undefined && known.circuit.epoch > circuit.epoch) return;
    const others = this.#held.get(key)?.filter((held) => held !== known) ?? [];
    this.#held.set(key, [...others, { partition, circuit, untilMonotonicMs: this.#clock.monotonic() + retryAfterMs }]);
    // The worker asks Redis about a circuit that is not held here.
    const oldest = this.#held.size > MAX_HELD ? [...this.#held.keys()].find(isOfTarget) : undefined;
    if (oldest !== undefined) this.#held.delete(oldest);
  }

  /** Forgets all circuits: they may have changed while the connection was down. */
  clear(): void {
    this.#held.clear();
  }

  /**
   * Why a call must not start now; undefined lets it through, also when it may become the probe. `own` is the circuit of its tool, which
   * holds for all calls of the tool when an operator has forced it open.
   */
  refusal(partition: Partition, key: string, own = key): CircuitRefusal | undefined {
    if (own !== key && this.#at(partition, own)?.circuit.state === 'FORCED_OPEN') return this.refusal(partition, own);
    const held = this.#at(partition, key);
    if (held === undefined) return undefined;
    const { circuit } = held;
    if (circuit.state === 'FORCED_OPEN')
      return { state: circuit.state, reason: circuit.reason, retryAfterMs: FORCED_OPEN_RETRY_MS };
    const remainingMs = held.untilMonotonicMs - this.#clock.monotonic();
    return circuit.state === 'OPEN' && remainingMs > 0
      ? { state: circuit.state, retryAfterMs: Math.ceil(remainingMs) }
      : undefined;
  }

  #at({ tier, shard }: Partition, key: string): Held | undefined {
    return this.#held.get(key)?.find(({ partition }) => partition.tier === tier && partition.shard === shard);
  }
}
