import { renameSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { openConnection, type Redis } from '../../../../src/shared/store/redis/connection.ts';
import { startWire } from '../../../helpers/proxy.ts';
import { eventually } from '../../../helpers/signal.ts';
import { type Books, openBooks, PLACE, SUCCESS } from '../calls.ts';
import { done, filesIn, isInMemory, LATER_MS, loseCopy, moverOf, openWithFiles } from './moved-calls.ts';

const segmentsOf = ({ ledger }: Books) => ledger.keys(PLACE).segments;

test('a mover that never hears that its calls were moved keeps their segment, and none of them runs again', async () => {
  const { books, folder } = await openWithFiles();
  const claim = await done(books);
  const wire = await startWire(books.world.redisUrl);
  const redis = openConnection({ url: wire.url, name: `${books.world.prefix}:mover`, mode: 'patient' });
  onTestFinished(() => redis.disconnect());
  // Its answers stop when it says which calls shall move.
  wire.deafenWhenSaid(claim.callId);
  const run = moverOf({ ...books, redis }).run();
  await eventually(async () => !(await isInMemory(books, claim.callId)));
  wire.heal();
  wire.cut();
  wire.heal();
  const moved = await run;
  expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'ended', outcome: SUCCESS });
  expect(moved).toEqual({ calls: 1, written: 1, removed: 0 });
  expect(filesIn(folder)).toHaveLength(1);
  expect(await books.ledger.access.segments.counts(books.ledger.keys(PLACE))).toEqual({
    calls: 1,
    segments: 1,
    lost: 0,
  });
});

/** The connection of a process in which calls are moved between two of its commands: after it has read a request. */
function movingAfterRead({ redis }: Books, move: () => Promise<unknown>): Redis {
  return new Proxy(redis, {
    get: (of, name) => {
      const value: unknown = Reflect.get(of, name, of);
      if (typeof value !== 'function') return value;
      return async (...args: unknown[]) => {
        const answer: unknown = await Reflect.apply(value, of, args);
        if (name === 'hget' && args[1] === 'request') await move();
        return answer;
      };
    },
  });
}

test('a call that is moved while it is flushed is forgotten', async () => {
  const books = await openBooks(LATER_MS);
  const claim = await done(books);
  const { access } = books.ledger;
  Reflect.set(
    access,
    'redis',
    movingAfterRead(books, () => moverOf(books).run()),
  );
  expect(await books.ledger.index.flush(PLACE, {})).toEqual({ flushed: 1, inflight: 0, unresolved: 0 });
  Reflect.set(access, 'redis', books.redis);
  expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'claimed' });
});

test('segments that ended while no worker ran are not lost: the keys of their calls are free', async () => {
  const { books } = await openWithFiles();
  const claim = await done(books, { ttlMs: 1_500 });
  await moverOf(books).run();
  const other = await done(books, { ttlMs: 1_500 });
  await moverOf(books).run();
  const lost: unknown[] = [];
  books.ledger.access.segments.onLost((segment) => lost.push(segment));
  const endsAtMs = Number((await books.redis.zrange(segmentsOf(books), '-1', '-1', 'WITHSCORES'))[1]);
  await eventually(async () => (await books.ledger.now()) > endsAtMs);
  // Redis forgets a segment an hour after its end.
  for (const number of ['1', '2']) await books.redis.unlink(books.ledger.keys(PLACE).segment(number));
  expect(await books.ledger.access.segments.unreadable(books.ledger.keys(PLACE), 10)).toEqual([]);
  expect(await books.ledger.read(other.callId)).toBeUndefined();
  expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'claimed' });
  expect(await moverOf(books, { afterMs: undefined }).run()).toMatchObject({ removed: 2 });
  expect((await books.world.keys()).filter((key) => key.includes(':moved:'))).toEqual([]);
  expect(lost).toEqual([]);
  expect(await books.redis.scard(`${segmentsOf(books)}:lost`)).toBe(0);
});

test('segments that are there again are found among many that are not', async () => {
  const { books, folder } = await openWithFiles();
  const claims = [];
  for (let number = 0; number < 12; number += 1) {
    claims.push(await done(books));
    await moverOf(books).run();
  }
  renameSync(folder, `${folder}.away`);
  for (const claim of claims) expect(await books.ledger.claim(claim)).toMatchObject({ kind: 'lost' });
  expect(await books.redis.scard(`${segmentsOf(books)}:lost`)).toBe(12);
  renameSync(`${folder}.away`, folder);
  // Ten of them stay lost, whichever the mover would look for first.
  const first = await books.redis.smembers(`${segmentsOf(books)}:lost`);
  for (const number of first.slice(0, 10))
    await books.redis.hset(books.ledger.keys(PLACE).segment(number), 'digest', 'x');
  await eventually(async () => {
    await moverOf(books).run();
    return (await books.redis.scard(`${segmentsOf(books)}:lost`)) === 10;
  });
  for (const { callId } of claims) await loseCopy(books, callId);
});
