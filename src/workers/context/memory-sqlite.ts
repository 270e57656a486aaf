/**
 * Long-term memory in SQLite: one file per tenant in the data folder, with full-text search. The worker processes of one machine share
 * the files. Vector search compares all vectors; LanceDB is faster for large numbers of them.
 */
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import type { Settings } from '../../shared/config/config.ts';
import type {
  CapabilityOwner,
  Memory,
  MemoryHit,
  MemoryRecord,
  MemorySearchOptions,
  MemoryStore,
  MemoryStoreOptions,
} from '../../shared/tools/capabilities.ts';
import { yieldToEventLoop } from '../../shared/util/time.ts';
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

/** How long a write waits for a lock of another process. */
const LOCK_TIMEOUT_MS = 10_000;
/** The most words of one query. */
const MAX_WORDS = 64;
/** The number of vectors that are compared before a yield to the event loop. */
const VECTOR_BATCH = 500;
/** Words that are in most texts, and would match all of them. */
const STOP_WORDS = new Set(
  `a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to
  was will with`.split(/\s+/),
);

/** A record's text is indexed under its row number. `folded` is for substring search: SQLite folds the case of ASCII only. */
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, folded TEXT NOT NULL, metadata TEXT NOT NULL,
    labels TEXT NOT NULL, provenance TEXT NOT NULL, tainted INTEGER NOT NULL, createdAtMs INTEGER NOT NULL,
    expiresAtMs INTEGER NOT NULL, vector BLOB);
  CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
    text, content = 'records', content_rowid = 'number', tokenize = 'porter unicode61');
  CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON records BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
  END;
  CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON records BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
  END;`;

interface SqliteDeps {
  readonly embed: Embedder | undefined;
  readonly now: () => number;
}

/** The condition of a search, and its values. */
interface Filter {
  readonly where: string;
  readonly values: readonly SQLInputValue[];
}

export class SqliteMemory implements MemoryStore {
  readonly #folder: string;
  readonly #settings: Settings['memory'];
  readonly #embed: Embedder | undefined;
  readonly #now: () => number;
  readonly #databases = new Map<string, DatabaseSync>();

  constructor(settings: Pick<Settings, 'dataDir' | 'memory'>, { embed, now }: SqliteDeps) {
    this.#settings = settings.memory;
    this.#folder = join(resolve(settings.dataDir), 'memory');
    this.#embed = embed;
    this.#now = now;
  }

  open(owner: CapabilityOwner): Memory {
    return {
      search: (query, options) => this.#search(owner, query, options ?? {}),
      store: (text, options) => this.#store(owner, text, options ?? {}),
      get: async (id) => this.#get(owner, id),
      forget: async (id) => this.#forget(owner, id),
    };
  }

  async close(): Promise<void> {
    for (const database of this.#databases.values()) database.close();
    this.#databases.clear();
  }

  async #search(
    owner: CapabilityOwner,
    query: string,
    { limit = DEFAULT_LIMIT, metadata = {} }: MemorySearchOptions,
  ): Promise<readonly MemoryHit[]> {
    const labels = searchLabels(metadata);
    const maxHits = Math.min(limit, MAX_LIMIT);
    const vector = await this.#embed?.(query);
    const database = this.#database(owner.tenantId);
    const filter: Filter = {
      where: ['(expiresAtMs = 0 OR expiresAtMs > ?)', ...labels.map(() => 'instr(labels, ?) > 0')].join(' AND '),
      values: [this.#now(), ...labels],
    };
    const wordHits = searchWords(database, query, filter, maxHits * 2);
    const textHits = wordHits.length > 0 ? wordHits : searchSubstrings(database, query, filter, maxHits);
    const vectorHits = vector === undefined ? [] : await searchVectors(database, vector, filter, maxHits * 2);
    return fuseRankings([textHits, vectorHits]).slice(0, maxHits);
  }

  async #store(owner: CapabilityOwner, text: string, options: MemoryStoreOptions): Promise<{ readonly id: string }> {
    const nowMs = this.#now();
    const row = memoryRow(owner, text, options, { settings: this.#settings, nowMs });
    const vector = await this.#embed?.(text);
    const database = this.#database(owner.tenantId);
    inTransaction(database, () => {
      database.prepare('DELETE FROM records WHERE id = ?').run(row.id);
      this.#freeCapacity(database, nowMs);
      const { id, metadata, labels, provenance, tainted, createdAtMs, expiresAtMs } = row;
      database
        .prepare(
          `INSERT INTO records (id, text, folded, metadata, labels, provenance, tainted, createdAtMs, expiresAtMs, vector)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        )
        .run(
          ...[id, text, text.toLowerCase(), metadata, labels, provenance, tainted ? 1 : 0, createdAtMs, expiresAtMs],
          vector === undefined ? null : new Uint8Array(Float32Array.from(vector).buffer),
        );
    });
    return { id: row.id };
  }

  /** Deletes expired records before it refuses a new one. */
  #freeCapacity(database: DatabaseSync, nowMs: number): void {
    const { maxRecords } = this.#settings;
    if (countRecords(database) < maxRecords) return;
    database.prepare('DELETE FROM records WHERE expiresAtMs > 0 AND expiresAtMs <= ?').run(nowMs);
    const records = countRecords(database);
    if (records >= maxRecords) throw memoryFullError(records, maxRecords);
  }

  #get({ tenantId }: CapabilityOwner, id: string): MemoryRecord | undefined {
    const select = 'SELECT * FROM records WHERE id = ? AND (expiresAtMs = 0 OR expiresAtMs > ?)';
    const [row] = rowsOf(this.#database(tenantId).prepare(select).all(id, this.#now()));
    return row && recordOf(row);
  }

  #forget(owner: CapabilityOwner, id: string): boolean {
    const existed = this.#get(owner, id) !== undefined;
    this.#database(owner.tenantId).prepare('DELETE FROM records WHERE id = ?').run(id);
    return existed;
  }

  /** One file per tenant keeps its records out of every other tenant's queries. */
  #database(tenantId: string | undefined): DatabaseSync {
    const name = memoryNameOf(tenantId, this.#settings);
    const cached = this.#databases.get(name);
    if (cached !== undefined) return cached;
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const { DatabaseSync: Database } = loadSqlite();
    const database = new Database(join(this.#folder, `${name}.sqlite`));
    try {
      // A write-ahead log survives a crash at any point, and does not block readers.
      const pragmas = [`busy_timeout = ${LOCK_TIMEOUT_MS}`, 'journal_mode = WAL', 'synchronous = NORMAL'];
      database.exec(pragmas.map((pragma) => `PRAGMA ${pragma};`).join(' '));
      inTransaction(database, () => database.exec(SCHEMA));
    } catch (error) {
      database.close();
      throw error;
    }
    this.#databases.set(name, database);
    return database;
  }
}

/** Loads SQLite at the first use, without Node 22's warning that it is experimental. */
function loadSqlite(): typeof import('node:sqlite') {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return process.getBuiltinModule('node:sqlite');
  } finally {
    process.emitWarning = emitWarning;
  }
}

