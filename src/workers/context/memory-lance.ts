/**
 * Long-term memory in LanceDB: one table per tenant, in the data folder or at `memory.uri`. Any number of worker processes may write at
 * the same time. LanceDB is loaded at the first use, because it is large and an optional dependency.
 */
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection, Table } from '@lancedb/lancedb';
import type { Settings } from '../../shared/config/config.ts';
import { missingPackages } from '../../shared/errors/optional-packages.ts';
import type {
  CapabilityOwner,
  Memory,
  MemoryHit,
  MemoryRecord,
  MemorySearchOptions,
  MemoryStore,
  MemoryStoreOptions,
} from '../../shared/tools/capabilities.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import type { Embedder } from './embedding.ts';
import {
  DEFAULT_LIMIT,
  fuseRankings,
  MAX_LIMIT,
  type MemoryRow,
  memoryFullError,
  memoryNameOf,
  memoryRow,
  recordOf,
  searchLabels,
  substringsOf,
} from './memory-records.ts';

export type Lance = typeof import('@lancedb/lancedb');

/** LanceDB asks for a retry when another process committed first. */
const MAX_TRIES = 30;
/** New records are found by a scan until `optimize` adds them to the index. */
const OPTIMIZE_EVERY = 64;
type Row = MemoryRow & { readonly vector?: readonly number[] };

interface LanceDeps {
  readonly embed: Embedder | undefined;
  readonly now: () => number;
  readonly load: () => Promise<Lance>;
}

export class LanceMemory implements MemoryStore {
  readonly #uri: string;
  readonly #settings: Settings['memory'];
  readonly #embed: Embedder | undefined;
  readonly #now: () => number;
  readonly #import: () => Promise<Lance>;
  #lance: Promise<{ lance: Lance; connection: Connection }> | undefined;
  readonly #tables = new Map<string, Promise<Table>>();
  #stored = 0;

  constructor(settings: Pick<Settings, 'dataDir' | 'memory'>, { embed, now, load }: LanceDeps) {
    this.#settings = settings.memory;
    this.#uri = settings.memory.uri ?? join(resolve(settings.dataDir), 'memory');
    this.#embed = embed;
    this.#now = now;
    this.#import = load;
  }

  open(owner: CapabilityOwner): Memory {
    return {
      search: (query, options) => this.#search(owner, query, options ?? {}),
      store: (text, options) => this.#store(owner, text, options ?? {}),
      get: (id) => this.#get(owner, id),
      forget: (id) => this.#forget(owner, id),
    };
  }

  async close(): Promise<void> {
    const opened = await this.#lance?.catch(() => undefined);
    for (const table of await Promise.allSettled(this.#tables.values()))
      if (table.status === 'fulfilled') table.value.close();
    opened?.connection.close();
  }

  async #search(
    owner: CapabilityOwner,
    query: string,
    { limit = DEFAULT_LIMIT, metadata = {} }: MemorySearchOptions,
  ): Promise<readonly MemoryHit[]> {
    const labels = searchLabels(metadata);
    const table = await this.#table(owner.tenantId);
    const { lance } = await this.#load();
    const maxHits = Math.min(limit, MAX_LIMIT);
    const filter = [this.#notExpired(), ...labels.map((label) => `strpos(labels, ${quote(label)}) > 0`)].join(' AND ');
    const wordHits = (await table
      .query()
      // A plain string in quotation marks would be a phrase query, which this index cannot answer.
      .fullTextSearch(new lance.MatchQuery(query, 'text'))
      .where(filter)
      .limit(maxHits * 2)
      .toArray()) as Row[];
    const textHits = wordHits.length > 0 ? wordHits : await this.#searchSubstrings(table, query, filter, maxHits);
    const vector = await this.#embed?.(query);
    const nearest =
      vector &&
      table
        .query()
        .nearestTo([...vector])
        .distanceType('cosine')
        .where(filter);
    const vectorHits = ((await nearest?.limit(maxHits * 2).toArray()) ?? []) as Row[];
    return fuseRankings([textHits, vectorHits]).slice(0, maxHits);
  }

  async #get({ tenantId }: CapabilityOwner, id: string): Promise<MemoryRecord | undefined> {
    const table = await this.#table(tenantId);
    const query = table.query().where(`\`id\` = ${quote(id)} AND ${this.#notExpired()}`);
    const [row] = (await query.limit(1).toArray()) as Row[];
    return row && recordOf(row);
  }

  async #forget({ tenantId }: CapabilityOwner, id: string): Promise<boolean> {
    const table = await this.#table(tenantId);
    const hasId = `\`id\` = ${quote(id)}`;
    const exists = (await table.countRows(`${hasId} AND ${this.#notExpired()}`)) > 0;
    await retryOnConflict(() => table.delete(hasId));
    return exists;
  }

