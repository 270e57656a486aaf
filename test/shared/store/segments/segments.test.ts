import { readFileSync, rmSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';
import { BlobStores } from '../../../../src/shared/store/blobs/blob-stores.ts';
import { FileBlobs } from '../../../../src/shared/store/blobs/file-blobs.ts';
import { RedisBlobs, UNREFERRED_MS } from '../../../../src/shared/store/blobs/redis-blobs.ts';
import {
  type Books,
  callIdFor,
  claimOf,
  failureOutcome,
  openBooks,
  PLACE,
  SUCCESS,
  settle,
  started,
} from '../calls.ts';
import { done, filesIn, isInMemory, LATER_MS, loseCopy, moverOf, openWithFiles, seen } from './moved-calls.ts';

const stores: Readonly<Record<string, () => Promise<Books>>> = {
  Redis: () => openBooks(LATER_MS),
  files: async () => (await openWithFiles()).books,
};

describe.each(Object.entries(stores))('segments in %s', (_where, open) => {
  test('a call that ended leaves memory, and its readers see what they saw before', async () => {
    const books = await open();
    const claim = await done(books);
    const before = await seen(books, claim.callId);
    expect(await moverOf(books).run()).toEqual({ calls: 1, written: 1, removed: 0 });
    expect(await isInMemory(books, claim.callId)).toBe(false);
    expect(await seen(books, claim.callId)).toEqual(before);
    expect(await books.ledger.outcome(claim.callId)).toEqual(SUCCESS);
    expect(await books.ledger.index.list(PLACE, { limit: 10 })).toEqual([claim.callId]);
  });

  test('a claim of a moved call is answered with its outcome; other parameters are a conflict; nothing runs', async () => {
    const books = await open();
    const claim = await done(books);
    await moverOf(books).run();
    expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'ended', state: 'done', outcome: SUCCESS });
    await loseCopy(books, claim.callId);
    expect(await books.ledger.claim({ ...claim, paramsDigest: 'other' })).toMatchObject({ kind: 'conflict' });
    expect((await books.ledger.index.counts(PLACE)).inflight).toBe(0);
  });

  test('a flush forgets moved calls: their keys are free, and nothing is left of their entries', async () => {
    const books = await open();
    const [one, other] = [await done(books), await done(books)];
    await moverOf(books).run();
    expect(await books.ledger.index.forget(one.callId)).toMatchObject({ flushed: 1 });
    expect(await books.ledger.claim(one)).toMatchObject({ kind: 'claimed' });
    expect(await books.ledger.index.flush(PLACE, {})).toMatchObject({ flushed: 1, inflight: 1 });
    expect(await books.ledger.read(other.callId)).toBeUndefined();
    expect((await books.world.keys()).filter((key) => key.includes(':moved:'))).toEqual([]);
  });

  test('each record ends at its own time, and the segment with the last of them', async () => {
    const books = await open();
    const [short, long] = [await done(books, { ttlMs: 300 }), await done(books)];
    await moverOf(books).run();
    await vi.waitFor(async () => expect(await books.ledger.read(short.callId)).toBeUndefined(), { timeout: 30_000 });
    expect(await books.ledger.claim(short)).toMatchObject({ kind: 'claimed' });
    expect(await books.ledger.read(long.callId)).toBeDefined();
    expect(await moverOf(books, { afterMs: undefined }).run(Date.now() + 2 * LATER_MS)).toEqual({
      calls: 0,
      written: 0,
      removed: 1,
    });
    const left = await books.world.keys();
    expect(left.filter((key) => /:(moved|segment|segments):/.test(key) || key.endsWith(':segments'))).toEqual([
      expect.stringMatching(/:segments:last$/),
      expect.stringMatching(/:segments:walked$/),
    ]);
  });
});

