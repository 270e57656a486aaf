/** The context that all steps of the ledger share: the connection, the keys of every partition, signatures and the retention. */
import { partitionFor } from '../../calls/call-id.ts';
import { decodeOutcome, type Outcome } from '../../calls/outcome.ts';
import { PawlError } from '../../errors/failure.ts';
import type { Signatures } from '../../signing/signatures.ts';
import { getOrInsert } from '../../util/get-or-insert.ts';
import { type ByteRange, parseParts } from '../../util/json/large-json.ts';
import { type AuditWriter, MAX_UNSEALED } from '../audit/audit-writer.ts';
import { BlobStores } from '../blobs/blob-stores.ts';
import { isClustered, type Redis, serverTimeMs } from '../redis/connection.ts';
import { AuditKeys, FleetKeys, homePartition, PARTITION_NAMES, type Partition, PartitionKeys } from '../redis/keys.ts';
import { luaConstants, luaFunction, type Script } from '../redis/script.ts';
import { Segments } from '../segments/segments.ts';
import { type StoredRequest, withParams } from './call-record.ts';
import { LargeTexts, type TextReference } from './records/large-values.ts';
import { FORGED_OUTCOME, refuseChangedPart, verifiedOutcome } from './records/signed-records.ts';

/** Names of a partition's keys behind their base, for `Script`. */
export const PARTITION_LUA = luaConstants(PARTITION_NAMES);
/** For `Script`: `await_approval`, which needs `PARTITION_LUA`. */
export const AWAIT_APPROVAL_LUA = luaFunction(new URL('../approvals/await-approval.lua', import.meta.url));
/** Constants of `add_records`, for `Script`. */
export const ADD_RECORDS_LUA = luaConstants({ MAX_UNSEALED });

/** The location of an outcome that is stored outside its record. */
export interface StoredOutcome {
  readonly state: string;
  readonly key: string;
  /** The reference to its parts (`TextReference`, JSON). Absent for a text in one piece. */
  readonly parts: string | undefined;
  readonly signature: string;
}

export class LedgerAccess {
  readonly redis: Redis;
  readonly fleet: FleetKeys;
  readonly signatures: Signatures;
  /** The stores of large values and segments. */
  readonly blobs: BlobStores;
  readonly texts: LargeTexts;
  /** The files of records that were moved out of Redis. */
  readonly segments: Segments;
  /** How long ended calls are kept in the indices. */
  readonly retentionMs: number;
  readonly auditWriter: AuditWriter | undefined;
  /** In a cluster, each partition is on one node, so a script touches one partition. */
  readonly clustered: boolean;
  readonly #pendingRecords: string;
  readonly #prefix: string;
  readonly #keys = new Map<string, PartitionKeys>();

  constructor(redis: Redis, prefix: string, retentionMs: number, signatures: Signatures, auditWriter?: AuditWriter) {
    this.redis = redis;
    this.auditWriter = auditWriter;
    this.clustered = isClustered(redis);
    this.#pendingRecords = new AuditKeys(prefix).pending;
    this.#prefix = prefix;
    this.fleet = new FleetKeys(prefix);
    this.retentionMs = retentionMs;
    this.signatures = signatures;
    this.blobs = new BlobStores(redis);
    this.texts = new LargeTexts(this.blobs);
    this.segments = new Segments(redis, this.blobs, (callId) => this.callKeys(callId));
  }