  /** Filters out expired records. */
  #notExpired(): string {
    return `(\`expiresAtMs\` = 0 OR \`expiresAtMs\` > ${this.#now()})`;
  }

  async #searchSubstrings(table: Table, query: string, filter: string, limit: number): Promise<readonly Row[]> {
    const parts = substringsOf(query);
    if (parts.length === 0) return [];
    const contains = parts.map((part) => `strpos(lower(text), ${quote(part)}) > 0`);
    const matching = table.query().where([filter, ...contains].join(' AND '));
    return (await matching.limit(limit).toArray()) as Row[];
  }

  async #store(owner: CapabilityOwner, text: string, options: MemoryStoreOptions): Promise<{ readonly id: string }> {
    const nowMs = this.#now();
    const base = memoryRow(owner, text, options, { settings: this.#settings, nowMs });
    const vector = await this.#embed?.(text);
    const row: Row = { ...base, ...(vector !== undefined && { vector }) };
    const { id } = row;
    const table = await this.#table(owner.tenantId);
    await this.#freeCapacity(table, id, this.#settings.maxRecords, nowMs);
    const insert = () => table.mergeInsert('id').whenMatchedUpdateAll().whenNotMatchedInsertAll();
    await retryOnConflict(() => insert().execute([{ ...row }]));
    this.#stored += 1;
    // Another process may be optimizing already.
    if (this.#stored % OPTIMIZE_EVERY === 0) await table.optimize().catch(() => undefined);
    return { id };
  }

  /** Deletes expired records before it refuses a new one. Replacing a record needs no capacity. */
  async #freeCapacity(table: Table, id: string, maxRecords: number, nowMs: number): Promise<void> {
    if ((await table.countRows()) < maxRecords) return;
    if ((await table.countRows(`\`id\` = ${quote(id)}`)) > 0) return;
    await retryOnConflict(() => table.delete(`\`expiresAtMs\` > 0 AND \`expiresAtMs\` <= ${nowMs}`));
    const records = await table.countRows();
    if (records >= maxRecords) throw memoryFullError(records, maxRecords);
  }

  #table(tenantId: string | undefined): Promise<Table> {
    // One table per tenant keeps its records out of every other tenant's queries.
    const name = memoryNameOf(tenantId, this.#settings);
    return getOrInsert(this.#tables, name, () => {
      const opened = this.#openTable(name);
      opened.catch(() => this.#tables.delete(name));
      return opened;
    });
  }

  async #openTable(name: string): Promise<Table> {
    const { lance, connection } = await this.#load();
    const dimensions = this.#embed === undefined ? undefined : (await this.#embed('dimensions')).length;
    const schema = await schemaOf(dimensions);
    const table = await retryOnConflict(() => connection.createEmptyTable(name, schema, { existOk: true }));
    // Two processes may create table and index at once, which LanceDB calls a conflict; one index suffices.
    await retryOnConflict(async () => {
      await table.checkoutLatest();
      if ((await table.listIndices()).length > 0) return;
      const config = lance.Index.fts({ stem: true, removeStopWords: true });
      await table.createIndex('text', { config, replace: false });
    });
    return table;
  }

  #load(): Promise<{ lance: Lance; connection: Connection }> {
    this.#lance ??= (async () => {
      let lance: Lance;
      try {
        lance = await this.#import();
      } catch (error) {
        throw missingPackages('largeMemory', error);
      }
      // Other processes write too. The interval of 0 makes each query see their writes.
      return { lance, connection: await lance.connect(this.#uri, { readConsistencyInterval: 0 }) };
    })();
    this.#lance.catch(() => {
      this.#lance = undefined;
    });
    return this.#lance;
  }
}

async function schemaOf(dimensions: number | undefined) {
  const { Bool, Field, FixedSizeList, Float32, Float64, Schema, Utf8 } = await import('apache-arrow');
  const texts = ['id', 'text', 'metadata', 'labels', 'provenance'].map((name) => new Field(name, new Utf8(), false));
  const times = ['createdAtMs', 'expiresAtMs'].map((name) => new Field(name, new Float64(), false));
  const vector =
    dimensions === undefined
      ? []
      : [new Field('vector', new FixedSizeList(dimensions, new Field('item', new Float32(), true)), false)];
  return new Schema([...texts, new Field('tainted', new Bool(), false), ...times, ...vector]);
}

/** Retries a write that conflicts with another process's commit. */
async function retryOnConflict<Value>(task: () => Promise<Value>): Promise<Value> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await task();
    } catch (error) {
      const isConflict = /conflict|concurrent|retry|already exists/i.test(error instanceof Error ? error.message : '');
      if (!isConflict || tries === MAX_TRIES) throw error;
      await sleep(Math.random() * Math.min(20 * 2 ** tries, 500));
    }
  }
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
