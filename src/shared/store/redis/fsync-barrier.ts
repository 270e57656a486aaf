/**
 * Waits until acknowledged writes are on Redis' disk (`WAITAOF`). One round at a time serves all callers. It has its own connection,
 * because the command blocks a connection.
 */
import { partitionFor } from '../../calls/call-id.ts';
import { PawlError } from '../../errors/failure.ts';
import { getOrInsert } from '../../util/get-or-insert.ts';
import { SharedRuns } from '../../util/shared-runs.ts';
import { backendError } from './backend-error.ts';
import { closeConnection, isClustered, openConnection, type Redis } from './connection.ts';
import { FleetKeys, PartitionKeys } from './keys.ts';

/** With `appendfsync everysec` the disk is reached within two seconds. */
const WAIT_MS = 5_000;
const KEY_TTL_MS = 60_000;

export class DiskBarrier {
  readonly #client: Redis;
  readonly #prefix: string;
  /** Those of each server. */
  readonly #rounds = new Map<string, SharedRuns>();

  private constructor(client: Redis, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
  }

  static open(
    options: { readonly url: string; readonly prefix: string },
    onError: (error: Error) => void,
  ): DiskBarrier {
    const { url, prefix } = options;
    return new DiskBarrier(openConnection({ url, name: `${prefix}:disk`, mode: 'fail-fast' }, onError), prefix);
  }

  /**
   * Resolves when all writes that were acknowledged before, in the call's partition, are on disk. Throws `BACKEND_UNAVAILABLE` when Redis
   * cannot confirm that.
   */
  wait(callId: string): Promise<void> {
    // In a cluster, the key must be on the server of the call.
    const key = isClustered(this.#client)
      ? `${new PartitionKeys(this.#prefix, partitionFor(callId)).base}:disk`
      : new FleetKeys(this.#prefix).disk;
    return getOrInsert(this.#rounds, key, () => new SharedRuns()).run(() => this.#runRound(key));
  }

  async #runRound(key: string): Promise<void> {
    // WAITAOF waits for the writes of its own connection, so it needs one, which comes after all acknowledged writes. A pipeline that loses
    // its connection half way is not sent again: on a new connection, without a write, WAITAOF would not wait.
    const answers = await this.#client.pipeline().set(key, '1', 'PX', KEY_TTL_MS).call('WAITAOF', 1, 0, WAIT_MS).exec();
    for (const [error] of answers ?? []) if (error !== null) throw backendError(error);
    const [onDisk = 0] = (answers?.[1]?.[1] ?? []) as number[];
    if (onDisk < 1)
      throw new PawlError('BACKEND_UNAVAILABLE', `Redis could not bring its writes to disk within ${WAIT_MS} ms.`);
  }

  close(): void {
    closeConnection(this.#client);
  }
}
