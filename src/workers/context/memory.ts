/**
 * Long-term memory: in Node's SQLite by default; in LanceDB for large stores and for fleets of several machines. Search is full-text;
 * with an embedding endpoint also by vectors.
 */
import type { Settings } from '../../shared/config/config.ts';
import type { MemoryStore } from '../../shared/tools/capabilities.ts';
import { openEmbedder } from './embedding.ts';
import { type Lance, LanceMemory } from './memory-lance.ts';
import { SqliteMemory } from './memory-sqlite.ts';

export interface MemoryDeps {
  readonly now?: () => number;
  readonly load?: () => Promise<Lance>;
}

/** Opens nothing yet. With LanceDB, the first use throws `CONFIGURATION` where it is not installed. */
export function openMemory(settings: Pick<Settings, 'dataDir' | 'memory'>, deps: MemoryDeps = {}): MemoryStore {
  const { memory } = settings;
  const embed = memory.embedding === undefined ? undefined : openEmbedder(memory.embedding);
  const { now = Date.now } = deps;
  const store = memory.store ?? (memory.uri === undefined ? 'sqlite' : 'lancedb');
  if (store === 'sqlite') return new SqliteMemory(settings, { embed, now });
  return new LanceMemory(settings, { embed, now, load: deps.load ?? (() => import('@lancedb/lancedb')) });
}
