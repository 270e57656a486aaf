/** The part of a stored memory that the memory tools return. */
import type { MemoryRecord } from '../../../shared/tools/capabilities.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';

export function memoryEntry({ id, text, metadata, createdAtMs, provenance, tainted = false }: MemoryRecord) {
  const { source, sessionKey } = provenance ?? {};
  return { id, text, tainted, ...defined({ metadata: metadata && { ...metadata }, createdAtMs, source, sessionKey }) };
}
