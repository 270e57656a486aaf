/** Turns at resources within one process (C3): what `store/turns.ts` does for a fleet, without leases. */

import type { Turn } from '../shared/limits/resource-lock.ts';
import type { TurnAnswer } from '../shared/store/limits/resource-locks.ts';
import type { TurnRecords } from '../shared/store/ports.ts';

interface Place {
  readonly turn: Turn;
  readonly granted: PromiseWithResolvers<void>;
  isGranted: boolean;
}

export class LocalTurns implements TurnRecords {
  readonly #places = new Map<string, Place>();
  /** Of each resource, holders and those who wait, in the order in which they asked. */
  readonly #queues = new Map<string, Set<Place>>();

  async take({ callId }: { readonly callId: string }, _fence: number, turn: Turn, any: boolean): Promise<TurnAnswer> {
    const before = this.#places.get(callId);
    const same = before?.turn.resource === turn.resource && before.turn.mode === turn.mode;
    if (before !== undefined && !same && !(any && before.isGranted)) await this.leave({ callId });
    const { isGranted } = this.#places.get(callId) ?? this.#ask(callId, turn);
    return isGranted ? { kind: 'granted' } : { kind: 'waiting', withinMs: Number.POSITIVE_INFINITY };
  }

  async renew(): Promise<boolean> {
    return true;
  }

  async leave({ callId }: { readonly callId: string }): Promise<void> {
    const place = this.#places.get(callId);
    if (place === undefined) return;
    const { resource } = place.turn;
    const queue = this.#queues.get(resource);
    this.#places.delete(callId);
    queue?.delete(place);
    place.granted.resolve();
    if (queue?.size === 0) this.#queues.delete(resource);
    else this.#grant(resource);
  }

  /** Resolves when a waiting call's turn has come. */
  async granted(callId: string): Promise<void> {
    await this.#places.get(callId)?.granted.promise;
  }

  #ask(callId: string, turn: Turn): Place {
    const place: Place = { turn, granted: Promise.withResolvers(), isGranted: false };
    this.#places.set(callId, place);
    this.#queues.set(turn.resource, (this.#queues.get(turn.resource) ?? new Set()).add(place));
    this.#grant(turn.resource);
    return place;
  }

  #grant(resource: string): void {
    let holding = 0;
    for (const place of this.#queues.get(resource) ?? []) {
      const exclusive = place.turn.mode === 'exclusive';
      if (exclusive && holding > 0) return;
      place.isGranted = true;
      place.granted.resolve();
      holding += 1;
      if (exclusive) return;
    }
  }
}
