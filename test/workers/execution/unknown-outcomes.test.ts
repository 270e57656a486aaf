/** What callers are told of a call that may have had its effect, on real Redis and workers. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { FleetView } from '../../../src/producer/operations/fleet-metrics.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { PawlError, ToolError } from '../../../src/shared/errors/failure.ts';
import { EFFECTS, type Effects } from '../../../src/shared/retries/effects.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { signal } from '../../helpers/signal.ts';
import { gated, httpError, scripted } from '../../helpers/tools.ts';

const FIND_OUT = 'It may have had its effect: find out before you call it again.';
const refused = () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
/** The causes that `fetch` gives. */
const NOT_HTTP = Object.assign(new Error('Expected HTTP/'), { code: 'HPE_INVALID_CONSTANT' });
const BAD_GZIP = Object.assign(new Error('incorrect header check'), { code: 'Z_DATA_ERROR' });
const unknownToProbe = { probe: () => ({ state: 'not-done' as const }) };

describe('an error says whether the call may have had its effect', () => {
  test.each<[string, () => Error, string, string]>([
    ['503', () => httpError(503), 'retriable_error', 'HTTP_503'],
    ['a reset', () => Object.assign(new Error('reset'), { code: 'ECONNRESET' }), 'retriable_error', 'CONNECTION_RESET'],
    ['a status of a proxy that waited for the service', () => httpError(524), 'error', 'HTTP_524'],
    ['an answer that is not HTTP', () => new TypeError('fetch failed', { cause: NOT_HTTP }), 'error', 'RESULT_INVALID'],
    ['an answer that breaks off', () => new TypeError('terminated', { cause: BAD_GZIP }), 'error', 'RESULT_INVALID'],
    ['the tool’s own doubt', () => new ToolError('half', { code: 'OUTCOME_UNKNOWN' }), 'error', 'OUTCOME_UNKNOWN'],
    ['an answer of an MCP server that is none', () => new PawlError('MCP_PROTOCOL'), 'error', 'MCP_PROTOCOL'],
  ])(
    'a `once` call that ends with %s is not to be tried again, by a model or a bestEffort caller',
    async (_what, error, status, code) => {
      const { tool, contexts } = scripted('pay', () => Promise.reject(error()), { effects: 'once' });
      const { session } = await startFleet({ tools: [tool] });
      const call = () => session.call(tool, {}, { idempotencyKey: 'k', dedupeMode: 'bestEffort' });
      const message = expect.stringContaining(FIND_OUT);
      const told = { code, message, retriable: false, mayHaveHappened: true };
      expect(await call()).toMatchObject({ status, attempts: 1, error: told });
      expect(await call()).toMatchObject({ status, fromCache: true, error: told });
      expect(contexts).toHaveLength(1);
    },
  );

  test('so is one whose failure the tool, or the operator, does not want to retry', async () => {
    const change = { effects: 'once', retry: { terminalCodes: ['HTTP_503'] } } as const;
    const { tool } = scripted('pay', () => Promise.reject(httpError(503)), change);
    const { session } = await startFleet({ tools: [tool] });
    const error = { code: 'HTTP_503', retriable: false, mayHaveHappened: true };
    expect(await session.call(tool, {})).toMatchObject({ status: 'error', error });
  });

  test('so is one that ran out of time', async () => {
    const { tool } = gated('pay', { effects: 'once', timeoutMs: 20 });
    const { session } = await startFleet({ tools: [tool] });
    expect(await session.call(tool, {})).toMatchObject({
      status: 'timeout',
      error: {
        code: 'TIMEOUT',
        message: `The tool did not finish within 20 ms. ${FIND_OUT}`,
        retriable: false,
        terminal: false,
        mayHaveHappened: true,
      },
    });
  });

  test.each<[string, Effects, () => Error, object]>([
    ['a second run does no harm', 'idempotent', () => httpError(503), {}],
    ['the same key does no harm', 'keyed', () => httpError(503), {}],
    ['the tool only reads', 'none', () => httpError(503), {}],
    ['nothing happened', 'once', refused, {}],
    ['the caller vouches for it', 'once', () => httpError(503), { expectedRetrySafe: true }],
  ])('where %s, another try is worth it', async (_why, effects, error, options) => {
    const { tool } = scripted('ask', () => Promise.reject(error()), { effects, retry: { maxAttempts: 1 } });
    const { session } = await startFleet({ tools: [tool] });
    const result = await session.call(tool, {}, options);
    expect(result).toMatchObject({ status: 'retry_exhausted', error: { retriable: true } });
    expect(result.error).not.toHaveProperty('mayHaveHappened');
    expect(result.error?.message).not.toContain(FIND_OUT);
  });

  test('a `probe` tool is asked before another attempt, but not before another call', async () => {
    const change = { effects: 'probe' as const, ...unknownToProbe, retry: { maxAttempts: 1 } };
    const { tool } = scripted('pay', () => Promise.reject(httpError(503)), change);
    const { session } = await startFleet({ tools: [tool] });
    expect((await session.call(tool, {})).error).toMatchObject({ retriable: false, mayHaveHappened: true });
  });

  test('a cancelled call says whether it had begun', async () => {
    const gate = gated('pay', { effects: 'once' });
    const { session } = await startFleet({ tools: [gate.tool], concurrency: 1 });
    const running = pending(await session.submit(gate.tool, { a: 1 }));
    await gate.arrived();
    const waiting = pending(await session.submit(gate.tool, { a: 2 }));
    expect((await session.cancel(waiting.callId)).settlement).toBe('cancelled-before-start');
    expect((await session.cancel(running.callId)).settlement).toBe('unsettled');
    expect((await waiting.result).error).toEqual({
      code: 'CANCELLED',
      message: 'The call was cancelled.',
      retriable: false,
      terminal: true,
    });
    expect((await running.result).error).toEqual({
      code: 'CANCELLED',
      message: `The call was cancelled. ${FIND_OUT}`,
      retriable: false,
      terminal: true,
      mayHaveHappened: true,
    });
  });
});

