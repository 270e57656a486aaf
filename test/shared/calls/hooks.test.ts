import { describe, expect, test } from 'vitest';
import { defineHook, type Hook, isHook } from '../../../src/shared/calls/define-hook.ts';
import { HOOK_KINDS, type HookKind } from '../../../src/shared/calls/hook-events.ts';
import { Hooks } from '../../../src/shared/calls/hooks.ts';
import { failureOf } from '../../../src/shared/errors/failure.ts';

const tool = {
  name: 'pay',
  namespace: 'bank',
  version: '1.0.0',
  tier: 'system',
  effects: 'once',
  annotations: {},
} as const;

function event() {
  return { tool, params: { amount: 1 }, requestId: 'r', callId: 'c', sessionKey: 's', actorId: 'a', values: new Map() };
}
const attempt = () => ({ ...event(), attempt: 1, fence: 1 });

/** Timers that fire at once when the test asks for it, else never. */
function chain(hooks: readonly Hook[], due = false) {
  const failures: [string, HookKind, string][] = [];
  const schedule = (run: () => void) => {
    if (due) queueMicrotask(run);
    return () => {};
  };
  return { hooks: new Hooks(hooks, { schedule, onFailure: (...failure) => void failures.push(failure) }), failures };
}

describe('D5: hooks are a chain', () => {
  test('they run in the given order, and each sees the changes of those before it', async () => {
    const seen: unknown[] = [];
    const add = (name: string): Hook => ({
      name,
      beforeCall: ({ params, idempotencyKey, values }) => {
        seen.push([name, params['amount'], idempotencyKey, values.get('by')]);
        values.set('by', name);
        return {
          params: { amount: Number(params['amount']) + 1 },
          idempotencyKey: `key of ${name}`,
          hints: { timeoutMs: 5 },
          carry: { [name]: 'was here' },
        };
      },
    });
    expect(await chain([add('one'), add('two')]).hooks.beforeCall(event())).toEqual({
      params: { amount: 3 },
      idempotencyKey: 'key of one',
      keyFrom: 'one',
      hints: { timeoutMs: 5 },
      carry: { one: 'was here', two: 'was here' },
    });
    expect(seen).toEqual([
      ['one', 1, undefined, undefined],
      ['two', 2, 'key of one', 'one'],
    ]);
  });

  test('an undefined hint takes nothing away', async () => {
    const nothing = { timeoutMs: undefined, expectedRetrySafe: undefined, by: undefined };
    const { hooks } = chain([
      { name: 'one', beforeCall: () => ({ hints: { timeoutMs: 5 }, carry: { by: 'one' } }) },
      { name: 'two', beforeCall: () => ({ hints: nothing, carry: nothing }) as never },
    ]);
    expect(await hooks.beforeCall(event())).toStrictEqual({ hints: { timeoutMs: 5 }, carry: { by: 'one' } });
  });

  test('R8: a key that a hook supplies never replaces the caller’s', async () => {
    const { hooks } = chain([{ name: 'keys', beforeCall: () => ({ idempotencyKey: 'hook' }) }]);
    const made = await hooks.beforeCall({ ...event(), idempotencyKey: 'caller' });
    expect([made.idempotencyKey, made.keyFrom]).toEqual([undefined, undefined]);
  });

  test.each(['not on Sundays', 'not on Sundays.'])(
    'a denial (%s) names the hook, and no later hook runs',
    async (deny) => {
      const later: string[] = [];
      const { hooks } = chain([
        { name: 'guard', beforeAttempt: () => ({ deny }) },
        { name: 'later', beforeAttempt: () => void later.push('ran') },
      ]);
      await expect(hooks.beforeAttempt(attempt())).rejects.toMatchObject({
        code: 'PERMISSION_DENIED',
        message: 'The hook guard denied the call: not on Sundays.',
      });
      expect(later).toEqual([]);
    },
  );

  test('only the tools that a hook names concern it', async () => {
    const ran: string[] = [];
    const named = (name: string, tools: readonly string[]): Hook => ({
      name,
      tools,
      onShortCircuit: () => void ran.push(name),
    });
    const { hooks } = chain([named('plain', ['pay']), named('qualified', ['bank.pay']), named('other', ['tools.pay'])]);
    await hooks.onShortCircuit({ ...event(), reason: 'refused' });
    expect(ran).toEqual(['plain', 'qualified']);
  });

  test('hooks replace results: the attempt’s for all callers, the call’s for one', async () => {
    const { hooks } = chain([
      {
        name: 'redact',
        afterAttempt: ({ ending }) => (ending.kind === 'value' ? { result: { output: 'hidden' } } : undefined),
        afterCall: () => ({ content: 'less', metadata: { by: 'redact' } }),
      },
    ]);
    const value = { kind: 'value', result: { output: 'secret' } } as const;
    expect(await hooks.afterAttempt({ ...attempt(), ending: value })).toEqual({
      kind: 'value',
      result: { output: 'hidden' },
    });
    const failure = { kind: 'failure', code: 'TIMEOUT', message: 'x' } as const;
    expect(await hooks.afterAttempt({ ...attempt(), ending: failure })).toEqual(failure);
    const base = { requestId: 'r', fromCache: false, toolName: 'pay', durationMs: 1, attempts: 1 };
    const success = { ...base, status: 'success', output: { content: 1, metadata: { display: 'one' } } } as const;
    expect((await hooks.afterCall({ ...event(), result: success })).output).toEqual({
      content: 'less',
      metadata: { display: 'one', by: 'redact' },
    });
    const error = { code: 'X', message: 'x', retriable: false, terminal: true };
    const failed = { ...base, status: 'error', error } as const;
    expect(await hooks.afterCall({ ...event(), result: failed })).toBe(failed);
  });

  test('a retry can be refused, an approval denied and never given', async () => {
    const { hooks } = chain([
      {
        name: 'h',
        onRetry: ({ attempt: number }) => (number > 1 ? { deny: 'enough' } : undefined),
        onApproval: () => ({ deny: 'no' }),
      },
    ]);
    const retry = { ...attempt(), failure: failureOf('HTTP_503'), delayMs: 1 };
    expect([await hooks.onRetry(retry), await hooks.onRetry({ ...retry, attempt: 2 })]).toEqual([true, false]);
    const approval = { ...event(), approvalId: 'x', state: 'requested' } as const;
    await expect(hooks.onApproval(approval)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });
});

describe('a hook that answers false, as a guard without types may', () => {
  const no = (kind: HookKind) => chain([{ name: 'guard', [kind]: () => false } as unknown as Hook]).hooks;
  const denied = { code: 'PERMISSION_DENIED', message: 'The hook guard denied the call: it answered false.' };

  test('denies the call where it guards, and another attempt where one would follow', async () => {
    await expect(no('beforeCall').beforeCall(event())).rejects.toMatchObject(denied);
    await expect(no('beforeAttempt').beforeAttempt(attempt())).rejects.toMatchObject(denied);
    const approval = { ...event(), approvalId: 'x', state: 'requested' } as const;
    await expect(no('onApproval').onApproval(approval)).rejects.toMatchObject(denied);
    const retry = { ...attempt(), failure: failureOf('HTTP_503'), delayMs: 1 };
    expect(await no('onRetry').onRetry(retry)).toBe(false);
  });

  test('changes nothing where it only observes', async () => {
    const ending = { kind: 'value', result: { output: 1 } } as const;
    expect(await no('afterAttempt').afterAttempt({ ...attempt(), ending })).toEqual(ending);
    await no('onShortCircuit').onShortCircuit({ ...event(), reason: 'refused' });
  });

  test.each([
    ['{ denied }', { denied: 'too much' }],
    ['a text', 'too much'],
  ])('%s is no valid answer: a guard then stops the call, and an observer is reported', async (what, answer) => {
    const with_ = (kind: HookKind) => chain([{ name: 'own', [kind]: () => answer } as unknown as Hook]);
    const fault = `it answered ${what}; an answer is { deny?, params? }`;
    const guard = with_('beforeAttempt');
    await expect(guard.hooks.beforeAttempt(attempt())).rejects.toMatchObject({
      code: 'HOOK_FAILED',
      message: `The hook own failed in beforeAttempt: ${fault}.`,
    });
    expect(guard.failures).toEqual([['own', 'beforeAttempt', fault]]);
    const watcher = with_('afterAttempt');
    const ending = { kind: 'value', result: { output: 1 } } as const;
    expect(await watcher.hooks.afterAttempt({ ...attempt(), ending })).toEqual(ending);
    expect(watcher.failures).toEqual([['own', 'afterAttempt', `it answered ${what}; an answer is { result? }`]]);
  });

  test('an event with other parameters is an answer, and the value of a last expression is none', async () => {
    const all = (answer: unknown) => chain([{ name: 'own', beforeCall: () => answer as never }]).hooks;
    expect(await all({ ...event(), params: { amount: 2 } }).beforeCall(event())).toMatchObject({
      params: { amount: 2 },
    });
    for (const answer of [1, [], new Map([[1, 2]]), {}])
      expect(await all(answer).beforeCall(event())).not.toHaveProperty('params');
  });

  test('true, null and nothing let it pass', async () => {
    for (const answer of [true, null, undefined]) {
      const { hooks } = chain([{ name: 'guard', beforeAttempt: () => answer } as unknown as Hook]);
      expect(await hooks.beforeAttempt(attempt())).toEqual({ amount: 1 });
    }
  });
});

describe('R32: a hook that fails', () => {
  const failing: Record<HookKind, (hooks: Hooks) => Promise<unknown>> = {
    beforeCall: (hooks) => hooks.beforeCall(event()),
    beforeAttempt: (hooks) => hooks.beforeAttempt(attempt()),
    afterAttempt: (hooks) => hooks.afterAttempt({ ...attempt(), ending: { kind: 'value', result: { output: 1 } } }),
    onRetry: (hooks) => hooks.onRetry({ ...attempt(), failure: failureOf('HTTP_503'), delayMs: 1 }),
    onShortCircuit: (hooks) => hooks.onShortCircuit({ ...event(), reason: 'replayed' }),
    onApproval: (hooks) => hooks.onApproval({ ...event(), approvalId: 'x', state: 'requested' }),
    afterCall: (hooks) =>
      hooks.afterCall({
        ...event(),
        result: {
          requestId: 'r',
          status: 'success',
          fromCache: false,
          toolName: 'pay',
          durationMs: 1,
          attempts: 1,
          output: { content: 1 },
        },
      }),
  };
  const closedByDefault = ['beforeCall', 'beforeAttempt', 'onApproval'];

  test.each(HOOK_KINDS)('%s: fails closed where it guards, open where it observes, or as it declares', async (kind) => {
    const broken = {
      name: 'broken',
      [kind]: () => {
        throw new Error('out of paper');
      },
    } as Hook;
    const refused = { code: 'HOOK_FAILED', message: `The hook broken failed in ${kind}: out of paper.` };
    const byDefault = chain([broken]);
    const run = failing[kind](byDefault.hooks);
    if (closedByDefault.includes(kind)) await expect(run).rejects.toMatchObject(refused);
    else await run;
    expect(byDefault.failures).toEqual([['broken', kind, 'out of paper']]);
    await failing[kind](chain([{ ...broken, onFailure: 'open' }]).hooks);
    await expect(failing[kind](chain([{ ...broken, onFailure: 'closed' }]).hooks)).rejects.toMatchObject(refused);
  });

  test('a hook has its own time limit, which aborts its signal', async () => {
    let signal: AbortSignal | undefined;
    const slow: Hook = {
      name: 'slow',
      timeoutMs: 10,
      beforeCall: (about) => {
        signal = about.signal;
        return new Promise(() => {});
      },
    };
    const late = 'The hook slow failed in beforeCall: it did not finish within 10 ms.';
    await expect(chain([slow], true).hooks.beforeCall(event())).rejects.toThrow(late);
    expect(signal?.aborted).toBe(true);
  });
});

describe('defineHook', () => {
  test('marks a hook, and refuses other values', () => {
    const hook = defineHook({ name: 'h', beforeCall: () => {} });
    expect([isHook(hook), isHook({ name: 'h', beforeCall: () => {} }), isHook(null)]).toEqual([true, false, false]);
    expect(() => defineHook({ name: '', beforeCall: () => {} })).toThrow('name must be');
    expect(() => defineHook({ name: 'h' })).toThrow('needs at least one of beforeCall');
    expect(() => defineHook({ name: 'h', timeoutMs: 0, beforeCall: () => {} })).toThrow('timeoutMs must be');
  });
});
