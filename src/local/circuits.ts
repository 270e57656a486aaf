/**
 * Circuits of one process, with the fleet's rules (`breaker.ts` decides): an outcome counts only in the epoch in which its attempt
 * began, a change is decided on the epoch that was seen, and a new epoch starts with an empty window.
 */
import { type Circuit, CLOSED_CIRCUIT, type Sample } from '../shared/circuits/circuit-breaker.ts';
import type { CircuitNews } from '../shared/store/circuits/circuits.ts';
import type { CircuitRecords } from '../shared/store/ports.ts';
import type { Place } from '../shared/store/redis/keys.ts';
import type { Clock } from '../shared/util/time.ts';

interface Held {
  readonly key: string;
  readonly place: Place;
  circuit: Circuit;
  /** The newest first. */
  window: readonly Sample[];
}

export class LocalCircuits implements CircuitRecords {
  readonly #clock: Pick<Clock, 'now'>;
  readonly #onNews: (news: CircuitNews) => void;
  readonly #held = new Map<string, Held>();

  constructor(clock: Pick<Clock, 'now'>, onNews: (news: CircuitNews) => void) {
    this.#clock = clock;
    this.#onNews = onNews;
  }

  now(place: Place, key: string): Circuit {
    return this.#held.get(nameOf(place, key))?.circuit ?? CLOSED_CIRCUIT;
  }

  async read(place: Place, key: string): Promise<Circuit> {
    return this.now(place, key);
  }

  async list(place: Place): Promise<ReadonlyMap<string, Circuit>> {
    const here = [...this.#held.values()].filter(
      (held) => held.place.tier === place.tier && held.place.shard === place.shard && held.circuit !== CLOSED_CIRCUIT,
    );
    return new Map(here.map(({ key, circuit }) => [key, circuit]));
  }

  async window(place: Place, key: string): Promise<readonly Sample[]> {
    return this.#held.get(nameOf(place, key))?.window ?? [];
  }

  async addFailure(place: Place, key: string, epoch: number, size: number, _windowMs?: number, successesBefore = 0) {
    const { circuit, window } = this.#add(place, key, epoch, size, {
      ok: false,
      ...(successesBefore > 0 ? { successesBefore } : {}),
    });
    return { nowMs: this.#clock.now(), circuit, window };
  }

  addSuccess(place: Place, key: string, epoch: number, size: number): void {
    this.#add(place, key, epoch, size, { ok: true });
  }

  #add(place: Place, key: string, epoch: number, size: number, sample: Omit<Sample, 'atMs'>): Held {
    const held = this.#hold(place, key);
    if (held.circuit.state === 'CLOSED' && held.circuit.epoch === epoch)
      held.window = [{ atMs: this.#clock.now(), ...sample }, ...held.window].slice(0, size);
    return held;
  }

  async change(place: Place, key: string, from: Circuit, next: Circuit, retryAfterMs: number) {
    const held = this.#hold(place, key);
    if (held.circuit.epoch !== from.epoch) return { changed: false, circuit: held.circuit };
    held.circuit = next;
    held.window = [];
    this.#onNews({ type: 'circuit', place, key, circuit: next, retryAfterMs });
    return { changed: true, circuit: next };
  }

  #hold(place: Place, key: string): Held {
    const name = nameOf(place, key);
    const held = this.#held.get(name) ?? { key, place, circuit: CLOSED_CIRCUIT, window: [] };
    this.#held.set(name, held);
    return held;
  }
}

function nameOf(place: Place, key: string): string {
  return `${place.tier}.${place.shard} ${key}`;
}
