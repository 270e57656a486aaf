/** The base of the stores whose records the whole fleet shares: their Redis, the names of their keys, and the fleet's signatures. */
import { Signatures } from '../../signing/signatures.ts';
import type { Redis } from './connection.ts';
import { FleetKeys } from './keys.ts';

export abstract class FleetRecords {
  protected readonly redis: Redis;
  protected readonly keys: FleetKeys;
  protected readonly signatures: Signatures;

  constructor(redis: Redis, prefix: string, signatures = new Signatures()) {
    this.redis = redis;
    this.keys = new FleetKeys(prefix);
    this.signatures = signatures;
  }
}
