/** What only types refuse: a filter, an option or a word that JavaScript would take for none at all. */
import { expect, test } from 'vitest';
import { startFleet } from '../../helpers/fleet.ts';
import { echo, httpError, scripted } from '../../helpers/tools.ts';

test('a misspelled filter or option is refused by name, and nothing is done', async () => {
  const broken = scripted('pay', () => {
    throw httpError(400);
  });
  const { pawl, session } = await startFleet({ tools: [echo, broken.tool] });
  await session.call('pay', {}, { idempotencyKey: 'a', retryBudget: { maxAttempts: 1 } });
  const wrong: Record<string, [() => Promise<unknown>, string]> = {
    list: [
      () => pawl.calls.list({ sessionKy: 'a' } as never),
      'options: has no member "sessionKy" (did you mean sessionKey?)',
    ],
    audit: [() => pawl.audit({ session: 'a' } as never), 'query: has no member "session" (did you mean sessionKey?)'],
    state: [() => pawl.calls.list({ state: 'don' as never }), 'The state must be one of inflight, done,'],
    flush: [() => pawl.calls.flush({ session: 'a' } as never), 'did you mean sessionKey?'],
    redrive: [() => pawl.deadLetters.redrive({ filter: { since: 'now' } as never }), 'did you mean sinceMs?'],
    both: [() => pawl.deadLetters.redrive({ filter: {}, ids: ['a'] } as never), 'must not stand beside ids'],
    ids: [() => pawl.deadLetters.discard({ ids: 'a' } as never), 'ids: must be a list of call IDs; got "a"'],
    id: [() => pawl.calls.resolveMany({ as: 'failed', reason: 'x', ids: ['a', 5] } as never), 'ids.1: must be the ID'],
    time: [
      () => pawl.deadLetters.list({ sinceMs: Number.NaN }),
      'filter.sinceMs: must be milliseconds since the epoch',
    ],
    text: [() => pawl.deadLetters.list({ tool: 5 as never }), 'filter.tool: must be a text; got 5'],
    rate: [
      () => pawl.deadLetters.redrive({ filter: {}, perSecond: 0 }),
      'perSecond: must be a whole number from 1 to 1000',
    ],
    none: [() => pawl.deadLetters.redrive({} as never), 'filter: must be an object; got undefined'],
    discard: [() => pawl.deadLetters.discard({ filter: { tol: 'pay' } as never }), 'did you mean tool?'],
    resolve: [
      () => pawl.calls.resolveMany({ as: 'failed', reason: 'x', filter: { tol: 'pay' } as never }),
      'did you mean tool?',
    ],
    batch: [
      () => session.batch([{ tool: echo, params: { text: 'a' } }], { concurency: 1 } as never),
      'did you mean concurrency?',
    ],
    signal: [
      () => session.batch([{ tool: echo, params: { text: 'a' } }], { signal: 'no' } as never),
      'options.signal: must be an AbortSignal',
    ],
    times: [() => pawl.deadLetters.list({ sinceMs: 2, untilMs: 1 }), 'filter.untilMs: must not be before sinceMs'],
    dry: [() => pawl.deadLetters.redrive({ filter: {}, dryrun: true } as never), 'did you mean dryRun?'],
    dryWord: [
      () => pawl.deadLetters.redrive({ filter: {}, dryRun: 'yes' as never }),
      'dryRun: must be true or false; got "yes"',
    ],
    dryNumber: [
      () => pawl.calls.resolveMany({ filter: {}, as: 'failed', reason: 'x', dryRun: 1 as never }),
      'dryRun: must be true or false; got 1',
    ],
    noReason: [() => pawl.deadLetters.discard({ filter: {}, reason: '' }), 'reason: must be a text of 1 to 1000'],
    wait: [
      () => pawl.deadLetters.redrive({ filter: {}, waitMs: 'x' as never }),
      'waitMs: must be milliseconds; got "x"',
    ],
    letters: [() => pawl.deadLetters.list(null as never), 'query: must be an object; got null'],
    limit: [() => pawl.deadLetters.list({ limit: Number.NaN }), 'limit: must be a whole number from 0 on'],
    redrives: [() => pawl.deadLetters.redrives({ limit: -1 }), 'limit: must be a whole number from 0 on; got -1'],
    plans: [() => pawl.plans.list({ limit: 'x' as never }), 'limit: must be a whole number from 0 on; got "x"'],
    callbacks: [() => pawl.callbacks.list({ stat: 'failing' } as never), 'did you mean state?'],
    callbackState: [() => pawl.callbacks.list({ state: 'x' as never }), 'state: must be one of pending, failing'],
    batchOptions: [() => session.batch([], null as never), 'options: must be an object; got null'],
    planOptions: [() => session.plan({ nodes: {} }, null as never), 'options: must be an object; got null'],
    discarded: [
      () => pawl.deadLetters.discard({ filter: {}, perSecond: 5 } as never),
      'selection: has no member "perSecond"',
    ],
    paused: [() => pawl.schedules.pause('a', { reson: 'x' } as never), 'did you mean reason?'],
    reason: [() => pawl.schedules.run('a', { reason: 5 } as never), 'options.reason: must be a text of 1 to 1000'],
    calls: [() => session.batch({} as never), 'must be a list of { tool, params }; got {}'],
  };
  for (const [name, [ask, text]] of Object.entries(wrong)) {
    const error = await ask().catch((thrown: unknown) => thrown);
    expect(error, name).toMatchObject({ code: 'CONTRACT_INVALID', message: expect.stringContaining(text) });
  }
  const { deadLetters } = await pawl.deadLetters.list({ tool: 'pay' });
  expect([deadLetters.length, broken.contexts.length]).toEqual([1, 1]);
});

test('a decision of another word is refused, and the approval waits on', async () => {
  const elevated = scripted('launch', () => ({ output: 1 }), { tier: 'elevated', effects: 'once' });
  const { pawl } = await startFleet({ tools: [elevated.tool] });
  const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  await session.submit('launch', {}, { idempotencyKey: 'a' });
  const [pending] = await pawl.approvals.list({ state: 'pending' });
  const id = pending?.record.request.id ?? '';
  const decide = pawl.approvals.decide(id, { decision: 'approved', by: 'grace' } as never);
  await expect(decide).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'decision' }, { path: 'digest' }],
  });
  expect(await pawl.approvals.list({ state: 'pending' })).toHaveLength(1);
});