describe('a failure proves that nothing happened of one step only', () => {
  async function startService(answer: number): Promise<{ readonly url: string; paid(): number }> {
    let paid = 0;
    const server = createServer((request, response) => {
      if (request.method === 'POST') paid += 1;
      response.writeHead(answer).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, paid: () => paid };
  }

  test.each([
    ['sent something before is not tried again', 'POST', 200, 1],
    ['read something before is', 'GET', 200, 4],
    ['was told to slow down before is', 'POST', 429, 4],
  ])('a `once` tool that %s', async (_what, method, status, attempts) => {
    const service = await startService(status);
    const { tool } = scripted(
      'pay',
      async (ctx) => {
        await ctx.fetch(service.url, { method });
        throw refused();
      },
      { effects: 'once' },
    );
    const { session } = await startFleet({ tools: [tool], settings: { allowedHosts: ['127.0.0.1'] } });
    const result = await session.call(tool, {});
    expect(result).toMatchObject({ attempts, error: { code: 'CONNECTION_REFUSED', retriable: attempts > 1 } });
    expect(service.paid()).toBe(method === 'POST' ? attempts : 0);
  });

  test('a request that is still on its way is a step, and the tool’s own word is about all of them', async () => {
    const service = await startService(200);
    const { tool } = scripted(
      'pay',
      async (ctx, { whole }) => {
        const sent = ctx.fetch(service.url, { method: 'POST' });
        if (whole !== true) throw refused();
        await sent;
        throw new ToolError('taken back', { code: 'TAKEN_BACK', retriable: true, nothingHappened: true });
      },
      { effects: 'once', retry: { maxAttempts: 2 } },
    );
    const { session } = await startFleet({ tools: [tool], settings: { allowedHosts: ['127.0.0.1'] } });
    expect(await session.call(tool, {})).toMatchObject({ status: 'retriable_error', attempts: 1 });
    expect(await session.call(tool, { whole: true })).toMatchObject({ status: 'retry_exhausted', attempts: 2 });
  });
});

describe('a hook that fails after an attempt, closed', () => {
  const audit: Hook = {
    name: 'audit',
    onFailure: 'closed',
    afterAttempt: () => {
      throw new Error('disk full');
    },
  };

  test.each<[Effects, boolean]>([
    ['once', true],
    ['idempotent', false],
  ])('leaves a call with effects %s in doubt: %s', async (effects, isTold) => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }), { effects });
    const settings = { ttl: { doneMs: 600_000, failedMs: 60_000 } };
    const { session, pawl } = await startFleet({ tools: [tool], hooks: [audit], settings });
    const { callId = '', error } = await session.call(tool, {}, { idempotencyKey: 'k' });
    expect(error).toMatchObject({ code: 'HOOK_FAILED', ...(isTold ? { mayHaveHappened: true } : {}) });
    const {
      expiresAtMs = 0,
      freeAtMs = expiresAtMs,
      updatedAtMs,
      attempts,
    } = (await pawl.read(callId)) ?? { updatedAtMs: 0 };
    expect(attempts).toMatchObject([{ inDoubt: true }]);
    // A reader adds what is left of the record's time to the clock of Redis, which may advance between the two.
    expect(Math.abs(expiresAtMs - updatedAtMs - 600_000)).toBeLessThan(1_000);
    expect(Math.abs(freeAtMs - updatedAtMs - (isTold ? 600_000 : 60_000))).toBeLessThan(1_000);
  });

  test('leaves one whose tool refused it as it was', async () => {
    const { tool } = scripted('pay', () => Promise.reject(httpError(400)), { effects: 'once' });
    const { session, pawl } = await startFleet({ tools: [tool], hooks: [audit] });
    const { callId = '', error } = await session.call(tool, {});
    expect(error).not.toHaveProperty('mayHaveHappened');
    expect((await pawl.read(callId))?.attempts[0]).not.toHaveProperty('inDoubt');
  });
});

