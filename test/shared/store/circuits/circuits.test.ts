import { describe, expect, test } from 'vitest';
import { type Circuit, CLOSED_CIRCUIT, tripReason } from '../../../../src/shared/circuits/circuit-breaker.ts';
import { circuitPolicy } from '../../../../src/shared/circuits/circuit-policy.ts';
import { parseCircuit } from '../../../../src/shared/store/circuits/circuits.ts';
import { receiveBroadcasts } from '../../../../src/shared/store/redis/broadcasts.ts';
import { signal, within } from '../../../helpers/signal.ts';
import { type Books, CIRCUIT, openBooks, PLACE } from '../calls.ts';

const OPEN: Circuit = { state: 'OPEN', epoch: 1, openedAtMs: 5, cooldownMs: 30_000, failures: 5, reason: 'said "{ |' };
const WINDOW_MS = 120_000;

const fail = ({ breakers }: Books, epoch = 0, windowSize = 20, successesBefore = 0) =>
  breakers.addFailure(PLACE, { circuit: CIRCUIT, epoch, windowSize, windowMs: WINDOW_MS }, successesBefore);

describe('the fleet’s circuits in Redis (R22)', () => {
  test('a circuit that never changed is closed, in epoch 0, and is not listed', async () => {
    const { breakers } = await openBooks();
    expect(await breakers.read(PLACE, CIRCUIT)).toEqual(CLOSED_CIRCUIT);
    expect([...(await breakers.list(PLACE))]).toEqual([]);
    expect(parseCircuit('')).toBe(CLOSED_CIRCUIT);
  });

  test('failures gather in a window that all workers share, the newest first', async () => {
    const books = await openBooks();
    const [one] = await Promise.all([fail(books), fail(books), fail(books), fail(books)]);
    expect(one.window.length).toBeGreaterThan(0);
    const last = await fail(books);
    expect(last.circuit).toEqual(CLOSED_CIRCUIT);
    expect(last.window).toHaveLength(5);
    expect(last.window[0]?.atMs).toBeGreaterThanOrEqual(last.window[4]?.atMs ?? 0);
    expect(tripReason(last.window, circuitPolicy(false), last.nowMs)).toBe('5 failures in a row');
  });

  test('a failure remembers how many successes came before it, which may be added later', async () => {
    const books = await openBooks();
    const add = (successes: number) => fail(books, 0, 20, successes);
    for (const successes of [0, 500, 0, 0]) await add(successes);
    const { window, circuit, nowMs } = await add(0);
    expect(window.map(({ successesBefore = 0 }) => successesBefore)).toEqual([0, 0, 0, 20, 0]);
    expect(circuit).toEqual(CLOSED_CIRCUIT);
    expect(tripReason(window, circuitPolicy(false), nowMs)).toBeUndefined();
    expect(tripReason((await add(0)).window, circuitPolicy(false), nowMs)).toBe('5 failures in a row');
  });

  test('the window remembers no more than its size, and forgets itself', async () => {
    const books = await openBooks();
    for (let index = 0; index < 6; index += 1) await fail(books, 0, 4);
    expect(await books.breakers.window(PLACE, CIRCUIT)).toHaveLength(4);
    const leftMs = await books.redis.pttl(books.ledger.keys(PLACE).window(CIRCUIT));
    expect(leftMs).toBeLessThanOrEqual(WINDOW_MS);
    expect(leftMs).toBeGreaterThan(WINDOW_MS / 2);
  });

  test('an outcome of an earlier epoch, or one that comes while the circuit is open, is dropped', async () => {
    const books = await openBooks();
    await books.breakers.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 0);
    expect(await fail(books, 1)).toMatchObject({ circuit: OPEN, window: [] });
    const closed: Circuit = { state: 'CLOSED', epoch: 2 };
    await books.breakers.change({ partition: PLACE, key: CIRCUIT }, OPEN, closed, 0);
    expect((await fail(books, 0)).window).toEqual([]);
    expect((await fail(books, 2)).window).toHaveLength(1);
  });

  test('of many who change a circuit at once one succeeds, and the others learn what it became', async () => {
    const { breakers } = await openBooks();
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        breakers.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, { ...OPEN, reason: `worker ${index}` }, 0),
      ),
    );
    const winner = answers.find((answer) => answer.changed);
    expect(answers.filter((answer) => answer.changed)).toHaveLength(1);
    for (const answer of answers) expect(answer.circuit).toEqual(winner?.circuit);
    expect(await breakers.read(PLACE, CIRCUIT)).toEqual(winner?.circuit);
  });

  test('R23: a change empties the window', async () => {
    const books = await openBooks();
    await fail(books);
    await books.breakers.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 0);
    expect(await books.breakers.window(PLACE, CIRCUIT)).toEqual([]);
  });

  test('circuits of other places and names are others', async () => {
    const { breakers } = await openBooks();
    await breakers.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 0);
    expect(await breakers.read({ tier: 'system', shard: 0 }, CIRCUIT)).toEqual(CLOSED_CIRCUIT);
    expect(await breakers.read(PLACE, `${CIRCUIT}@acme`)).toEqual(CLOSED_CIRCUIT);
    expect([...(await breakers.list(PLACE))]).toEqual([[CIRCUIT, OPEN]]);
  });

  test('a change is broadcast to all processes, and a change that came too late is not', async () => {
    const { breakers, redis, world } = await openBooks();
    const subscribed = signal();
    const heard: unknown[] = [];
    const broadcast = signal();
    const listener = receiveBroadcasts({
      url: world.redisUrl,
      redis,
      prefix: world.prefix,
      name: 'test',
      onBroadcast: (item) => {
        heard.push(item);
        if (heard.length === 2) broadcast.fire();
      },
      onSubscribed: () => subscribed.fire(),
      onError: subscribed.fail,
    });
    try {
      await within(subscribed.promise, 30_000, 'the subscription');
      await breakers.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 700);
      expect((await breakers.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 700)).changed).toBe(
        false,
      );
      const closed: Circuit = { state: 'CLOSED', epoch: 2 };
      await breakers.change({ partition: PLACE, key: CIRCUIT }, OPEN, closed, 0);
      await within(broadcast.promise, 30_000, 'the news');
      expect(heard).toEqual([
        { type: 'circuit', partition: PLACE, key: CIRCUIT, circuit: OPEN, retryAfterMs: 700 },
        { type: 'circuit', partition: PLACE, key: CIRCUIT, circuit: closed, retryAfterMs: 0 },
      ]);
    } finally {
      listener.close();
    }
  });
});
