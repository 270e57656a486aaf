/** Shared by all memory stores: rows, their checks, and the ranking of hits. */
import { createHash } from 'node:crypto';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CapabilityOwner, MemoryHit, MemoryRecord, MemoryStoreOptions } from '../../shared/tools/capabilities.ts';

export const DEFAULT_LIMIT = 10;
export const MAX_LIMIT = 100;
/** The most parts of a query that a substring search compares. */
const MAX_PARTS = 32;
/** The most labels of one search. LanceDB reads its filter recursively, and a deep filter crashes the process. */
const MAX_LABELS = 64;
/** The constant of reciprocal rank fusion. A larger one lowers the weight of the first ranks. */
const RANK_OFFSET = 60;

/** A stored record. `labels` holds the metadata for filters; an `expiresAtMs` of 0 means that it never expires. */
export interface MemoryRow {
  readonly id: string;
  readonly text: string;
  readonly metadata: string;
  readonly labels: string;
  readonly provenance: string;
  readonly tainted: boolean;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

/** The row of a new record. Throws `INVALID_PARAMS` for a text that is too long. */
export function memoryRow(
  owner: CapabilityOwner,
  text: string,
  options: MemoryStoreOptions,
  { settings, nowMs }: { readonly settings: Settings['memory']; readonly nowMs: number },
): MemoryRow {
  const { maxTextBytes } = settings;
  const bytes = Buffer.byteLength(text);
  if (bytes > maxTextBytes)
    throw new PawlError(
      'INVALID_PARAMS',
      `A memory has at most ${maxTextBytes} bytes; got ${bytes}. Store a shorter text.`,
    );
  const { metadata = {}, tainted = false, source } = options;
  const ttlMs = options.ttlMs ?? settings.ttlMs;
  const { sessionKey, actorId, agentId, callId } = owner;
  const content = JSON.stringify([callId, text]);
  return {
    id: options.id ?? createHash('sha256').update(content).digest('hex').slice(0, 32),
    text,
    metadata: JSON.stringify(metadata),
    labels: labelsOf(metadata).join(''),
    provenance: JSON.stringify({ sessionKey, actorId, agentId, callId, source }),
    tainted,
    createdAtMs: nowMs,
    expiresAtMs: ttlMs === undefined || ttlMs === Number.POSITIVE_INFINITY ? 0 : nowMs + ttlMs,
  };
}

/** A name for the records of one tenant and embedding model: vectors of two models cannot be compared. */
export function memoryNameOf(tenantId: string | undefined, { embedding }: Settings['memory']): string {
  const scope = JSON.stringify([tenantId ?? null, embedding === undefined ? 'text' : embedding.model]);
  return `memory-${createHash('sha256').update(scope).digest('hex').slice(0, 32)}`;
}

export function memoryFullError(records: number, maxRecords: number): PawlError {
  return new PawlError(
    'PRECONDITION_FAILED',
    `The memory is full: it has ${records} records, and at most ${maxRecords} are allowed (memory.maxRecords).`,
  );
}

/** The labels of a search. Throws `INVALID_PARAMS` for too many. */
export function searchLabels(metadata: Readonly<Record<string, string>>): readonly string[] {
  const labels = labelsOf(metadata);
  if (labels.length <= MAX_LABELS) return labels;
  throw new PawlError(
    'INVALID_PARAMS',
    `metadata has ${labels.length} entries; a search takes at most ${MAX_LABELS} of them.`,
  );
}

/** Encodes each pair between separators that no pair can contain. */
function labelsOf(metadata: Readonly<Record<string, string>>): string[] {
  return Object.entries(metadata).map(([key, value]) => `\u001e${JSON.stringify([key, value])}\u001e`);
}

/**
 * The substrings of a query that a text must contain. Substring search finds what a full-text index does not: scripts without spaces,
 * hashes, and stop words.
 */
export function substringsOf(query: string): readonly string[] {
  const parts = query.toLowerCase().split(/\s+/);
  return parts.filter((part) => part !== '').slice(0, MAX_PARTS);
}

/** Merges ranked lists by reciprocal rank fusion, which uses ranks only and so needs no comparable scores. */
export function fuseRankings(lists: readonly (readonly MemoryRow[])[]): readonly MemoryHit[] {
  const merged = new Map<string, { row: MemoryRow; score: number }>();
  for (const list of lists) {
    list.forEach((row, rank) => {
      const score = (merged.get(row.id)?.score ?? 0) + 1 / (RANK_OFFSET + rank);
      merged.set(row.id, { row, score });
    });
  }
  const ranked = [...merged.values()].sort((a, b) => b.score - a.score);
  return ranked.map(({ row, score }) => ({ ...recordOf(row), score }));
}

export function recordOf(row: MemoryRow): MemoryRecord {
  return {
    id: row.id,
    text: row.text,
    metadata: JSON.parse(row.metadata) as Record<string, string>,
    createdAtMs: row.createdAtMs,
    provenance: JSON.parse(row.provenance) as NonNullable<MemoryHit['provenance']>,
    tainted: row.tainted,
  };
}
