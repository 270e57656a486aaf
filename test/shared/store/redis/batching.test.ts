import { expect, test } from 'vitest';
import { Batches } from '../../../../src/shared/store/redis/batching.ts';
import { eventually } from '../../../helpers/signal.ts';

/** Batches whose answers come when they are asked for: the text of each item. */
function openBatches() {
  const sent: { readonly items: readonly number[]; answer: (error?: Error) => void }[] = [];
  const batches = new Batches<number, string>(32, async (items) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    sent.push({ items, answer: (error) => (error === undefined ? resolve() : reject(error)) });
    await promise;
    return items.map((item) => (item < 0 ? new Error(`no ${item}`) : String(item)));
  });
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  return { batches, sent, turn };
}

test('what is asked for in one turn goes together, and each gets its own answer', async () => {
  const { batches, sent, turn } = openBatches();
  const answers = Promise.allSettled([batches.add(1), batches.add(-2), Promise.resolve().then(() => batches.add(3))]);
  await turn();
  expect(sent.map(({ items }) => items)).toEqual([[1, -2, 3]]);
  sent[0]?.answer();
  expect(await answers).toMatchObject([{ value: '1' }, { reason: { message: 'no -2' } }, { value: '3' }]);
});

test('one goes at once, and others gather while it is under way', async () => {
  const { batches, sent, turn } = openBatches();
  const all = [batches.add(1)];
  await turn();
  all.push(batches.add(2), batches.add(3));
  await turn();
  all.push(batches.add(4));
  await turn();
  expect(sent.map(({ items }) => items)).toEqual([[1]]);
  sent[0]?.answer();
  await turn();
  expect(sent.map(({ items }) => items)).toEqual([[1], [2, 3, 4]]);
  sent[1]?.answer();
  expect(await Promise.all(all)).toEqual(['1', '2', '3', '4']);
});

test('so many go together at most, and as many wait no longer for the others', async () => {
  const { batches, sent, turn } = openBatches();
  const all = Array.from({ length: 80 }, (_, item) => batches.add(item));
  await turn();
  expect(sent.map(({ items }) => items.length)).toEqual([32, 32]);
  sent[0]?.answer();
  await turn();
  expect(sent).toHaveLength(2);
  sent[1]?.answer();
  await turn();
  expect(sent[2]?.items).toHaveLength(16);
  sent[2]?.answer();
  expect(await Promise.all(all)).toHaveLength(80);
});

test('a failure rejects all requests of its batch, and the next ones go on', async () => {
  const { batches, sent, turn } = openBatches();
  const failed = Promise.allSettled([batches.add(1), batches.add(2)]);
  await turn();
  sent[0]?.answer(new Error('away'));
  expect((await failed).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const next = batches.add(3);
  await turn();
  sent[1]?.answer();
  expect(await next).toBe('3');
});

test('requests behind a batch that takes long do not wait for its end', async () => {
  const { batches, sent, turn } = openBatches();
  const all = [batches.add(1)];
  await turn();
  all.push(batches.add(2), batches.add(3));
  await eventually(() => sent.length === 2);
  expect(sent.map(({ items }) => items)).toEqual([[1], [2, 3]]);
  for (const { answer } of sent) answer();
  expect(await Promise.all(all)).toEqual(['1', '2', '3']);
});