describe('calls that stay in memory', () => {
  test('a call that is too young, that failed, that runs, or that ends soon', async () => {
    const books = await openBooks(LATER_MS);
    const running = claimOf('b');
    await books.ledger.claim(running);
    await done(books);
    const failed = claimOf('c');
    await books.ledger.claim(failed);
    await settle(books, failed, (await started(books, failed)).fence, failureOutcome('UPSTREAM_TIMEOUT'));
    expect(await moverOf(books, { afterMs: 60_000 }).run()).toMatchObject({ calls: 0 });
    expect(await moverOf(books, { leastLeftMs: 2 * LATER_MS }).run()).toMatchObject({ calls: 0 });
    expect(await moverOf(books).run()).toMatchObject({ calls: 1 });
    expect(await moverOf(books).run()).toMatchObject({ calls: 0 });
    expect((await books.ledger.read(running.callId))?.state).toBe('inflight');
    expect((await books.ledger.read(failed.callId))?.state).toBe('failed');
  });

  test('a copy that a reader brought back is not moved again, and its entry stays when the copy goes', async () => {
    const books = await openBooks(LATER_MS);
    const claim = await done(books);
    await moverOf(books).run();
    await books.ledger.read(claim.callId);
    expect(await moverOf(books).run()).toMatchObject({ calls: 0 });
    await loseCopy(books, claim.callId);
    expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'ended', outcome: SUCCESS });
  });

  test('one mover at a time: another one does nothing while the lease holds', async () => {
    const books = await openBooks(LATER_MS);
    await done(books);
    const runs = await Promise.all([moverOf(books).run(), moverOf(books).run()]);
    expect(runs.map(({ calls }) => calls).sort()).toEqual([0, 1]);
  });
});

describe('a call that was merged into one that was moved', () => {
  test('is still that call, and does not run', async () => {
    const books = await openBooks(LATER_MS);
    const merging = { mergeId: 'same', paramsDigest: 'same' };
    const leader = claimOf('leader', { callId: callIdFor('leader'), ...merging });
    const merged = claimOf('merged', { callId: callIdFor('merged'), ...merging });
    await books.ledger.claim(leader);
    expect(await books.ledger.claim(merged)).toMatchObject({ kind: 'inflight', callId: leader.callId });
    await settle(books, leader, (await started(books, leader)).fence, SUCCESS, { ttlMs: LATER_MS });
    expect(await moverOf(books).run()).toMatchObject({ calls: 1 });
    expect(await books.ledger.claim(merged)).toMatchObject({ kind: 'ended', callId: leader.callId });
    await loseCopy(books, leader.callId);
    expect((await books.ledger.read(merged.callId))?.callId).toBe(leader.callId);
  });
});

describe('a segment that is lost', () => {
  const damages: Readonly<Record<string, (file: string) => void>> = {
    gone: (file) => rmSync(file),
    changed: (file) => writeFileSync(file, 'other bytes'),
    'cut short': (file) => truncateSync(file, 20),
  };

  test.each(Object.entries(damages))(
    'because its file is %s: its calls say so, and none runs',
    async (_how, damage) => {
      const { books, folder } = await openWithFiles();
      const [claim, other] = [await done(books), await done(books)];
      await moverOf(books).run();
      const found: unknown[] = [];
      books.ledger.access.segments.onLost((lost) => found.push(lost));
      damage(filesIn(folder)[0] ?? '');
      for (const _round of [1, 2]) {
        expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'lost', callId: claim.callId });
        await expect(books.ledger.read(claim.callId)).rejects.toMatchObject({ code: 'RESULT_LOST' });
      }
      expect(found).toEqual([expect.objectContaining({ name: expect.stringMatching(/:segment:1$/) })]);
      expect((await books.ledger.index.counts(PLACE)).inflight).toBe(0);
      // An operator may forget it: then its key is free.
      expect(await books.ledger.index.forget(claim.callId)).toMatchObject({ flushed: 1 });
      expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'claimed' });
      expect(await books.ledger.claim(other)).toMatchObject({ kind: 'lost' });
    },
  );

  test('is found again when its file is put back', async () => {
    const { books, folder } = await openWithFiles();
    const claim = await done(books);
    await moverOf(books).run();
    const [file = ''] = filesIn(folder);
    const bytes = readFileSync(file);
    rmSync(file);
    expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'lost' });
    const lost = `${books.ledger.keys(PLACE).segments}:lost`;
    expect(await books.redis.scard(lost)).toBe(1);
    writeFileSync(file, bytes);
    await moverOf(books).run();
    expect(await books.redis.scard(lost)).toBe(0);
    expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'ended', outcome: SUCCESS });
  });

  test('ends as others do: nothing is left of its calls', async () => {
    const { books, folder } = await openWithFiles();
    await done(books);
    await moverOf(books).run();
    rmSync(filesIn(folder)[0] ?? '');
    expect(await moverOf(books).run(Date.now() + 2 * LATER_MS)).toMatchObject({ removed: 1 });
    expect((await books.world.keys()).filter((key) => key.includes(':moved:'))).toEqual([]);
  });

  test('of a process with another store: it names the setting, and nothing runs', async () => {
    const { books } = await openWithFiles();
    const claim = await done(books);
    await moverOf(books).run();
    books.ledger.access.blobs.keepIn(new RedisBlobs(books.redis));
    await expect(books.ledger.claim(claim)).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining('PAWL_BLOB_STORE'),
    });
    expect((await books.ledger.index.counts(PLACE)).inflight).toBe(0);
  });
});

