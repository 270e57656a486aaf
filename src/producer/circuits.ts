/**
 * A producer's copy of the fleet's circuits, pushed by whoever changes one: an open circuit refuses a call without asking Redis.
 */
import type { Circuit, CircuitState } from '../shared/breaker.ts';
import type { CircuitNews } from '../shared/store/breakers.ts';
import type { Place } from '../shared/store/keys.ts';
import type { Clock } from '../shared/time.ts';

interface Held {
  readonly circuit: Circuit;
  /** On this process's own clock: until then the circuit refuses. */
  readonly untilMonotonicMs: number;
}

export class CircuitView {
  readonly #clock: Clock;
  readonly #held = new Map<string, Held>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  learn(news: Pick<CircuitNews, 'place' | 'key' | 'circuit' | 'retryAfterMs'>): void {
    const name = nameOf(news.place, news.key);
    const known = this.#held.get(name);
    // News and readings may overtake each other, also when the circuit has closed since: the higher epoch is the later one.
    if (known !== undefined && known.circuit.epoch > news.circuit.epoch) return;
    this.#held.set(name, { circuit: news.circuit, untilMonotonicMs: this.#clock.monotonic() + news.retryAfterMs });
  }

  /** Forgets what may have changed while nobody listened. */
  clear(): void {
    this.#held.clear();
  }

  /** Why a call must not start now; undefined lets it through, also when it may become the probe. */
  refusal(place: Place, key: string): { readonly state: CircuitState; readonly retryAfterMs: number } | undefined {
    const held = this.#held.get(nameOf(place, key));
    if (held === undefined) return undefined;
    const { state } = held.circuit;
    if (state === 'FORCED_OPEN') return { state, retryAfterMs: 1_000 };
    const remainingMs = held.untilMonotonicMs - this.#clock.monotonic();
    return state === 'OPEN' && remainingMs > 0 ? { state, retryAfterMs: Math.ceil(remainingMs) } : undefined;
  }
}

function nameOf(place: Place, key: string): string {
  return `${place.tier}.${place.shard} ${key}`;
}
