import { describe, expect, test } from 'vitest';
import { createLocalRunner, runWithToolIdempotency } from '../../src/local/run-tool.ts';
import { InMemoryDedupeStore } from '../../src/shared/store/dedupe/dedupe-memory.ts';
import { eventually, signal } from '../helpers/signal.ts';
import { open, scripted, unavailable } from './open-runner.ts';

describe('a runner', () => {
  test('keeps a session for each kind, and refuses a kind that the session is not', async () => {
    const { tool, contexts } = scripted('none');
    const runner = open([tool]);
    await runner.run(tool, {});
    await runner.run(tool, {}, { kind: 'worker' });
    await runner.run(tool, {}, { sessionKey: 'mine', actorId: 'ada' });
    await runner.run(tool, {}, { sessionKey: 'mine', actorId: 'bob' });
    expect(contexts.map(({ sessionKey, actorId }) => `${sessionKey} ${actorId}`)).toEqual([
      'local-main anonymous',
      'local-worker anonymous',
      'mine ada',
      'mine bob',
    ]);
    await expect(runner.run(tool, {}, { sessionKey: 'mine', kind: 'worker' })).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path: 'kind' }],
    });
  });

  test('refuses tools of the same name, and settings that are none', () => {
    const { tool } = scripted('none');
    expect(() => createLocalRunner({ tools: [tool, tool] })).toThrow('Two tools are named tools.work_none');
    expect(() => createLocalRunner({ tools: [], settings: { drainMs: -1 } })).toThrow('drainMs');
  });

  test('that closes waits for what runs, and takes nothing new', async () => {
    const begun = signal();
    const gate = signal();
    const { tool } = scripted('once', () => {
      begun.fire();
      return gate.promise;
    });
    const runner = createLocalRunner({ tools: [tool] });
    const running = runner.run(tool, {});
    await begun.promise;
    const closed = runner.close();
    await expect(runner.run(tool, {}, { sessionKey: 'late' })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    gate.fire();
    expect(await running).toMatchObject({ status: 'success' });
    await closed;
  });

  test('that closes without patience leaves no caller waiting, and no call in doubt that was not', async () => {
    const { tool: hanging, contexts } = scripted('once', (ctx) => {
      return new Promise((_resolve, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)));
    });
    const { tool: failing, contexts: failures } = scripted('idempotent', () => {
      throw unavailable();
    });
    const store = new InMemoryDedupeStore();
    const runner = createLocalRunner({ tools: [hanging, failing], store, random: () => 0.99 });
    const running = runner.run(hanging, {}, { sessionKey: 's', idempotencyKey: 'running' });
    const waiting = runner.run(failing, {}, { sessionKey: 's', idempotencyKey: 'waiting' });
    await eventually(async () => {
      const failed = await store.get(failures[0]?.callId ?? 'none');
      return contexts.length === 1 && failed?.execution?.attempts.length === 1;
    });
    await runner.close(0);
    expect(await running).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });
    expect(await waiting).toMatchObject({ status: 'retriable_error', error: { code: 'DRAINED', retriable: true } });
    // Whoever shares the store goes on where this one stopped.
    const next = open([hanging, failing], { store, sleep: async () => {} });
    expect(await next.run(failing, {}, { sessionKey: 's', idempotencyKey: 'waiting' })).toMatchObject({
      status: 'retry_exhausted',
      attempts: 4,
    });
  });
});

describe('runWithToolIdempotency (R38)', () => {
  const key = { tool: 'send_letter', idempotencyKey: 'letter-1', sessionKey: 's', actorId: 'ada' };

  test('executes once for a key, at the same time and later, and replays failures', async () => {
    const store = new InMemoryDedupeStore();
    let sent = 0;
    const send = async () => ({ number: ++sent });
    const results = await Promise.all(Array.from({ length: 25 }, () => runWithToolIdempotency(store, key, send)));
    for (const result of results)
      expect(result).toMatchObject({ status: 'success', output: { content: { number: 1 } } });
    expect(await runWithToolIdempotency(store, key, send)).toMatchObject({ cache: { matchedOn: 'completed' } });
    expect(await runWithToolIdempotency(store, { ...key, params: { to: 'Bob' } }, send)).toMatchObject({
      error: { code: 'IDEMPOTENCY_CONFLICT' },
    });
    expect(await runWithToolIdempotency(store, { ...key, sessionKey: 'other' }, send)).toMatchObject({
      output: { content: { number: 2 } },
    });
    expect(sent).toBe(2);

    let failed = 0;
    const failing = { ...key, idempotencyKey: 'letter-2' };
    const fail = () => {
      failed += 1;
      throw new Error('no stamps');
    };
    for (let index = 0; index < 2; index += 1)
      expect(await runWithToolIdempotency(store, failing, fail)).toMatchObject({
        status: 'error',
        error: { code: 'TOOL_FAILED', message: 'no stamps' },
      });
    expect(failed).toBe(1);
  });

  test('a function that takes longer than it may is aborted', async () => {
    const aborted = signal();
    const wait = (limit: AbortSignal) =>
      new Promise<never>((_resolve, reject) => {
        limit.addEventListener('abort', () => {
          aborted.fire();
          reject(limit.reason as Error);
        });
      });
    const result = await runWithToolIdempotency(new InMemoryDedupeStore(), { ...key, timeoutMs: 30 }, wait);
    expect(result).toMatchObject({ status: 'timeout', error: { code: 'TIMEOUT' } });
    await aborted.promise;
  });
});

test('the next attempt of a local call gets the last checkpoint, and the next call none', async () => {
  const seen: unknown[] = [];
  const { tool } = scripted('idempotent', async (ctx, run) => {
    seen.push(ctx.lastCheckpoint);
    const value = { page: run };
    await ctx.checkpoint(value);
    value.page = 0;
    if (run < 3) throw unavailable();
  });
  const runner = open([tool], { sleep: async () => {} });
  expect((await runner.run(tool, {}, { idempotencyKey: 'one' })).status).toBe('success');
  expect((await runner.run(tool, {}, { idempotencyKey: 'two' })).status).toBe('success');
  expect(seen).toEqual([undefined, { page: 1 }, { page: 2 }, undefined]);
});

test('a checkpoint that is not JSON fails the call with its path', async () => {
  const { tool } = scripted('idempotent', (ctx) => ctx.checkpoint({ at: [Number.NaN] }));
  const { error } = await open([tool]).run(tool, {});
  expect(error).toMatchObject({
    code: 'CHECKPOINT_INVALID',
    message: 'The checkpoint of work_idempotent: value.at[0] must be JSON-serializable; it is NaN.',
  });
});