describe('a call that may have had its effect is in doubt everywhere', () => {
  const probe = () => ({ state: 'unknown' as const });
  const withEffects = (effects: Effects) => ({ effects, ...(effects === 'probe' ? { probe } : {}) });

  /** What ends a call whose attempt has begun, by what a person would call it. Each answers the call's ID. */
  const endings: Readonly<Record<string, (fleet: Fleet, tool: ReturnType<typeof gated>) => Promise<string>>> = {
    async 'ran out of time'({ session }, { tool }) {
      // Long enough for the attempt to begin on a busy machine.
      return (await session.call(tool, {}, { timeoutMs: 1_500 })).callId ?? '';
    },
    async 'was cancelled while it ran'({ session }, { tool, arrived }) {
      const { callId, result } = pending(await session.submit(tool, {}));
      await arrived();
      await session.cancel(callId);
      await result;
      return callId;
    },
    async 'was cut off by its closing session'({ pawl }, { tool, arrived }) {
      const session = await pawl.openSession({ actorId: 'ada' });
      const { callId, result } = pending(await session.submit(tool, {}));
      await arrived();
      await session.close();
      await result;
      return callId;
    },
    async 'ran past its deadline'({ session, pawl }, { tool }) {
      const deadlineAtMs = (await pawl.backend.ledger.now()) + 1_500;
      return (await session.call(tool, {}, { deadlineAtMs })).callId ?? '';
    },
  };
  const inDoubt: Readonly<Record<Effects, boolean>> = {
    none: false,
    idempotent: false,
    keyed: false,
    probe: true,
    once: true,
  };
  const rows = Object.keys(endings).flatMap((ending) =>
    EFFECTS.map((effects) => {
      // Under its own key, a `keyed` tool would run again without harm; a cancelled call does not.
      const isOpen = inDoubt[effects] || (effects === 'keyed' && /cancelled|closing/.test(ending));
      return { ending, effects, isOpen, what: isOpen ? 'is in doubt' : 'is not in doubt' };
    }),
  );

  async function counted({ pawl }: Fleet) {
    const [calls, { text }] = await Promise.all([
      pawl.calls.list({ state: 'unresolved' }),
      new FleetView(pawl, { cacheMs: 0 }).text('fleet'),
    ]);
    const gauge = /in_doubt_calls\{tier="workspace"\} (\d+)/.exec(text)?.[1];
    return { listed: calls.map(({ callId }) => callId), counted: Number(gauge) };
  }

  test.each(rows)('a call with effects $effects that $ending $what', async ({ ending, effects, isOpen }) => {
    const gate = gated('pay', { ...withEffects(effects), retry: { maxAttempts: 1 } });
    const fleet = await startFleet({ tools: [gate.tool] });
    const callId = (await endings[ending]?.(fleet, gate)) ?? '';
    expect(await counted(fleet)).toEqual(isOpen ? { listed: [callId], counted: 1 } : { listed: [], counted: 0 });
    const record = await fleet.pawl.read(callId);
    expect(record?.outcome?.error?.mayHaveHappened).toBe(isOpen ? true : undefined);
    const resolved = fleet.pawl.resolve(callId, { as: 'succeeded', output: 'paid' });
    if (!isOpen) return void (await expect(resolved).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' }));
    expect(await resolved).toMatchObject({ state: 'done', outcome: { output: { content: 'paid' } } });
    expect(await counted(fleet)).toEqual({ listed: [], counted: 0 });
  });

  test.each<[Effects, boolean]>([
    ['none', false],
    ['idempotent', false],
    ['keyed', true],
    ['probe', true],
  ])('a call with effects %s that was cancelled between two attempts is in doubt: %s', async (effects, isOpen) => {
    const change = {
      ...withEffects(effects),
      retry: { baseMs: 60_000, maxDelayMs: 60_000, maxElapsedMs: 600_000 },
    };
    const { tool } = scripted('pay', () => Promise.reject(httpError(503)), change);
    const fleet = await startFleet({ tools: [tool], random: () => 0.99 });
    const retrying = signal();
    fleet.session.events.on('retrying', () => retrying.fire());
    const { callId, result } = pending(await fleet.session.submit(tool, {}));
    await retrying.promise;
    const { settlement } = await fleet.session.cancel(callId);
    expect(settlement).toBe(effects === 'none' ? 'cancelled' : 'unsettled');
    expect((await result).error?.message.includes(FIND_OUT)).toBe(isOpen);
    expect(await counted(fleet)).toEqual(isOpen ? { listed: [callId], counted: 1 } : { listed: [], counted: 0 });
  });

  test.each(['ran out of time', 'was cancelled while it ran'])(
    'one that %s runs again when an operator says so',
    async (ending) => {
      const gate = gated('pay', { effects: 'once' });
      const fleet = await startFleet({ tools: [gate.tool] });
      const callId = (await endings[ending]?.(fleet, gate)) ?? '';
      gate.open();
      await fleet.pawl.resolve(callId, { as: 'retry' });
      expect(await fleet.pawl.result(callId)).toMatchObject({ status: 'success', output: { content: { attempt: 2 } } });
      expect(await counted(fleet)).toEqual({ listed: [], counted: 0 });
    },
  );

  test('one that an operator resolved as failed is no longer in doubt', async () => {
    const gate = gated('pay', { effects: 'once' });
    const fleet = await startFleet({ tools: [gate.tool] });
    const callId = (await endings['was cancelled while it ran']?.(fleet, gate)) ?? '';
    expect(await fleet.pawl.resolve(callId, { as: 'failed' })).toMatchObject({ state: 'failed' });
    expect(await counted(fleet)).toEqual({ listed: [], counted: 0 });
  });

  test('a worker counts what it left in doubt', async () => {
    const gate = gated('pay', { effects: 'once' });
    const fleet = await startFleet({ tools: [gate.tool] });
    await endings['ran out of time']?.(fleet, gate);
    const ended = fleet.events.findLast(({ type }) => type === 'tool_call_end');
    expect(ended).toMatchObject({ outcome: { error: { code: 'TIMEOUT', mayHaveHappened: true } } });
  });
});