  keys(partition: Partition): PartitionKeys {
    const name = `${partition.tier}.${partition.shard}`;
    return getOrInsert(this.#keys, name, () => new PartitionKeys(this.#prefix, partition));
  }

  /** The keys of the partition that a call ID names. Throws `UNKNOWN_CALL` for a text that is not a call ID. */
  callKeys(callId: string): PartitionKeys {
    return this.keys(partitionFor(callId));
  }

  /**
   * Runs a script that also writes waiting audit records. Its first key and first argument are for `add_records`; its last answer is 1 when
   * all records were written. In a cluster the audit trail is on another node, so the records are sent separately, before the script.
   *
   * Redis writes first to the client whose answer became pending last. With `othersFirst`, a PING before the script makes this client's
   * answer pending first, so that the clients that the script notifies are served before it. For a single call, that is worth a command.
   */
  async runWithRecords(
    script: Script,
    keys: readonly string[],
    args: readonly (string | number)[],
    othersFirst = false,
  ): Promise<{ readonly answers: unknown[]; readonly recordsWritten: boolean }> {
    if (this.clustered) this.auditWriter?.send();
    else if (othersFirst) this.redis.ping().catch(() => {});
    const batch = this.clustered ? undefined : this.auditWriter?.takeBatch();
    const pending = this.clustered ? (keys[0] as string) : this.#pendingRecords;
    let recordsWritten = false;
    try {
      const texts: (string | number)[] = [batch?.texts ?? ''];
      const answers = await script.run(this.redis, [pending, ...keys], texts.concat(args));
      recordsWritten = answers.pop() === 1 && !this.clustered;
      return { answers, recordsWritten };
    } finally {
      batch?.settled(recordsWritten);
    }
  }

  /**
   * The keys of the partition with the circuits and retry budgets of a partition's calls. In a cluster, each partition has a copy of the
   * circuits (`circuits.ts`).
   */
  homeKeys(keys: PartitionKeys): PartitionKeys {
    const { tier, shard } = keys.partition;
    return shard === 0 || this.clustered ? keys : this.keys(homePartition(tier));
  }

  /** How long a failed call stays in the index of dead letters; undefined for the read-only tier, which has none. */
  deadLetterMs(callId: string): number | undefined {
    return partitionFor(callId).tier === 'read-only' ? undefined : this.retentionMs;
  }

  /** The bases of a partition's keys and of the shared ones. They hash to the partition's slot as all its keys do. */
  bases(keys: PartitionKeys): string[] {
    return [keys.base, this.homeKeys(keys).base];
  }

  /** Reads and verifies an outcome that was too large for its record. Throws `UNKNOWN_CALL` when it has expired. */
  async largeOutcome(callId: string, stored: StoredOutcome): Promise<Outcome> {
    const { key, parts, state, signature } = stored;
    // Without parts, the outcome is one Redis string.
    if (parts === undefined) {
      const text = await this.redis.get(key);
      if (text === null) throw new PawlError('UNKNOWN_CALL', `The result of ${callId} has expired.`);
      return verifiedOutcome(this.signatures, { callId, state, text, signature });
    }
    const reference = this.verifiedReference(callId, stored);
    if (reference === undefined) return FORGED_OUTCOME;
    try {
      return decodeOutcome(await parseParts(this.outcomeParts(callId, key, reference)));
    } catch (error) {
      if (error instanceof PawlError && error.code === 'SIGNATURE_INVALID') return FORGED_OUTCOME;
      throw error;
    }
  }

  /**
   * A request with its large parameters. Throws `PARAMS_LOST` when they no longer exist, and `SIGNATURE_INVALID` when they were changed.
   */
  async requestWithParams(callId: string, request: StoredRequest): Promise<StoredRequest> {
    const { largeParams, ...rest } = request;
    if (largeParams === undefined) return request;
    const key = this.callKeys(callId).params(callId, largeParams.id);
    try {
      const params = await parseParts(this.#verifiedParts(this.texts.read(key, largeParams), callId, 'request'));
      return { ...rest, envelope: withParams(rest.envelope, params as Record<string, unknown>) };
    } catch (error) {
      throw error instanceof PawlError && error.code === 'UNKNOWN_CALL' ? new PawlError('PARAMS_LOST') : error;
    }
  }

  /** The parts of a large outcome. Throws as `LargeTexts.read` does. */
  outcomeParts(callId: string, key: string, reference: TextReference, range?: ByteRange) {
    return this.#verifiedParts(this.texts.read(key, reference, range), callId, 'outcome');
  }

  /** Yields the parts, and reports a changed one to the audit trail. */
  async *#verifiedParts(parts: AsyncIterable<Buffer>, callId: string, kind: 'outcome' | 'request') {
    try {
      yield* parts;
    } catch (error) {
      if (error instanceof PawlError && error.code === 'SIGNATURE_INVALID')
        refuseChangedPart(this.signatures, callId, kind);
      throw error;
    }
  }

  /** Undefined for a reference that no key of this fleet signed. */
  verifiedReference(callId: string, { parts = '', state, signature }: StoredOutcome): TextReference | undefined {
    if (!this.signatures.verify('outcome-parts', [callId, state], parts, signature)) return undefined;
    return JSON.parse(parts) as TextReference;
  }

  /** Redis' clock, milliseconds. */
  now(): Promise<number> {
    return serverTimeMs(this.redis);
  }
}
