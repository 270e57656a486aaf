import { describe, expect, onTestFinished, test } from 'vitest';
import { CallSubscriptions } from '../../../src/producer/calls/call-events.ts';
import { type ProgressEvent, ResultWaiters } from '../../../src/producer/calls/result-waiters.ts';
import type { Outcome } from '../../../src/shared/calls/outcome.ts';
import type { CallLedger } from '../../../src/shared/store/ports.ts';
import { eventually, within } from '../../helpers/signal.ts';
import { claimOf, openBooks, PLACE, SUCCESS, settle, started } from '../../shared/store/calls.ts';

async function open() {
  const books = await openBooks();
  const results = new ResultWaiters(books.ledger, 'producer-1', () => {});
  onTestFinished(() => results.close());
  const settled = async (name: string, outcome: Outcome = SUCCESS) => {
    const claim = claimOf(name);
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, outcome);
    return claim.callId;
  };
  return { books, results, settled };
}

const end = (callId: string, outcome?: Outcome) =>
  ({ type: 'settled', callId, state: 'done', ...(outcome === undefined ? {} : { outcome }) }) as const;

describe('who waits for which call', () => {
  test('all who wait for a call get its outcome, and no others', async () => {
    const { results } = await open();
    const waiters = [results.wait('a'), results.wait('a'), results.wait('b')];
    results.deliver(end('a', SUCCESS));
    expect(await Promise.all([waiters[0]?.outcome, waiters[1]?.outcome])).toEqual([SUCCESS, SUCCESS]);
    expect(results.size).toBe(1);
  });

  test('what one of them makes of it is not what the others have', async () => {
    const { results } = await open();
    const waiting = [results.wait('a'), results.wait('a')];
    results.deliver(end('a', { ...SUCCESS, output: { content: { rows: [2, 1] } } }));
    const [first, second] = await Promise.all(waiting.map(({ outcome }) => outcome));
    (first as unknown as { output: { content: { rows: number[] } } }).output.content.rows.sort();
    expect(second).toMatchObject({ output: { content: { rows: [2, 1] } } });
  });

  test('an outcome that was too large for its event is fetched', async () => {
    const { results, settled } = await open();
    const callId = await settled('a');
    const { outcome } = results.wait(callId);
    results.deliver(end(callId));
    expect(await within(outcome, 30_000, 'the outcome')).toEqual(SUCCESS);
  });

  test.each([
    ['in one piece', 20_000],
    ['in parts', 200_000],
  ])('an outcome %s that is gone before it was fetched is waited for no longer', async (_, length) => {
    const { books, results, settled } = await open();
    const callId = await settled('a', { ...SUCCESS, output: { content: 'x'.repeat(length) } });
    const at = await books.redis.hget(books.ledger.keys(PLACE).record(callId), 'outcomeAt');
    await books.redis.del(at ?? '');
    const [told, looked] = [results.wait(callId), results.wait(callId)];
    results.deliver(end(callId));
    await expect(within(told.outcome, 10_000, 'word that it is gone')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
    await expect(looked.outcome).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
    const after = results.wait(callId);
    void results.checkAll();
    await expect(within(after.outcome, 10_000, 'the same')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
    const follows = new CallSubscriptions({ ledger: books.ledger, results, inboxId: 'producer-1', onError: () => {} });
    onTestFinished(() => follows.close());
    const ended = new Promise<void>((onEnd) => follows.follow(callId, { onEvents: () => {}, onEnd }));
    await within(ended, 10_000, 'the end of the following');
  });

  test('outcomes that are reported together and fetched arrive together', async () => {
    const { promise: late, resolve } = Promise.withResolvers<Outcome>();
    const ledger = { outcome: async (callId: string) => (callId === 'late' ? late : SUCCESS) } as CallLedger;
    const results = new ResultWaiters(ledger, 'producer-1', () => {});
    onTestFinished(() => results.close());
    const arrived: string[] = [];
    const both = ['early', 'late'].map((callId) => results.wait(callId).outcome.then(() => arrived.push(callId)));
    for (const callId of ['early', 'late']) results.deliver(end(callId));
    await new Promise(setImmediate);
    expect(arrived).toEqual([]);
    resolve(SUCCESS);
    await Promise.all(both);
    expect(arrived).toEqual(['early', 'late']);
  });

  test('an end that came between a claim and its answer is not missed', async () => {
    const { results, settled } = await open();
    const callId = await settled('a');
    results.deliver(end(callId, SUCCESS));
    expect(await within(results.wait(callId, undefined, { sinceClaim: true }).outcome, 30_000, 'the outcome')).toEqual(
      SUCCESS,
    );
  });

  test('an end that went to the first caller before the answer to the second one is not missed by the second', async () => {
    const { results, settled } = await open();
    const callId = await settled('a');
    const first = results.wait(callId);
    results.deliver(end(callId, SUCCESS));
    expect(await first.outcome).toEqual(SUCCESS);
    const second = results.wait(callId, undefined, { sinceClaim: true });
    expect(await within(second.outcome, 10_000, 'the outcome')).toEqual(SUCCESS);
  });

  test('an end from before the claim is not taken for the next one', async () => {
    const { results, settled } = await open();
    const callId = await settled('a', { ...SUCCESS, output: { content: 'old' } });
    results.deliver(end(callId, SUCCESS));
    const { outcome } = results.wait(callId);
    const later = { ...SUCCESS, output: { content: 'new' } };
    results.deliver(end(callId, later));
    expect(await outcome).toEqual(later);
  });

  test('at least the last ten thousand ends are remembered, and not all of them for ever', async () => {
    const { results } = await open();
    for (let number = 0; number < 30_000; number += 1) results.markFinished(`call-${number}`);
    expect(results.hasFinished('call-29999')).toBe(true);
    expect(results.hasFinished('call-20000')).toBe(true);
    expect(results.hasFinished('call-0')).toBe(false);
    expect(results.hasFinished('call-30000')).toBe(false);
  });

  test('progress goes to those who asked for it', async () => {
    const { results } = await open();
    const heard: ProgressEvent[] = [];
    results.wait('a', (event) => heard.push(event));
    results.wait('a');
    const event = { type: 'progress', callId: 'a', progress: 1 } as const;
    results.deliver(event);
    results.deliver({ ...event, callId: 'b' });
    expect(heard).toEqual([event]);
  });

  test('who stops waiting is forgotten', async () => {
    const { results } = await open();
    const one = results.wait('a');
    const two = results.wait('a');
    one.stop();
    one.stop();
    expect(results.size).toBe(1);
    two.stop();
    expect(results.size).toBe(0);
  });

  test('after a gap the records answer, and those still in flight are asked to tell again', async () => {
    const { results, settled, books } = await open();
    const callId = await settled('a');
    const running = claimOf('b', { inboxId: '' });
    await books.ledger.claim(running);
    const { outcome } = results.wait(callId);
    results.wait(running.callId);
    void results.checkAll();
    expect(await within(outcome, 30_000, 'the outcome')).toEqual(SUCCESS);
    const record = books.ledger.keys({ tier: 'workspace', shard: 0 }).record(running.callId);
    await eventually(async () => (await books.redis.hget(record, 'inboxes')) === 'producer-1');
  });

  test('a call that Redis acknowledged and has no record of is given up at once; one on its way is waited for', async () => {
    const { results } = await open();
    const { callId } = claimOf('forgotten');
    const waiting = results.wait(callId);
    waiting.claimed();
    const onItsWay = results.wait(claimOf('on its way').callId);
    void results.checkAll();
    await expect(within(waiting.outcome, 5_000, 'the end of waiting')).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: `Redis has lost call ${callId}: ask again with the same key.`,
    });
    expect(results.size).toBe(1);
    onItsWay.stop();
  });

  test('with more calls waiting than are looked up at a time, each has its turn', async () => {
    const looked: string[] = [];
    const ledger = { read: async (callId: string) => void looked.push(callId) } as unknown as CallLedger;
    const results = new ResultWaiters(ledger, 'producer-1', () => {});
    onTestFinished(() => results.close());
    for (const callId of ['a', 'b', 'c']) results.wait(callId);
    results.check(0, 2);
    results.wait('d');
    results.check(0, 2);
    expect(looked).toEqual(['a', 'b', 'c', 'a']);
    results.check(0);
    expect(looked.slice(4).toSorted()).toEqual(['a', 'b', 'c', 'd']);
  });

  test('after a gap all are looked at, two thousand at a time, and once more where there was another gap meanwhile', async () => {
    const answers: (() => void)[] = [];
    const ledger = { read: () => new Promise<void>((answer) => answers.push(answer)) } as unknown as CallLedger;
    const results = new ResultWaiters(ledger, 'producer-1', () => {});
    onTestFinished(() => results.close());
    for (let number = 0; number < 4_500; number += 1) results.wait(`call-${number}`);
    const looked = results.checkAll();
    await results.checkAll();
    const chunks: number[] = [];
    while (answers.length > 0) {
      chunks.push(answers.length);
      for (const answer of answers.splice(0)) answer();
      await new Promise(setImmediate);
    }
    await looked;
    expect(chunks).toEqual([2_000, 2_000, 500, 2_000, 2_000, 500]);
  });

  test('calls that were asked for just now are left alone by the regular check', async () => {
    const { results, settled } = await open();
    results.wait(await settled('a'));
    results.check(15_000);
    expect(results.size).toBe(1);
  });
});

test('a client that is closed ends the waiting, also of a call that was on its way', async () => {
  const results = new ResultWaiters({} as CallLedger, 'inbox', () => {});
  const before = results.wait('r0.before');
  results.close();
  const after = results.wait('r0.after');
  await expect(before.outcome).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  await expect(after.outcome).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
});
