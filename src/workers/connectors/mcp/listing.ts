/** Reads the lists of MCP servers, page by page and entry by entry: an invalid entry must not hide the others. */
import type { Client, RequestOptions } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { isObject } from '../../../shared/util/json/json-types.ts';

const MAX_PAGES = 1_000;
/** A server that brings nothing new on so many pages in succession ignores the cursor, although it names a new one each time. */
const MAX_STALE_PAGES = 10;

/** The form in which `incoming.ts` passes a list through the SDK. Some servers write null for an empty list. */
const pageSchema = z.looseObject({ entries: z.array(z.unknown()).nullable(), cursor: z.unknown() });

export interface Listed {
  readonly entries: readonly unknown[];
  readonly nextCursor: string | undefined;
}

type ListMethod = 'tools/list' | 'resources/list' | 'resources/templates/list';

/** Returns the page at `cursor`. Without a cursor it returns all pages, up to a limit, and an entry that is listed twice once. */
export async function list(
  client: Client,
  method: ListMethod,
  cursor: string | undefined,
  options: RequestOptions,
): Promise<Listed> {
  const entries = new Map<string, unknown>();
  const cursors = new Set<string>();
  let nextCursor = cursor;
  let stalePages = 0;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const request = { method, ...(nextCursor !== undefined && { params: { cursor: nextCursor } }) };
    const answer = await client.request(request, pageSchema, options);
    const { size } = entries;
    for (const entry of answer.entries ?? [])
      entries.set(isObject(entry) ? JSON.stringify(entry) : String(entries.size), entry);
    nextCursor = cursorOf(answer.cursor);
    if (nextCursor === undefined || cursor !== undefined) break;
    stalePages = entries.size === size ? stalePages + 1 : 0;
    // A server that leads back to a page that was read has no more.
    if (cursors.has(nextCursor) || stalePages === MAX_STALE_PAGES)
      return { entries: [...entries.values()], nextCursor: undefined };
    cursors.add(nextCursor);
  }
  return { entries: [...entries.values()], nextCursor };
}

/** Some servers write an empty cursor, or null, on the last page, and some use numbers. */
function cursorOf(cursor: unknown): string | undefined {
  return typeof cursor === 'string' || typeof cursor === 'number' ? String(cursor) || undefined : undefined;
}