describe('the index of calls', () => {
  test('keeps moved calls when it is pruned, until their segment ends', async () => {
    const books = await openBooks(LATER_MS);
    const claim = await done(books);
    await moverOf(books).run();
    await books.ledger.index.prune(PLACE, Date.now());
    expect(await books.ledger.index.list(PLACE, { limit: 10 })).toEqual([claim.callId]);
    await moverOf(books).run(Date.now() + 2 * LATER_MS);
    await books.ledger.index.prune(PLACE, Date.now());
    expect(await books.ledger.index.list(PLACE, { limit: 10 })).toEqual([]);
  });
});

describe('a mover that dies', () => {
  const CALLS = 260;

  /** Answers so many commands, and none after that: to Redis and to the disk, as if the process had been killed there. */
  function dying<Target extends object>(target: Target, steps: { left: number; taken: string[] }): Target {
    return new Proxy(target, {
      get: (of, name) => {
        const value: unknown = Reflect.get(of, name, of);
        if (name === 'on') return () => of;
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          steps.left -= 1;
          if (steps.left < 0) return new Promise(() => {});
          steps.taken.push(String(name));
          return Reflect.apply(value, of, args);
        };
      },
    });
  }

  /** Runs a mover that dies after so many steps; returns the steps, and whether it came to its end. */
  async function diesAfter({ books, folder }: Awaited<ReturnType<typeof openWithFiles>>, most: number) {
    const steps = { left: most, taken: [] as string[] };
    const redis = dying(books.redis, steps);
    const blobs = new BlobStores(redis);
    blobs.keepIn(dying(new FileBlobs(folder), steps));
    const { segments } = books.ledger.access;
    const run = moverOf({ ...books, redis }, { blobs, segments }).run();
    const ended = await Promise.race([
      run.then(() => true),
      vi.waitFor(() => expect(steps.left).toBeLessThan(0), { timeout: 30_000 }).then(() => false),
    ]);
    return { taken: steps.taken, ended };
  }

  test('leaves each call in memory or in a segment, whatever step was its last; the next one goes on', async () => {
    const world = await openWithFiles();
    const { books, folder } = world;
    const keys = books.ledger.keys(PLACE);
    const claims = await Promise.all(Array.from({ length: CALLS }, () => done(books)));
    const steps = new Set<string>();
    for (let most = 0, ended = false; !ended; most += 1) {
      let taken: readonly string[];
      ({ taken, ended } = await diesAfter(world, most));
      for (const step of taken) steps.add(step);
      await books.redis.unlink(`${keys.segments}:mover`);
      const one = claims[most] ?? claims[0];
      // A call that is asked for now answers from wherever it is.
      if (one !== undefined) expect(await books.ledger.claim(one)).toMatchObject({ kind: 'ended', outcome: SUCCESS });
    }
    expect([...steps]).toEqual(expect.arrayContaining(['incr', 'put']));
    await moverOf(books).run();
    const inMemory = await Promise.all(claims.map(({ callId }) => books.redis.hexists(keys.record(callId), 'ended')));
    const copies = await Promise.all(claims.map(({ callId }) => books.redis.hexists(keys.record(callId), 'segment')));
    expect(inMemory).toEqual(copies);
    for (const claim of claims) {
      await loseCopy(books, claim.callId);
      expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'ended', outcome: SUCCESS });
    }
    // What the dead ones wrote and nothing refers to goes.
    for (const file of filesIn(folder)) utimesSync(file, 1, 1);
    for (const key of (await books.world.keys()).filter((name) => name.includes(':segment:')))
      if ((await books.redis.hexists(key, 'digest')) === 0) await books.redis.unlink(key);
    const sweep = books.ledger.access.blobs.sweepOf(books.world.prefix);
    await sweep?.run(Date.now());
    await sweep?.run(Date.now() + UNREFERRED_MS);
    expect(filesIn(folder)).toHaveLength(await books.redis.zcard(keys.segments));
  });
});
