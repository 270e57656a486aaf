import { describe, expect, test } from 'vitest';
import { type ToolCallEnvelope, toolResultEnvelopeSchema } from '../../../src/shared/calls/envelope.ts';
import { contentOf, type Fleet, keysOfCalls, resultOf, startFleet } from '../../helpers/fleet.ts';
import { startWire } from '../../helpers/proxy.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, httpError, scripted } from '../../helpers/tools.ts';

function envelopeFor({ session }: Fleet, change: Partial<ToolCallEnvelope> = {}): ToolCallEnvelope {
  return { ...session.envelope(echo, { text: 'hello' }), ...change };
}

describe('TR-1: the contract', () => {
  test('a malformed envelope ends at once, with every path: no record, no job, no retry; a valid one still runs', async () => {
    const fleet = await startFleet({ tools: [echo] });
    const valid = envelopeFor(fleet);
    const { toolName: _missing, ...nameless } = valid;
    for (const [value, paths] of [
      [nameless, ['toolName']],
      [{ ...valid, contractVersion: '1.0' }, ['contractVersion']],
      [
        { ...nameless, contractVersion: '2', target: {} },
        ['contractVersion', 'target.actorId', 'target.sessionKey', 'toolName'],
      ],
      [{ ...valid, payload: { ...valid.payload, idempotencyKey: '' } }, ['payload.idempotencyKey']],
      [{ ...valid, priority: 1 }, ['']],
      ['nonsense', ['']],
      [null, ['']],
    ] as const) {
      const result = await resultOf(fleet.pawl, value);
      expect(result).toMatchObject({
        status: 'error',
        attempts: 0,
        fromCache: false,
        error: { code: 'CONTRACT_INVALID', retriable: false, terminal: true },
      });
      expect(result.error?.issues?.map((issue) => issue.path).sort()).toEqual(paths);
      expect(toolResultEnvelopeSchema.safeParse(result).success).toBe(true);
    }
    expect(await keysOfCalls(fleet.world)).toEqual([]);
    expect(fleet.events.filter((event) => event.type !== 'refused')).toEqual([]);
    expect(contentOf(await resultOf(fleet.pawl, valid))).toEqual({ text: 'hello' });
  });

  test('parameters that the tool’s schema refuses end before anything is written', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const result = await fleet.session.call('echo', { txt: 'hello' });
    expect(result).toMatchObject({ status: 'error', attempts: 0, error: { code: 'INVALID_PARAMS', terminal: true } });
    expect(result.error?.issues).toEqual([
      { path: 'text', message: 'is required and missing' },
      { path: 'txt', message: 'is unknown; did you mean text? Allowed: text' },
    ]);
    expect(await keysOfCalls(fleet.world)).toEqual([]);
  });

  test('an unknown tool is answered with the nearest names', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const result = await fleet.session.call('ehco', {});
    expect(result.error).toMatchObject({
      code: 'UNKNOWN_TOOL',
      message: expect.stringContaining('Did you mean echo?'),
    });
    expect(await keysOfCalls(fleet.world)).toEqual([]);
  });
});

describe('who may call what (A3, A17, R10)', () => {
  const note = scripted('note', () => ({ output: null })).tool;
  const risky = scripted('risky', () => ({ output: null }), { tier: 'elevated' }).tool;

  test.each([
    ['a worker session a tool that changes things', 'note', {}, 'worker'],
    ['anybody an elevated tool without an approval', 'risky', {}, 'main'],
    ['anybody a tool that is disabled', 'echo', {}, 'main'],
    ['a worker session with dedupeMode disabled', 'note', { dedupeMode: 'disabled' as const }, 'worker'],
  ] as const)('denied: %s', async (_what, tool, options, kind) => {
    const settings = { tools: { echo: { enabled: false } } };
    const fleet = await startFleet({ tools: [echo, note, risky], settings, workers: 0 });
    const session = kind === 'worker' ? await fleet.session.worker() : fleet.session;
    const result = await session.call(tool, tool === 'echo' ? { text: 'x' } : {}, options);
    expect(result).toMatchObject({
      status: 'error',
      attempts: 0,
      error: { code: 'PERMISSION_DENIED', terminal: true },
    });
    expect(await keysOfCalls(fleet.world)).toEqual([]);
  });

  test.for(['workspace', 'system', 'elevated'] as const)(
    'dedupeMode disabled has an error of its own in the tier %s, and nothing is written (TR-2)',
    async (tier) => {
      const { tool, contexts } = scripted('act', () => ({ output: null }), { tier });
      const fleet = await startFleet({ tools: [tool] });
      const session = await fleet.pawl.openSession({ channel: { kind: 'operator' } });
      const result = await session.call(tool, {}, { dedupeMode: 'disabled', idempotencyKey: 'k' });
      expect(result).toMatchObject({
        status: 'error',
        attempts: 0,
        error: {
          code: 'DEDUPE_REQUIRED',
          terminal: true,
          message: expect.stringContaining('tools.act.allowDisabledDedupe'),
          issues: [{ path: 'transport.dedupeMode' }],
        },
      });
      expect(contexts).toEqual([]);
      expect(await keysOfCalls(fleet.world)).toEqual([]);
    },
  );

  test('policy can allow dedupeMode disabled', async () => {
    const settings = { tools: { note: { allowDisabledDedupe: true } } };
    const fleet = await startFleet({ tools: [note], settings });
    expect((await fleet.session.call(note, {}, { dedupeMode: 'disabled' })).status).toBe('success');
  });

  test('a closed session is refused', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    await fleet.session.close();
    expect((await fleet.session.call(echo, { text: 'x' })).error?.code).toBe('SESSION_CLOSED');
  });
});