function inTransaction(database: DatabaseSync, work: () => void): void {
  // IMMEDIATE, because a transaction that begins with a read cannot wait for another process's lock.
  database.exec('BEGIN IMMEDIATE');
  try {
    work();
    database.exec('COMMIT');
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}

function countRecords(database: DatabaseSync): number {
  return Number(database.prepare('SELECT count(*) AS records FROM records').get()?.['records']);
}

function rowsOf(rows: readonly Record<string, unknown>[]): readonly MemoryRow[] {
  return rows.map((row) => ({ ...(row as unknown as MemoryRow), tainted: row['tainted'] === 1 }));
}

/** The best full-text hits of a query; none for a query of stop words only. */
function searchWords(database: DatabaseSync, query: string, filter: Filter, limit: number): readonly MemoryRow[] {
  const words = (query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => !STOP_WORDS.has(word));
  if (words.length === 0) return [];
  const match = words.slice(0, MAX_WORDS).map((word) => `"${word}"`);
  return rowsOf(
    database
      .prepare(
        `SELECT records.* FROM words JOIN records ON records.number = words.rowid
         WHERE words MATCH ? AND ${filter.where} ORDER BY words.rank LIMIT ?`,
      )
      .all(match.join(' OR '), ...filter.values, limit),
  );
}

function searchSubstrings(database: DatabaseSync, query: string, filter: Filter, limit: number): readonly MemoryRow[] {
  const parts = substringsOf(query);
  if (parts.length === 0) return [];
  const where = [filter.where, ...parts.map(() => 'instr(folded, ?) > 0')].join(' AND ');
  return rowsOf(
    database.prepare(`SELECT * FROM records WHERE ${where} LIMIT ?`).all(...filter.values, ...parts, limit),
  );
}

/** The records whose vectors are nearest by angle. */
async function searchVectors(
  database: DatabaseSync,
  vector: readonly number[],
  filter: Filter,
  limit: number,
): Promise<readonly MemoryRow[]> {
  const page = database.prepare(
    `SELECT number, vector FROM records WHERE number > ? AND vector IS NOT NULL AND ${filter.where} ORDER BY number LIMIT ?`,
  );
  let best: { readonly number: number; readonly similarity: number }[] = [];
  for (let lastNumber = 0; ; ) {
    const rows = page.all(lastNumber, ...filter.values, VECTOR_BATCH) as { number: number; vector: Uint8Array }[];
    const candidates = rows.map((row) => ({ number: row.number, similarity: cosineSimilarity(vector, row.vector) }));
    best = [...best, ...candidates].sort((one, other) => other.similarity - one.similarity).slice(0, limit);
    if (rows.length < VECTOR_BATCH) break;
    lastNumber = rows.at(-1)?.number ?? lastNumber;
    await yieldToEventLoop();
  }
  const byNumber = database.prepare('SELECT * FROM records WHERE number = ?');
  return rowsOf(best.flatMap(({ number }) => byNumber.all(number)));
}

/** The cosine of the angle between two vectors. */
function cosineSimilarity(vector: readonly number[], bytes: Uint8Array): number {
  const other = new Float32Array(bytes.slice().buffer);
  let [product, square, otherSquare] = [0, 0, 0];
  for (const [index, value] of vector.entries()) {
    const otherValue = other[index] ?? 0;
    product += value * otherValue;
    square += value * value;
    otherSquare += otherValue * otherValue;
  }
  return product / (Math.sqrt(square * otherSquare) || 1);
}
