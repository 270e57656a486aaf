/** What an agent is told reaches whoever takes it, also when Redis' answer gets lost. */
import { expect, test, vi } from 'vitest';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { SubAgentRecords } from '../../../../src/shared/store/sessions/sub-agents.ts';
import { openBooks } from '../calls.ts';

async function openMailbox() {
  const { redis, world } = await openBooks();
  const agents = new SubAgentRecords(redis, world.prefix, new Signatures());
  await agents.spawn('one', 'parent', { type: 'spawned', message: 'look' }, 16);
  await agents.tell('one', 'parent', 'm', { type: 'input', message: 'and there' });
  const evaluate = redis.eval.bind(redis) as (...args: unknown[]) => Promise<unknown>;
  /** What becomes of the next script's answer. */
  const answerOnce = (answer: (run: () => Promise<unknown>) => Promise<unknown>) =>
    vi.spyOn(redis, 'eval').mockImplementationOnce(((...args: unknown[]) => answer(() => evaluate(...args))) as never);
  return { agents, answerOnce, take: async () => (await agents.take('one', 'parent'))?.message };
}

test('a message whose answer was lost comes with the command that is sent again', async () => {
  const { answerOnce, take } = await openMailbox();
  answerOnce(async (run) => {
    await run();
    return run();
  });
  expect([await take(), await take(), await take()]).toEqual(['look', 'and there', undefined]);
});

test('and with the next one, when the caller got the error that Redis is unavailable', async () => {
  const { answerOnce, take } = await openMailbox();
  answerOnce(async (run) => {
    await run();
    throw new Error('Command timed out');
  });
  await expect(take()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  expect(await Promise.all([take(), take(), take()])).toEqual(['look', 'and there', undefined]);
});

test('a closed agent is listed until its closing has been heard of', async () => {
  const { agents, take } = await openMailbox();
  await agents.tell('one', 'parent', 'end', { type: 'closed' });
  expect([await take(), await take()]).toEqual(['look', 'and there']);
  expect(await agents.take('one', 'parent')).toMatchObject({ type: 'closed' });
  expect(await agents.list('parent')).toEqual(['one']);
  expect(await agents.take('one', 'parent')).toBeUndefined();
  expect(await agents.list('parent')).toEqual([]);
});
