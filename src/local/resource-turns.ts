/** Resource locks within one process, as `store/limits/resource-locks.ts` keeps them for a fleet, but without leases. */

import type { ResourceLock } from '../shared/limits/resource-lock.ts';
import type { ResourceLockResult } from '../shared/store/limits/resource-locks.ts';
import type { ResourceLockRecords } from '../shared/store/ports.ts';

interface Partition {
  readonly turn: ResourceLock;
  readonly granted: PromiseWithResolvers<void>;
  isGranted: boolean;
}

export class LocalResourceLocks implements ResourceLockRecords {
  readonly #partitions = new Map<string, Partition>();
  /** The holders and waiters of each resource, in the order in which they asked. */
  readonly #queues = new Map<string, Set<Partition>>();

  async take(
    { callId }: { readonly callId: string },
    _fence: number,
    turn: ResourceLock,
    any: boolean,
  ): Promise<ResourceLockResult> {
    const before = this.#partitions.get(callId);
    const same = before?.turn.resource === turn.resource && before.turn.mode === turn.mode;
    if (before !== undefined && !same && !(any && before.isGranted)) await this.leave({ callId });
    const { isGranted } = this.#partitions.get(callId) ?? this.#ask(callId, turn);
    return isGranted ? { kind: 'granted' } : { kind: 'waiting', withinMs: Number.POSITIVE_INFINITY };
  }

  async renew(): Promise<boolean> {
    return true;
  }

  async leave({ callId }: { readonly callId: string }): Promise<void> {
    const partition = this.#partitions.get(callId);
    if (partition === undefined) return;
    const { resource } = partition.turn;
    const queue = this.#queues.get(resource);
    this.#partitions.delete(callId);
    queue?.delete(partition);
    partition.granted.resolve();
    if (queue?.size === 0) this.#queues.delete(resource);
    else this.#grant(resource);
  }

  /** Resolves when a waiting call's turn has come. */
  async granted(callId: string): Promise<void> {
    await this.#partitions.get(callId)?.granted.promise;
  }

  #ask(callId: string, turn: ResourceLock): Partition {
    const partition: Partition = { turn, granted: Promise.withResolvers(), isGranted: false };
    this.#partitions.set(callId, partition);
    this.#queues.set(turn.resource, (this.#queues.get(turn.resource) ?? new Set()).add(partition));
    this.#grant(turn.resource);
    return partition;
  }

  #grant(resource: string): void {
    let holding = 0;
    for (const partition of this.#queues.get(resource) ?? []) {
      const exclusive = partition.turn.mode === 'exclusive';
      if (exclusive && holding > 0) return;
      partition.isGranted = true;
      partition.granted.resolve();
      holding += 1;
      if (exclusive) return;
    }
  }
}
