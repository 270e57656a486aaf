import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Outcome } from '../../../../src/shared/calls/outcome.ts';
import type { BlobStore } from '../../../../src/shared/store/blobs/blob-store.ts';
import { FileBlobs } from '../../../../src/shared/store/blobs/file-blobs.ts';
import { RedisBlobs, UNREFERRED_MS } from '../../../../src/shared/store/blobs/redis-blobs.ts';
import { PART_BYTES } from '../../../../src/shared/util/json/large-json.ts';
import { type Books, claimOf, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';

const LATER_MS = Date.now() + 3_600_000;

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-blobs-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

async function namesOf(store: BlobStore, beforeMs: number): Promise<string[]> {
  const names: string[] = [];
  for await (const name of store.names(beforeMs)) names.push(name);
  return names;
}

const stores: Readonly<Record<string, (books: Books) => BlobStore>> = {
  Redis: ({ redis }) => new RedisBlobs(redis),
  files: () => new FileBlobs(newFolder()),
};

describe.each(Object.entries(stores))('a store of large values in %s', (_where, open) => {
  test('gives back the bytes of each part, whatever they are', async () => {
    const books = await openBooks();
    const store = open(books);
    const name = `${books.world.prefix}:{workspace}:outcome:w0.a:1`;
    const parts = [randomBytes(PART_BYTES), Buffer.alloc(0), Buffer.from([0, 255, 13, 10])];
    await Promise.all(parts.map((bytes, part) => store.put(name, part, bytes)));
    for (const [part, bytes] of parts.entries()) expect((await store.get(name, part))?.equals(bytes)).toBe(true);
    expect(await store.get(name, parts.length)).toBeNull();
  });

  test('a part that is written again is the same part, also by two at once', async () => {
    const books = await openBooks();
    const store = open(books);
    const name = `${books.world.prefix}:{workspace}:outcome:w0.a:1`;
    await Promise.all([store.put(name, 0, Buffer.from('x')), store.put(name, 0, Buffer.from('x'))]);
    await store.put(name, 0, Buffer.from('x'));
    expect(String(await store.get(name, 0))).toBe('x');
  });

  test('names that are nearly alike are apart, as those of two tenants are', async () => {
    const books = await openBooks();
    const store = open(books);
    const names = ['w0.a:1', 'w0.a:11', 'w0.a:1.0', 'w0.A:1', 'w0.a%3A1', '../w0.a:1'].map(
      (name) => `${books.world.prefix}:{workspace}:outcome:${name}`,
    );
    for (const name of names) await store.put(name, 0, Buffer.from(name));
    for (const name of names) expect(String(await store.get(name, 0))).toBe(name);
    await store.remove(names[0] ?? '');
    expect(await store.get(names[0] ?? '', 0)).toBeNull();
    for (const name of names.slice(1)) expect(String(await store.get(name, 0))).toBe(name);
  });

  test('removes all parts of a value, and one that is not there', async () => {
    const books = await openBooks();
    const store = open(books);
    const name = `${books.world.prefix}:{workspace}:outcome:w0.a:1`;
    for (const part of [0, 1, 2, 5]) await store.put(name, part, Buffer.from('x'));
    await store.remove(name);
    await store.remove(name);
    for (const part of [0, 1, 2, 5]) expect(await store.get(name, part)).toBeNull();
    expect(await namesOf(store, LATER_MS)).toEqual([]);
  });
});

describe('values in files', () => {
  const large: Outcome = { ...SUCCESS, output: { content: 'x'.repeat(4 * PART_BYTES) } };

  async function settled() {
    const books = await openBooks();
    const folder = newFolder();
    const { blobs } = books.ledger.access;
    blobs.keepIn(new FileBlobs(folder));
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, large);
    const sweep = blobs.sweepOf(books.world.prefix);
    if (sweep === undefined) throw new Error('files have a sweep');
    return { books, folder, claim, sweep };
  }

  test('Redis has a mark alone; readers and a replay get the same outcome', async () => {
    const { books, folder, claim } = await settled();
    expect(filesIn(folder)).toHaveLength(5);
    const at = (await books.redis.hget(books.ledger.keys(PLACE).record(claim.callId), 'outcomeAt')) ?? '';
    expect(await books.redis.hgetall(at)).toEqual({ in: 'file' });
    expect((await books.ledger.read(claim.callId))?.outcome).toEqual(large);
    const again = await books.ledger.claim(claim.callId === '' ? claim : claimOf('a'));
    expect(again).toMatchObject({ kind: 'ended', state: 'done' });
    expect(again.kind === 'ended' && again.outcome).toEqual(large);
  });

  test('a part that was changed is refused, and a lost one is reported', async () => {
    const { books, folder, claim } = await settled();
    const [file = ''] = filesIn(folder);
    writeFileSync(file, 'other bytes');
    expect((await books.ledger.read(claim.callId))?.outcome?.error?.code).toBe('SIGNATURE_INVALID');
    rmSync(file);
    await expect(books.ledger.read(claim.callId)).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
    // The call has ended all the same: its key runs nothing.
    await expect(books.ledger.claim(claimOf('a'))).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });

  test('the values of calls that were flushed go, ten minutes after that was seen; others stay', async () => {
    const { books, folder, claim, sweep } = await settled();
    const other = claimOf('b');
    await books.ledger.claim(other);
    await settle(books, other, (await started(books, other)).fence, large);
    for (const file of filesIn(folder)) utimesSync(file, 1, 1);
    await books.ledger.index.forget(claim.callId);
    const nowMs = Date.now();
    expect(await sweep.run(nowMs)).toBe(0);
    expect(await sweep.run(nowMs + UNREFERRED_MS)).toBe(1);
    expect(filesIn(folder)).toHaveLength(5);
    expect((await books.ledger.read(other.callId))?.outcome).toEqual(large);
  });

  test('what a process left that died goes: unfinished parts, and parts without a mark', async () => {
    const { books, folder, sweep } = await settled();
    const [file = ''] = filesIn(folder);
    const unfinished = join(file, '..', 'x.unfinished');
    writeFileSync(unfinished, 'x');
    const orphan = `${books.world.prefix}:{workspace}:params:w0.b:1`;
    await new FileBlobs(folder).put(orphan, 0, Buffer.from('x'));
    const foreign = 'other:{workspace}:params:w0.b:1';
    await new FileBlobs(folder).put(foreign, 0, Buffer.from('x'));
    for (const each of filesIn(folder)) utimesSync(each, 1, 1);
    await sweep.run(Date.now());
    await sweep.run(Date.now() + UNREFERRED_MS);
    const store = new FileBlobs(folder);
    expect(filesIn(folder)).not.toContain(unfinished);
    expect(await store.get(orphan, 0)).toBeNull();
    expect(String(await store.get(foreign, 0))).toBe('x');
  });

  test('a process with another store says which one it needs; what Redis has is still read', async () => {
    const { books, claim } = await settled();
    books.ledger.access.blobs.keepIn(new RedisBlobs(books.redis));
    await expect(books.ledger.read(claim.callId)).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining('PAWL_BLOB_STORE'),
    });
  });

  test('a folder that cannot be written is a fault of the configuration', () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'file'), '');
    expect(() => new FileBlobs(join(folder, 'file', 'blobs'))).toThrow(
      expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining('blobStore') }),
    );
  });
});
