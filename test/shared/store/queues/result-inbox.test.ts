import { describe, expect, onTestFinished, test } from 'vitest';
import { type InboxEvent, InboxReader } from '../../../../src/shared/store/queues/result-inbox.ts';
import { FleetKeys, PartitionKeys } from '../../../../src/shared/store/redis/keys.ts';
import { eventually } from '../../../helpers/signal.ts';
import { type Books, claimOf, openBooks, PLACE, settle, started } from '../calls.ts';

const OTHER = { tier: 'system', shard: 0 } as const;

function read({ world, redis }: Books) {
  const events: InboxEvent[] = [];
  const gaps: number[] = [];
  const reader = InboxReader.open({
    url: world.redisUrl,
    redis,
    prefix: world.prefix,
    id: 'producer-1',
    partitions: () => [PLACE, OTHER],
    onEvent: (event) => events.push(event),
    onGap: () => gaps.push(events.length),
    onError: () => {},
  });
  onTestFinished(() => reader.close());
  return { events, gaps, reader };
}

const channelOf = ({ world }: Books) => new FleetKeys(world.prefix).inbox('producer-1');

const event = (index: number) => JSON.stringify({ type: 'settled', callId: `call ${index}`, state: 'done' });

describe('DESIGN, decision 6: a producer’s inbox', () => {
  test('what lay there before the reader came, and what comes later, arrives once and in order', async () => {
    const books = await openBooks();
    const inbox = books.ledger.keys(PLACE).inbox('producer-1');
    const all = Array.from({ length: 1_300 }, (_, index) => event(index));
    await books.redis.rpush(inbox, ...all.slice(0, 1_200));
    const { events, gaps } = read(books);
    await eventually(() => events.length === 1_200);
    for (const one of all.slice(1_200)) await books.redis.publish(channelOf(books), `[${one}]`);
    await eventually(() => events.length === 1_300);
    expect(events.map((item) => item.callId)).toEqual(all.map((_, index) => `call ${index}`));
    expect(gaps).toEqual([]);
    expect(await books.redis.exists(inbox)).toBe(0);
  });

  test('events of all its places arrive, and those of others do not', async () => {
    const books = await openBooks();
    await books.redis.rpush(books.ledger.keys(PLACE).inbox('producer-2'), event(7));
    const inboxes = [new PartitionKeys(books.world.prefix, OTHER), books.ledger.keys(PLACE)].map((keys) =>
      keys.inbox('producer-1'),
    );
    for (const [index, inbox] of inboxes.entries()) await books.redis.rpush(inbox, event(index));
    const { events } = read(books);
    await eventually(() => events.length === 2);
    expect(await books.redis.publish(channelOf(books), `[${event(2)},${event(3)}]`)).toBe(1);
    await eventually(() => events.length === 4);
    expect(events.map((item) => item.callId).sort()).toEqual([0, 1, 2, 3].map((index) => `call ${index}`));
  });

  test('an event that cannot be read is a gap, and those behind it arrive', async () => {
    const books = await openBooks();
    await books.redis.rpush(books.ledger.keys(PLACE).inbox('producer-1'), event(1), '{"type":', event(2));
    const { events, gaps } = read(books);
    await eventually(() => events.length === 2);
    expect(events.map(({ callId }) => callId)).toEqual(['call 1', 'call 2']);
    expect(gaps).toEqual([1]);
  });

  test('a cut connection is a gap that the owner hears of, and the reader goes on', async () => {
    const books = await openBooks();
    const { events, gaps } = read(books);
    const ownName = `${books.world.prefix}:inbox:producer-1`;
    const clientId = await eventually(async () => {
      const list = String(await books.redis.client('LIST'));
      return list
        .split('\n')
        .find((line) => line.includes(`name=${ownName}`) && line.includes('sub=1'))
        ?.match(/^id=(\d+)/)?.[1];
    });
    await books.redis.client('KILL', 'ID', clientId);
    await eventually(() => gaps.length > 0);
    await books.redis.publish(channelOf(books), `[${event(1)}]`);
    await eventually(() => events.length === 1);
  });

  test('an end is sent to a producer that listens, and kept for one that does not until it is back', async () => {
    const books = await openBooks();
    const inbox = books.ledger.keys(PLACE).inbox('producer-1');
    const end = async (key: string) => {
      const claim = claimOf(key);
      await books.ledger.claim(claim);
      await settle(books, claim, (await started(books, claim)).fence);
      return claim.callId;
    };
    const first = await end('first');
    expect(await books.redis.llen(inbox)).toBe(1);
    const { events } = read(books);
    await eventually(() => events.length === 1);
    const second = await end('second');
    await eventually(() => events.length === 2);
    expect(events.map(({ callId }) => callId)).toEqual([first, second]);
    expect(await books.redis.exists(inbox)).toBe(0);
  });

  test('closing leaves no connection', async () => {
    const books = await openBooks();
    const { reader } = read(books);
    await eventually(async () => (await books.world.connections()).some((name) => name.includes(':inbox:')));
    reader.close();
    await eventually(async () => !(await books.world.connections()).some((name) => name.includes(':inbox:')));
  });

  test('an inbox that is not read keeps the newest 20,000 events, and expires after 10 minutes', async () => {
    const books = await openBooks();
    const inbox = books.ledger.keys(PLACE).inbox('producer-1');
    const claim = claimOf('first');
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence);
    const leftMs = await books.redis.pttl(inbox);
    expect(leftMs).toBeLessThanOrEqual(600_000);
    expect(leftMs).toBeGreaterThan(500_000);
    await books.redis.rpush(inbox, ...Array.from({ length: 20_000 }, (_, index) => event(index)));
    const last = claimOf('last');
    await books.ledger.claim(last);
    await settle(books, last, (await started(books, last)).fence);
    expect(await books.redis.llen(inbox)).toBe(20_000);
    expect(JSON.parse((await books.redis.lindex(inbox, -1)) ?? '')).toMatchObject({ callId: last.callId });
    expect(await books.redis.pttl(inbox)).toBeGreaterThan(0);
  });
});
