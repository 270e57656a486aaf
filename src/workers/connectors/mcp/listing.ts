/** What MCP servers list, page by page and entry by entry: one that is not as it should be must not hide the others. */
import type { Client, RequestOptions } from '@modelcontextprotocol/client';
import { z } from 'zod';

const MAX_PAGES = 64;

/** As `incoming.ts` puts it past the SDK. Some servers write null for an empty list. */
const pageSchema = z.looseObject({ entries: z.array(z.unknown()).nullable(), cursor: z.unknown() });

export interface Listed {
  readonly entries: readonly unknown[];
  /** Where it goes on. */
  readonly nextCursor: string | undefined;
}

export type ListMethod = 'tools/list' | 'resources/list' | 'resources/templates/list';

/** The page at `cursor`; without one, all pages, or as many as anybody should read. */
export async function list(
  client: Client,
  method: ListMethod,
  cursor: string | undefined,
  options: RequestOptions,
): Promise<Listed> {
  const entries: unknown[] = [];
  let nextCursor = cursor;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const request = { method, ...(nextCursor === undefined ? {} : { params: { cursor: nextCursor } }) };
    const answer = await client.request(request, pageSchema, options);
    entries.push(...(answer.entries ?? []));
    nextCursor = cursorOf(answer.cursor);
    if (nextCursor === undefined || cursor !== undefined) break;
  }
  return { entries, nextCursor };
}

/** Some servers write an empty one, or null, on the last page, and some count in numbers. */
function cursorOf(cursor: unknown): string | undefined {
  return typeof cursor === 'string' || typeof cursor === 'number' ? String(cursor) || undefined : undefined;
}
