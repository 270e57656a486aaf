/** The base of the stores whose records the whole fleet shares: their Redis, the names of their keys, and the fleet's signatures. */
import { Signatures } from '../../signing/signatures.ts';
import { broadcastChannel } from './broadcasts.ts';
import type { Redis } from './connection.ts';
import { FleetKeys, type Partition, PartitionKeys } from './keys.ts';

export abstract class FleetRecords {
  protected readonly redis: Redis;
  protected readonly keys: FleetKeys;
  protected readonly signatures: Signatures;

  constructor(redis: Redis, prefix: string, signatures = new Signatures()) {
    this.redis = redis;
    this.keys = new FleetKeys(prefix);
    this.signatures = signatures;
  }

  /** The channel of the fleet's broadcasts. */
  protected get channel(): string {
    return broadcastChannel(this.redis, this.keys.prefix);
  }

  protected partitionKeys(partition: Partition): PartitionKeys {
    return new PartitionKeys(this.keys.prefix, partition);
  }
}
