/**
 * A producer's copy of the fleet's circuits, pushed by whoever changes one: an open circuit refuses a call without asking Redis.
 */
import { type Circuit, FORCED_OPEN_RETRY_MS } from '../../shared/circuits/circuit-breaker.ts';
import { isOfTarget } from '../../shared/circuits/circuit-key.ts';
import type { CircuitBroadcast } from '../../shared/store/redis/circuit-messages.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Clock } from '../../shared/util/time.ts';

/** Circuits of targets are kept up to this many: nobody knows how many there will be. */
const MAX_HELD = 2_000;

interface Held {
  readonly partition: Partition;
  readonly circuit: Circuit;
  /** On this process's own clock: until then the circuit refuses. */
  readonly untilMonotonicMs: number;
}

/** Why a call is refused; `reason` is the word of whoever forced the circuit open. */
export type Refusal =
  | { readonly state: 'OPEN'; readonly retryAfterMs: number }
  | { readonly state: 'FORCED_OPEN'; readonly reason: string; readonly retryAfterMs: number };

export class CircuitView {
  readonly #clock: Clock;
  /** By key: hardly one is held at more than one place. */
  readonly #held = new Map<string, Held[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  learn(broadcast: Pick<CircuitBroadcast, 'partition' | 'key' | 'circuit' | 'retryAfterMs'>): void {
    const { partition, key, circuit, retryAfterMs } = broadcast;
    const known = this.#at(partition, key);
    // News and readings may overtake each other, also when the circuit has closed since: the higher epoch is the later one.
    if (known !== undefined && known.circuit.epoch > circuit.epoch) return;
    const others = this.#held.get(key)?.filter((held) => held !== known) ?? [];
    this.#held.set(key, [...others, { partition, circuit, untilMonotonicMs: this.#clock.monotonic() + retryAfterMs }]);
    // What is forgotten is asked of Redis.
    const oldest = this.#held.size > MAX_HELD ? [...this.#held.keys()].find(isOfTarget) : undefined;
    if (oldest !== undefined) this.#held.delete(oldest);
  }

  /** Forgets what may have changed while nobody listened. */
  clear(): void {
    this.#held.clear();
  }

  /**
   * Why a call must not start now; undefined lets it through, also when it may become the probe. `own`: its tool's own circuit, which
   * holds for all calls of the tool when somebody has forced it open.
   */
  refusal(partition: Partition, key: string, own = key): Refusal | undefined {
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
