import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { FileBlobs } from '../../../../src/shared/store/blobs/file-blobs.ts';
import { SegmentMover } from '../../../../src/shared/store/segments/segment-mover.ts';
import { type Books, claimOf, fetched, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';

const LATER_MS = 24 * 3_600_000;

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-segments-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** A call ID as producers make them: its last characters say in which hash its entry is. */
function newId(): string {
  return `w0.${randomBytes(16).toString('base64url')}`;
}

const stores: Readonly<Record<string, (books: Books) => void>> = {
  Redis: () => {},
  files: ({ ledger }) => ledger.access.blobs.keepIn(new FileBlobs(newFolder())),
};

async function open(keepIn: (books: Books) => void) {
  const books = await openBooks(LATER_MS);
  keepIn(books);
  return books;
}

/** A call that succeeded. Settled as workers settle most calls, its record is packed. */
async function done(books: Books, change: Parameters<typeof claimOf>[1] & { readonly ttlMs?: number } = {}) {
  const { ttlMs = LATER_MS, ...rest } = change;
  const claim = claimOf('a', { callId: newId(), ...rest });
  await books.ledger.claim(claim);
  await settle(books, claim, (await started(books, claim)).fence, SUCCESS, { ttlMs });
  return claim;
}

function moverOf({ redis, ledger }: Books, afterMs: number | undefined = 0) {
  const { blobs, segments } = ledger.access;
  const mover = new SegmentMover({ redis, blobs, segments, afterMs, leastLeftMs: 0 });
  return { run: async (nowMs = Date.now()) => mover.run(ledger.keys(PLACE), nowMs) };
}

/** The state of everything that a record's readers see, apart from when it was read. */
async function seen({ ledger }: Books, callId: string) {
  const record = await ledger.read(callId);
  return record === undefined ? undefined : { ...record, readAtMs: 0, expiresAtMs: Math.round((record.expiresAtMs ?? 0) / 50) };
}

async function isInMemory({ redis, ledger }: Books, callId: string): Promise<boolean> {
  return (await redis.exists(ledger.keys(PLACE).record(callId))) === 1;
}

describe.each(Object.entries(stores))('segments in %s', (_where, keepIn) => {
  test('a call that ended leaves memory, and its readers see what they saw before', async () => {
    const books = await open(keepIn);
    const claim = await done(books);
    const before = await seen(books, claim.callId);
    expect(await moverOf(books).run()).toEqual({ calls: 1, written: 1, removed: 0 });
    expect(await isInMemory(books, claim.callId)).toBe(false);
    expect(await seen(books, claim.callId)).toEqual(before);
    expect(await books.ledger.outcome(claim.callId)).toEqual(SUCCESS);
    expect(await books.ledger.index.list(PLACE, { limit: 10 })).toEqual([claim.callId]);
  });

  test('a claim of a moved call is answered with its outcome; other parameters are a conflict; nothing runs', async () => {
    const books = await open(keepIn);
    const claim = await done(books);
    await moverOf(books).run();
    expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'ended', state: 'done', outcome: SUCCESS });
    await books.redis.unlink(books.ledger.keys(PLACE).record(claim.callId));
    expect(await books.ledger.claim({ ...claim, paramsDigest: 'other' })).toMatchObject({ kind: 'conflict' });
    expect((await books.ledger.index.counts(PLACE)).inflight).toBe(0);
  });

  test('a flush forgets moved calls: their keys are free, and nothing is left of their entries', async () => {
    const books = await open(keepIn);
    const [one, other] = [await done(books), await done(books)];
    await moverOf(books).run();
    expect(await books.ledger.index.forget(one.callId)).toMatchObject({ flushed: 1 });
    expect(await books.ledger.claim(one)).toMatchObject({ kind: 'claimed' });
    expect(await books.ledger.index.flush(PLACE, {})).toMatchObject({ flushed: 1, inflight: 1 });
    expect(await books.ledger.read(other.callId)).toBeUndefined();
    expect((await books.world.keys()).filter((key) => key.includes(':moved:'))).toEqual([]);
  });

  test('each record ends at its own time, and the segment with the last of them', async () => {
    const books = await open(keepIn);
    const [short, long] = [await done(books, { ttlMs: 300 }), await done(books)];
    await moverOf(books).run();
    await vi.waitFor(async () => expect(await books.ledger.read(short.callId)).toBeUndefined(), { timeout: 2_000 });
    expect(await books.ledger.claim(short)).toMatchObject({ kind: 'claimed' });
    expect(await books.ledger.read(long.callId)).toBeDefined();
    expect(await moverOf(books, undefined).run(Date.now() + 2 * LATER_MS)).toEqual({ calls: 0, written: 0, removed: 1 });
    const left = await books.world.keys();
    expect(left.filter((key) => /:(moved|segment|segments):/.test(key) || key.endsWith(':segments'))).toEqual([
      expect.stringMatching(/:segments:last$/),
    ]);
  });
});
