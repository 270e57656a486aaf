/** Resource locks within one process: like those of a fleet (`store/limits/resource-locks.ts`), but without leases. */
import type { ResourceLock } from '../shared/limits/resource-lock.ts';
import type { ResourceLockResult } from '../shared/store/limits/resource-locks.ts';
import type { ResourceLockRecords } from '../shared/store/ports.ts';

interface LockRequest {
  readonly lock: ResourceLock;
  readonly granted: PromiseWithResolvers<void>;
  isGranted: boolean;
}

export class LocalResourceLocks implements ResourceLockRecords {
  readonly #requests = new Map<string, LockRequest>();
  /** The holders and waiters of each resource, in the order of their requests. */
  readonly #queues = new Map<string, Set<LockRequest>>();

  async acquire(
    { callId }: { readonly callId: string },
    _fence: number,
    lock: ResourceLock,
    anyResource: boolean,
  ): Promise<ResourceLockResult> {
    const previous = this.#requests.get(callId);
    const same = previous?.lock.resource === lock.resource && previous.lock.mode === lock.mode;
    if (previous !== undefined && !same && !(anyResource && previous.isGranted)) await this.release({ callId });
    const { isGranted } = this.#requests.get(callId) ?? this.#request(callId, lock);
    return isGranted ? { kind: 'granted' } : { kind: 'waiting', withinMs: Number.POSITIVE_INFINITY };
  }

  async renew(): Promise<boolean> {
    return true;
  }

  async release({ callId }: { readonly callId: string }): Promise<void> {
    const request = this.#requests.get(callId);
    if (request === undefined) return;
    const { resource } = request.lock;
    const queue = this.#queues.get(resource);
    this.#requests.delete(callId);
    queue?.delete(request);
    request.granted.resolve();
    if (queue?.size === 0) this.#queues.delete(resource);
    else this.#grant(resource);
  }

  /** Resolves when a waiting call gets its lock. */
  async granted(callId: string): Promise<void> {
    await this.#requests.get(callId)?.granted.promise;
  }

  #request(callId: string, lock: ResourceLock): LockRequest {
    const request: LockRequest = { lock, granted: Promise.withResolvers(), isGranted: false };
    this.#requests.set(callId, request);
    this.#queues.set(lock.resource, (this.#queues.get(lock.resource) ?? new Set()).add(request));
    this.#grant(lock.resource);
    return request;
  }

  #grant(resource: string): void {
    let holders = 0;
    for (const request of this.#queues.get(resource) ?? []) {
      const exclusive = request.lock.mode === 'exclusive';
      if (exclusive && holders > 0) return;
      request.isGranted = true;
      request.granted.resolve();
      holders += 1;
      if (exclusive) return;
    }
  }
}