describe('deadlines', () => {
  test('a deadline that passed long ago is reported as such, and not as an unavailable Redis', async () => {
    const { tool, contexts } = scripted('note', () => ({ output: 1 }));
    const { session } = await startFleet({ tools: [tool] });
    const result = await session.call(tool, {}, { deadlineAtMs: 1 });
    expect(result).toMatchObject({ status: 'timeout', error: { code: 'DEADLINE_EXCEEDED' } });
    expect(contexts).toEqual([]);
  });

  test.each(['none', 'once'] as const)(
    'one that runs with a worker who can write nothing any more ends the waiting of its caller in time (effects %s)',
    async (effects) => {
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
      const { tool } = scripted(
        'mute',
        () => {
          begin();
          return new Promise<never>(() => {});
        },
        { effects, ...(effects === 'none' ? { tier: 'read-only' } : {}) },
      );
      const fleet = await startFleet({ tools: [tool], workers: 0 });
      const wire = await startWire(fleet.world.redisUrl);
      await fleet.startWorker({ settings: { redisUrl: wire.url } });
      const atMs = performance.now();
      const ended = fleet.session.call(tool, {}, { idempotencyKey: 'k', deadlineAtMs: Date.now() + 2_000 });
      await begun;
      wire.silence();
      expect(await ended).toMatchObject({ status: 'timeout', error: { code: 'DEADLINE_EXCEEDED' } });
      // A lease is 30 s.
      expect(performance.now() - atMs).toBeLessThan(10_000);
      // The worker hears that its connections are gone, and ends.
      wire.cut();
      wire.heal();
    },
  );

  test('a call that is still queued at its deadline never starts', async () => {
    const { tool, contexts } = scripted('late', () => ({ output: null }));
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const result = await fleet.session.call(tool, {}, { idempotencyKey: 'k', deadlineAtMs: Date.now() + 20 });
    expect(result).toMatchObject({
      status: 'timeout',
      attempts: 0,
      error: { code: 'DEADLINE_EXCEEDED', terminal: false },
    });
    await fleet.startWorker();
    expect((await fleet.session.call(tool, {}, { idempotencyKey: 'next' })).status).toBe('success');
    expect(contexts).toHaveLength(1);
    expect(await fleet.pawl.read(result.callId ?? '')).toMatchObject({ state: 'failed', fence: 0 });
  });
});

describe('R22: an open circuit', () => {
  test('refuses at the producer, without a record, and says when to come again', async () => {
    const fleet = await startFleet({ tools: [echo] });
    await fleet.pawl.circuits.set('force_open', { tool: 'echo' });
    // The news takes a moment to reach the producer; until then the worker refuses, and the call has a record.
    const result = await eventually(async () => {
      const refused = await fleet.session.call(echo, { text: 'x' });
      return refused.callId === undefined ? refused : undefined;
    });
    expect(result).toMatchObject({
      status: 'circuit_open',
      attempts: 0,
      error: { code: 'CIRCUIT_OPEN', breakerState: 'FORCED_OPEN', retriable: true, terminal: false },
    });
    expect(result.error?.retryAfterMs).toBeGreaterThan(0);
    await fleet.pawl.circuits.set('reset', { tool: 'echo' });
    await eventually(async () => (await fleet.session.call(echo, { text: 'x' })).status === 'success');
  });
});

test('a call in doubt stays in doubt while its circuit is open, and never runs again', async () => {
  const { tool, contexts } = scripted(
    'pay',
    () => {
      throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
    },
    { effects: 'once' },
  );
  const fleet = await startFleet({ tools: [tool] });
  const pay = () => fleet.session.call(tool, {}, { idempotencyKey: 'invoice-7' });
  const first = await pay();
  expect(first.error).toMatchObject({ mayHaveHappened: true });
  await fleet.pawl.circuits.set('force_open', { tool: 'pay' });
  const refused = await eventually(async () => {
    const result = await pay();
    return result.status === 'circuit_open' ? result : undefined;
  });
  expect(refused).not.toHaveProperty('callId');
  expect(await fleet.pawl.calls.list({ state: 'unresolved' })).toMatchObject([{ callId: first.callId }]);
  await fleet.pawl.circuits.set('reset', { tool: 'pay' });
  const again = await eventually(async () => {
    const result = await pay();
    return result.status === 'circuit_open' ? undefined : result;
  });
  expect(again).toMatchObject({ callId: first.callId, error: { code: first.error?.code, mayHaveHappened: true } });
  expect(contexts).toHaveLength(1);
});

test('R7: results are envelopes of the published form', async () => {
  const { tool } = scripted('down', () => {
    throw httpError(404);
  });
  const fleet = await startFleet({ tools: [echo, tool] });
  for (const result of [await fleet.session.call(echo, { text: 'x' }), await fleet.session.call(tool, {})]) {
    expect(toolResultEnvelopeSchema.safeParse(result).error).toBeUndefined();
    expect(result.durationMs).toBeGreaterThanOrEqual(0);
  }
});

test('a time limit that is no whole number is refused by its name alone, whatever it is', async () => {
  const { session } = await startFleet({ tools: [echo], workers: 0 });
  for (const timeoutMs of [
    0.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    '5s',
    '',
    null,
    [],
    1n,
    Symbol('x'),
    new Date(),
  ]) {
    const { error } = await session.call(echo, { text: 'a' }, { timeoutMs: timeoutMs as number });
    expect(error?.code, String(timeoutMs)).toBe('CONTRACT_INVALID');
    expect(error?.message, String(timeoutMs)).toMatch(/callHints\.timeoutMs: must be a/);
    expect(error?.message, String(timeoutMs)).not.toContain('deadlineAtMs');
  }
});
