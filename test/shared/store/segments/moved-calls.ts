/** Calls that have ended, and movers for them. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { FileBlobs } from '../../../../src/shared/store/blobs/file-blobs.ts';
import {
  SegmentMover,
  type SegmentMoverOptions,
  type SegmentRun,
} from '../../../../src/shared/store/segments/segment-mover.ts';
import { type Books, claimOf, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';

export const LATER_MS = 24 * 3_600_000;

export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-segments-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** Books whose segments are files of a folder. */
export async function openWithFiles() {
  const [books, folder] = [await openBooks(LATER_MS), newFolder()];
  books.ledger.access.blobs.keepIn(new FileBlobs(folder));
  return { books, folder };
}

/** A call that succeeded, with an ID as producers make them: its end says in which hash its entry is. */
export async function done(books: Books, change: Parameters<typeof claimOf>[1] & { readonly ttlMs?: number } = {}) {
  const { ttlMs = LATER_MS, ...rest } = change;
  const claim = claimOf('a', { callId: `w0.${randomBytes(17).toString('base64url').slice(0, 22)}`, ...rest });
  await books.ledger.claim(claim);
  await settle(books, claim, (await started(books, claim)).fence, SUCCESS, { ttlMs });
  return claim;
}

export function moverOf({ redis, ledger }: Books, change: Partial<SegmentMoverOptions> = {}) {
  const { blobs, segments } = ledger.access;
  const mover = new SegmentMover({ redis, blobs, segments, afterMs: 0, leastLeftMs: 0, ...change });
  return { run: (nowMs = Date.now()): Promise<SegmentRun> => mover.run(ledger.keys(PLACE), nowMs) };
}

/** What readers see of a call, apart from when they read it. */
export async function seen({ ledger }: Books, callId: string) {
  const record = await ledger.read(callId);
  if (record === undefined) return undefined;
  return { ...record, readAtMs: 0, expiresAtMs: Math.round((record.expiresAtMs ?? 0) / 100) };
}

export async function isInMemory({ redis, ledger }: Books, callId: string): Promise<boolean> {
  return (await redis.exists(ledger.keys(PLACE).record(callId))) === 1;
}

/** Takes the copy of a record away, as a minute does. */
export async function loseCopy({ redis, ledger }: Books, callId: string): Promise<void> {
  await redis.unlink(ledger.keys(PLACE).record(callId));
}
