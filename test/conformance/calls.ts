/**
 * What a caller sees of its calls, whatever carries them out: TR-2 to TR-11 and the rulings on them. Tools run in the test's own
 * process, so that a test can say what they do, and see what they did.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { ToolResultEnvelope } from '../../src/shared/calls/envelope.ts';
import type { Circuit } from '../../src/shared/circuits/circuit-breaker.ts';
import type { SettingsInput } from '../../src/shared/config/config.ts';
import { ToolError } from '../../src/shared/errors/failure.ts';
import type { OpenSession } from '../../src/shared/sessions/session.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';
import type { ToolResult } from '../../src/shared/tools/tool-result.ts';
import { eventually, signal } from '../helpers/signal.ts';

export interface CallFront {
  openSession(open?: OpenSession): Promise<Session>;
  /** The circuit of a tool. */
  circuit(tool: string): Promise<Circuit | undefined>;
  setCircuit(action: 'force_open' | 'reset', tool: string): Promise<void>;
  close(): Promise<void>;
}

export interface FrontOptions {
  readonly tools: readonly AnyTool[];
  readonly settings: Partial<SettingsInput>;
}

type Script = (ctx: ToolContext, run: number) => unknown;

const COOLDOWN_MS = 150;
const tolerant = { consecutiveFailures: 1_000, rateMinimum: 1_000, rateSamples: 1_000 } as const;
const fragile = { consecutiveFailures: 3, cooldownMs: 60_000 } as const;
const briefly = { ...fragile, cooldownMs: COOLDOWN_MS } as const;

let scripts = new Map<string, Script>();
let runs = new Map<string, ToolContext[]>();

/** A tool that does what is written for the label among its parameters. */
function scriptedTool(name: string, change: Partial<Parameters<typeof defineTool>[0]> = {}) {
  return defineTool({
    name,
    version: '1.0.0',
    description: 'Does what a test says.',
    tier: 'workspace',
    effects: 'idempotent',
    retry: { baseMs: 2, maxDelayMs: 4 },
    circuit: tolerant,
    ...change,
    input: z.object({ label: z.string(), number: z.number().optional() }),
    run: async ({ label }, ctx): Promise<ToolResult<unknown>> => {
      const seen = runs.get(label) ?? [];
      runs.set(label, [...seen, ctx]);
      const output = await scripts.get(label)?.(ctx, seen.length + 1);
      return { output: output ?? { run: seen.length + 1 } };
    },
  });
}

const work = scriptedTool('work');
const once = scriptedTool('work_once', { effects: 'once' });
const look = scriptedTool('look', { tier: 'read-only', effects: 'none' });
const shared = scriptedTool('look_shared', { tier: 'read-only', effects: 'none' });
const independent = scriptedTool('work_independent');
const disabled = scriptedTool('work_disabled');
const elevated = scriptedTool('work_elevated', { tier: 'elevated' });
const small = scriptedTool('work_small', { maxResultBytes: 200 });
const parcels = scriptedTool('work_parcels', { output: z.object({ parcels: z.number() }) as never });
const opening = scriptedTool('work_opening', { circuit: fragile });
const recovering = scriptedTool('work_recovering', { circuit: briefly });
const relapsing = scriptedTool('work_relapsing', { circuit: briefly });
const storming = scriptedTool('work_storming', {
  circuit: fragile,
  retry: { baseMs: 1, maxDelayMs: 1, maxAttempts: 10 },
});
const forced = scriptedTool('work_forced');
const budgeted = scriptedTool('work_budgeted');
const ordinary = scriptedTool('work_ordinary');
const sequential = scriptedTool('work_sequential', { parallel: false });
const mixed = scriptedTool('work_mixed', { circuit: { ...tolerant, consecutiveFailures: 3 } });
const writer = defineTool({
  name: 'write_note',
  version: '1.0.0',
  description: 'Writes a note.',
  tier: 'read-only',
  needs: ['workspace:write'],
  input: z.object({}),
  run: async (_params, ctx) => ({ output: await ctx.workspace.write('note', 'text') }),
});
const TOOLS = [
  work,
  once,
  look,
  shared,
  independent,
  disabled,
  elevated,
  small,
  parcels,
  opening,
  recovering,
  relapsing,
  storming,
  forced,
  mixed,
  budgeted,
  ordinary,
  sequential,
  writer,
];

/** Of the tools that many tests share. */
const plenty = { retry: { budget: { floor: 1_000 } } };

const SETTINGS: Partial<SettingsInput> = {
  tools: {
    work_independent: { onConflict: 'independent' },
    work_disabled: { enabled: false },
    look_shared: { scope: 'global' },
    work: plenty,
    look: plenty,
    work_once: plenty,
    work_storming: plenty,
    // Fewer than the attempts after which its circuit opens.
    work_budgeted: { retry: { budget: { floor: 3 } } },
  },
};

const http = (status: number) => Object.assign(new Error(`HTTP ${status}`), { status });
const refusedConnection = () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
const timesRun = (label: string) => runs.get(label)?.length ?? 0;
const always = (thrown: () => unknown) => () => {
  throw thrown();
};

/** A script that waits until it is let go; `begun` tells of its first run. */
function held(label: string) {
  const [begun, gate] = [signal(), signal()];
  scripts.set(label, async (ctx) => {
    begun.fire();
    const stopped = signal();
    ctx.signal.addEventListener('abort', () => stopped.fail(ctx.signal.reason as Error), { once: true });
    await Promise.race([gate.promise, stopped.promise]);
    return { label };
  });
  return { begun: begun.promise, open: () => gate.fire() };
}

export function describeCalls(name: string, openFront: (options: FrontOptions) => Promise<CallFront>): void {
  describe(`calls through ${name}`, () => {
    let front: CallFront;
    let session: Session;
    beforeAll(async () => {
      scripts = new Map();
      runs = new Map();
      front = await openFront({ tools: TOOLS, settings: SETTINGS });
      session = await front.openSession({ actorId: 'ada' });
    });
    afterAll(() => front.close());

    test('C3: calls of a tool that is not parallel take turns within their session, and no attempt is spent on waiting', async () => {
      const other = await front.openSession({ actorId: 'bob' });
      const { begun, open } = held('turn 0');
      const first = session.call(sequential, { label: 'turn 0' });
      await begun;
      expect((await other.call(sequential, { label: 'of another session' })).status).toBe('success');
      let running = 0;
      const labels = Array.from({ length: 6 }, (_, number) => `turn ${number + 1}`);
      for (const label of labels)
        scripts.set(label, async () => {
          running += 1;
          await new Promise(setImmediate);
          running -= 1;
          return running;
        });
      const others = labels.map((label) => session.call(sequential, { label }));
      const waiting = await session.submit(sequential, { label: 'given up' });
      await session.cancel(waiting.callId ?? '');
      open();
      for (const result of await Promise.all([first, ...others]))
        expect(result).toMatchObject({ status: 'success', attempts: 1 });
      expect((await Promise.all(others)).map(({ output }) => output?.content)).toEqual(labels.map(() => 0));
      expect(timesRun('given up')).toBe(0);
    });

    describe('idempotency', () => {
      test('TR-2: who asks while the call is in flight waits for the same outcome, and nothing runs twice', async () => {
        const { begun, open } = held('attach');
        const key = { idempotencyKey: 'attach' };
        const first = session.call(once, { label: 'attach' }, key);
        await begun;
        const others = [1, 2, 3].map(() => session.submit(once, { label: 'attach' }, key));
        for (const submission of await Promise.all(others)) expect(submission.kind).toBe('pending');
        open();
        const [led, ...joined] = await Promise.all([
          first,
          ...others.map(async (submission) => (await submission).result),
        ]);
        expect(led).toMatchObject({ status: 'success', fromCache: false, attempts: 1 });
        for (const result of joined)
          expect(result).toMatchObject({
            status: 'success',
            fromCache: true,
            callId: led?.callId,
            output: led?.output,
            cache: { matchedOn: 'inflight', keyFingerprint: led?.callId },
          });
        expect(timesRun('attach')).toBe(1);
      });

      test('TR-2: of 200 calls with one key at once one runs, and all get its output', async () => {
        const results = await Promise.all(
          Array.from({ length: 200 }, () => session.call(once, { label: 'crowd' }, { idempotencyKey: 'crowd' })),
        );
        expect(timesRun('crowd')).toBe(1);
        expect(new Set(results.map((result) => JSON.stringify(result.output)))).toEqual(
          new Set([JSON.stringify({ content: { run: 1 } })]),
        );
        expect(results.filter(({ fromCache }) => !fromCache)).toHaveLength(1);
      });

      test('TR-2: a bestEffort caller gets the answer that the call is in flight, and a disabled one runs by itself', async () => {
        const { begun, open } = held('busy');
        const key = { idempotencyKey: 'busy' };
        const first = session.call(look, { label: 'busy' }, key);
        await begun;
        expect(await session.call(look, { label: 'busy' }, { ...key, dedupeMode: 'bestEffort' })).toMatchObject({
          status: 'error',
          error: { code: 'IN_FLIGHT', retriable: true, terminal: false },
        });
        const own = session.call(look, { label: 'busy' }, { ...key, dedupeMode: 'disabled' });
        await eventually(() => timesRun('busy') === 2);
        open();
        expect((await own).callId).not.toBe((await first).callId);
        expect(await own).toMatchObject({ status: 'success', fromCache: false });
      });

      test('TR-3: asked again, a finished call answers from its record, byte for byte', async () => {
        const key = { idempotencyKey: 'replay' };
        scripts.set('replay', () => ({ zebra: 1, apple: [null, { deep: 'ü' }], '10': 'ten' }));
        const first = await session.call(work, { label: 'replay' }, key);
        const again = await session.call(work, { label: 'replay' }, key);
        expect(again).toEqual({
          ...first,
          requestId: again.requestId,
          fromCache: true,
          cache: { matchedOn: 'completed', ageMs: expect.any(Number), keyFingerprint: first.callId },
        });
        expect(JSON.stringify(again.output)).toBe(JSON.stringify(first.output));
        expect(again.requestId).not.toBe(first.requestId);
        expect(timesRun('replay')).toBe(1);
      });

      test('R10: a key is its session’s and its actor’s own; a tool with global scope shares its reads', async () => {
        const other = await front.openSession({ actorId: 'ada' });
        const key = { idempotencyKey: 'scope' };
        await session.call(work, { label: 'scope' }, key);
        expect(await other.call(work, { label: 'scope' }, key)).toMatchObject({ fromCache: false });
        await session.call(shared, { label: 'global' }, key);
        expect(await other.call(shared, { label: 'global' }, key)).toMatchObject({ fromCache: true });
        expect([timesRun('scope'), timesRun('global')]).toEqual([2, 1]);
      });

      test('TR-4: a key that comes with other parameters is a conflict, in flight and after the end, and nothing runs', async () => {
        const { begun, open } = held('conflict');
        const key = { idempotencyKey: 'conflict' };
        const first = session.call(work, { label: 'conflict' }, key);
        await begun;
        const conflict = { status: 'error', attempts: 0, error: { code: 'IDEMPOTENCY_CONFLICT', terminal: true } };
        expect(await session.call(work, { label: 'conflict', number: 2 }, key)).toMatchObject(conflict);
        open();
        await first;
        expect(await session.call(work, { label: 'conflict', number: 2 }, key)).toMatchObject(conflict);
        expect(await session.call(work, { label: 'conflict' }, key)).toMatchObject({ fromCache: true });
        expect(timesRun('conflict')).toBe(1);
      });

      test('TR-4: with the policy independent such a key names a call of its own', async () => {
        const key = { idempotencyKey: 'independent' };
        const call = (number: number) => session.call(independent, { label: 'independent', number }, key);
        const results = [await call(1), await call(2), await call(1), await call(2)];
        expect(results.map(({ fromCache }) => fromCache)).toEqual([false, false, true, true]);
        expect(timesRun('independent')).toBe(2);
      });

      test('R12: a failure is replayed too, unless it may pass and the caller asks with bestEffort', async () => {
        const key = { idempotencyKey: 'failed', retryBudget: { maxAttempts: 1 } };
        scripts.set('failed', (_ctx, run) => {
          if (run < 2) throw http(503);
        });
        const first = await session.call(work, { label: 'failed' }, key);
        expect(first).toMatchObject({ status: 'retry_exhausted', error: { code: 'HTTP_503', retriable: true } });
        expect(await session.call(work, { label: 'failed' }, key)).toMatchObject({
          status: 'retry_exhausted',
          fromCache: true,
          error: first.error,
        });
        expect(await session.call(work, { label: 'failed' }, { ...key, dedupeMode: 'bestEffort' })).toMatchObject({
          status: 'success',
          fromCache: false,
          callId: first.callId,
        });
        expect(await session.call(work, { label: 'failed' }, key)).toMatchObject({
          status: 'success',
          fromCache: true,
        });
        const fences = runs.get('failed')?.map(({ fence }) => fence) ?? [];
        expect(fences[1]).toBeGreaterThan(fences[0] ?? Number.NaN);

        const terminal = { idempotencyKey: 'terminal', dedupeMode: 'bestEffort' } as const;
        scripts.set(
          'terminal',
          always(() => http(400)),
        );
        await session.call(work, { label: 'terminal' }, terminal);
        expect(await session.call(work, { label: 'terminal' }, terminal)).toMatchObject({ fromCache: true });
        expect(timesRun('terminal')).toBe(1);
      });

      test('ruling 3: calls without a key merge in flight, and run again afterwards unless their request comes again', async () => {
        const { begun, open } = held('derived');
        const request = { toolCallId: 'call-7' };
        const first = session.call(work, { label: 'derived' }, request);
        await begun;
        const joined = session.submit(work, { label: 'derived' }, { toolCallId: 'call-8' });
        expect((await joined).kind).toBe('pending');
        open();
        const led = await first;
        expect(await (await joined).result).toMatchObject({ callId: led.callId, cache: { matchedOn: 'inflight' } });
        // The one that led, and the one that was merged into it, stay what they were.
        for (const toolCallId of ['call-7', 'call-8'])
          expect(await session.call(work, { label: 'derived' }, { toolCallId })).toMatchObject({
            callId: led.callId,
            cache: { matchedOn: 'completed' },
          });
        expect(timesRun('derived')).toBe(1);
        expect(await session.call(work, { label: 'derived' })).toMatchObject({ fromCache: false });
        expect(timesRun('derived')).toBe(2);
      });

      test('the key and the fence reach the tool, and the fence grows with every attempt', async () => {
        scripts.set('fenced', (_ctx, run) => {
          if (run < 3) throw http(503);
        });
        await session.call(work, { label: 'fenced' }, { idempotencyKey: 'fenced' });
        const contexts = runs.get('fenced') ?? [];
        expect(contexts.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
        expect(contexts.map(({ idempotencyKey }) => idempotencyKey)).toEqual(['fenced', 'fenced', 'fenced']);
        const fences = contexts.map(({ fence }) => fence);
        expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
      });
    });

    describe('retries', () => {
      test('TR-5: fails twice and succeeds third: 3 attempts, and what they died of', async () => {
        scripts.set('twice', (_ctx, run) => {
          if (run < 3) throw Object.assign(new Error('reset'), { code: 'ECONNRESET' });
        });
        const retrying: number[] = [];
        const listen = ({ attempt }: { attempt: number }) => retrying.push(attempt);
        session.events.on('retrying', listen);
        const result = await session.call(work, { label: 'twice' });
        session.events.off('retrying', listen);
        expect(result).toMatchObject({
          status: 'success',
          attempts: 3,
          retriedBy: [
            { attempt: 1, reasonCode: 'CONNECTION_RESET' },
            { attempt: 2, reasonCode: 'CONNECTION_RESET' },
          ],
        });
        for (const { delayMs } of result.retriedBy ?? []) expect(delayMs).toBeLessThan(4);
        expect(retrying).toEqual([1, 2]);
      });

      test('TR-6: a 400 ends the call at its first attempt', async () => {
        scripts.set(
          'bad',
          always(() => http(400)),
        );
        expect(await session.call(work, { label: 'bad' })).toMatchObject({
          status: 'error',
          attempts: 1,
          error: { code: 'HTTP_400', retriable: false, terminal: true },
        });
      });

      test('TR-7: a service that stays away uses up the attempts, by default 4 and never more than the caller allows', async () => {
        scripts.set(
          'away',
          always(() => http(503)),
        );
        expect(await session.call(work, { label: 'away' })).toMatchObject({
          status: 'retry_exhausted',
          attempts: 4,
          error: { code: 'HTTP_503', terminal: true },
        });
        expect(timesRun('away')).toBe(4);
        expect(await session.call(work, { label: 'away' }, { retryBudget: { maxAttempts: 2 } })).toMatchObject({
          status: 'retry_exhausted',
          attempts: 2,
        });
      });

      test('R26: a call that a session makes again and again is refused the 20th time, unless it has keys of its own', async () => {
        const repeat = async (count: number, options?: () => { idempotencyKey: string }) => {
          const results: ToolResultEnvelope[] = [];
          while (results.length < count) results.push(await session.call(work, { label: 'again' }, options?.()));
          return results;
        };
        const results = await repeat(21);
        expect(results.map(({ status }) => status)).toEqual([...Array(19).fill('success'), 'error', 'error']);
        expect(results.at(-1)).toMatchObject({
          attempts: 0,
          error: { code: 'LOOP_DETECTED', message: expect.stringContaining('21 times'), retriable: false },
        });
        let number = 0;
        const keyed = await repeat(25, () => ({ idempotencyKey: `again-${number++}` }));
        expect(new Set(keyed.map(({ status }) => status))).toEqual(new Set(['success']));
        const other = await front.openSession({ actorId: 'ada' });
        expect((await other.call(work, { label: 'again' })).status).toBe('success');
      });

      test('I17: calls that are made at the same time take no more from a budget than it has', async () => {
        const spending = await front.openSession({ actorId: 'ada', budget: { calls: 2 } });
        const made = ['a', 'b', 'c', 'd'].map((label) => spending.call(work, { label: `spent ${label}` }));
        const ends = (await Promise.all(made)).map(({ status, error }) => error?.code ?? status);
        expect(ends.sort()).toEqual(['BUDGET_EXHAUSTED', 'BUDGET_EXHAUSTED', 'success', 'success']);
      });

      test('R20: ordinary trouble does not use up the budget: 40 calls whose service answers 503 twice to each all succeed', async () => {
        const labels = Array.from({ length: 40 }, (_, call) => `trouble ${call}`);
        for (const label of labels)
          scripts.set(label, (_ctx, run) => {
            if (run <= 2) throw http(503);
          });
        const results = await Promise.all(labels.map((label) => session.call(ordinary, { label })));
        expect(new Set(results.map(({ status, attempts }) => `${status} ${attempts}`))).toEqual(new Set(['success 3']));
      });

      test('R20: all calls of a tool have a budget of retries together, which successes refill; without one a call ends with its last failure', async () => {
        const away = async (label: string) => {
          scripts.set(
            label,
            always(() => http(503)),
          );
          return session.call(budgeted, { label });
        };
        expect(await away('first')).toMatchObject({ status: 'retry_exhausted', attempts: 4 });
        expect(await away('second')).toMatchObject({
          status: 'retry_exhausted',
          attempts: 1,
          error: { code: 'HTTP_503', message: expect.stringContaining('retry budget exhausted') },
        });
        for (let call = 0; call < 5; call += 1)
          expect((await session.call(budgeted, { label: `well ${call}` })).status).toBe('success');
        expect(await away('third')).toMatchObject({ status: 'retry_exhausted', attempts: 2 });
      });

      test('a once tool is not run again after a 503, but is where nothing happened or the caller vouches for it', async () => {
        scripts.set('maybe', (_ctx, run) => {
          if (run === 1) throw http(503);
        });
        expect(await session.call(once, { label: 'maybe' })).toMatchObject({
          status: 'retriable_error',
          attempts: 1,
          error: { code: 'HTTP_503', retriable: false, terminal: false, mayHaveHappened: true },
        });
        scripts.set('nothing', (_ctx, run) => {
          if (run === 1) throw refusedConnection();
        });
        expect(await session.call(once, { label: 'nothing' })).toMatchObject({ status: 'success', attempts: 2 });
        scripts.set('vouched', (_ctx, run) => {
          if (run === 1) throw http(503);
        });
        expect(await session.call(once, { label: 'vouched' }, { expectedRetrySafe: true })).toMatchObject({
          status: 'success',
          attempts: 2,
        });
      });

      test('ruling 11: a time-out of a once tool is final, and a deadline ends the rest', async () => {
        held('slow');
        expect(await session.call(once, { label: 'slow' }, { timeoutMs: 500 })).toMatchObject({
          status: 'timeout',
          attempts: 1,
        });
        held('late');
        const late = await session.call(work, { label: 'late' }, { deadlineAtMs: Date.now() + 60 });
        expect(late.status).toBe('timeout');
      });

      test.each([
        ['a string', () => 'just text', 'TOOL_FAILED'],
        ['undefined', () => undefined, 'TOOL_FAILED'],
        ['null', () => null, 'TOOL_FAILED'],
        ['an error', () => new Error('broken'), 'TOOL_FAILED'],
        ['an error of its own', () => new ToolError('no such parcel', { code: 'NO_PARCEL' }), 'NO_PARCEL'],
      ])('D12: a tool that throws %s fails its call, and nobody sees a stack', async (what, thrown, code) => {
        scripts.set(what, always(thrown));
        const result = await session.call(work, { label: what });
        expect(result).toMatchObject({ status: 'error', attempts: 1, error: { code } });
        expect(JSON.stringify(result)).not.toContain('.ts:');
      });

      test('a result that is too large, or not what the tool’s schema says, is a failure', async () => {
        scripts.set('large', () => 'x'.repeat(300));
        expect(await session.call(small, { label: 'large' })).toMatchObject({ error: { code: 'RESULT_TOO_LARGE' } });
        scripts.set('parcels', () => ({ parcels: 'three' }));
        expect(await session.call(parcels, { label: 'parcels' })).toMatchObject({ error: { code: 'RESULT_INVALID' } });
      });
    });

    describe('circuits', () => {
      const fail = async (tool: AnyTool, label: string, times: number) => {
        scripts.set(
          label,
          always(() => http(503)),
        );
        for (let index = 0; index < times; index += 1)
          await session.call(tool.name, { label }, { retryBudget: { maxAttempts: 1 } });
      };
      const cooledDown = async (tool: AnyTool) => {
        await eventually(async () => (await front.circuit(tool.name))?.state === 'OPEN', { what: 'an open circuit' });
        const openedAt = performance.now();
        await eventually(() => performance.now() - openedAt > COOLDOWN_MS + 20, { what: 'the end of the cooldown' });
      };
      /** The producer may learn of an open circuit a moment later than the worker. */
      const refused = (tool: AnyTool, label: string) =>
        eventually(async () => {
          const ran = timesRun(label);
          const result = await session.call(tool.name, { label });
          return result.status === 'circuit_open' && result.attempts === 0 && timesRun(label) === ran && result;
        });

      test('TR-8: failures in a row open the circuit; then calls are refused and the tool is left alone', async () => {
        await fail(opening, 'opening', 3);
        const ran = timesRun('opening');
        expect(ran).toBe(3);
        expect(await refused(opening, 'opening')).toMatchObject({
          status: 'circuit_open',
          attempts: 0,
          error: { code: 'CIRCUIT_OPEN', breakerState: 'OPEN', retriable: true },
        });
        expect(timesRun('opening')).toBe(3);
      });

      test('R22: a success between failures starts the count again', async () => {
        for (let round = 0; round < 3; round += 1) {
          await fail(mixed, 'mixed', 2);
          scripts.delete('mixed');
          expect(await session.call(mixed, { label: 'mixed' })).toMatchObject({ status: 'success' });
        }
        expect(timesRun('mixed')).toBe(9);
        expect((await front.circuit(mixed.name))?.state ?? 'CLOSED').toBe('CLOSED');
      });

      test('TR-9: after the cooldown one probe at a time, and two successes close the circuit', async () => {
        await fail(recovering, 'recovering', 3);
        await cooledDown(recovering);
        scripts.delete('recovering');
        expect(await session.call(recovering, { label: 'recovering' })).toMatchObject({ status: 'success' });
        expect((await front.circuit(recovering.name))?.state).toBe('HALF_OPEN');
        expect(await session.call(recovering, { label: 'recovering' })).toMatchObject({ status: 'success' });
        expect((await front.circuit(recovering.name))?.state).toBe('CLOSED');
      });

      test('TR-10: a probe that fails opens the circuit again, with a new cooldown', async () => {
        await fail(relapsing, 'relapsing', 3);
        await cooledDown(relapsing);
        const probe = await session.call(relapsing, { label: 'relapsing' });
        expect(probe).toMatchObject({ status: 'retriable_error', attempts: 1, error: { code: 'HTTP_503' } });
        expect(await front.circuit(relapsing.name)).toMatchObject({ state: 'OPEN', reason: 'a probe failed' });
        expect(timesRun('relapsing')).toBe(4);
        await refused(relapsing, 'relapsing');
      });

      test('TR-11: no retry against an open circuit: an outage costs no storm', async () => {
        scripts.set(
          'storm',
          always(() => http(503)),
        );
        const results = await Promise.all(
          Array.from({ length: 10 }, (_, number) => session.call(storming, { label: 'storm', number })),
        );
        for (const { status, attempts } of results)
          expect(status).toMatch(attempts === 0 ? /^circuit_open$/ : /^(retriable_error|circuit_open)$/);
        // Those that open it, and those that were on their way.
        expect(timesRun('storm')).toBeLessThanOrEqual(3 + 10);
        expect(results.reduce((sum, { attempts }) => sum + attempts, 0)).toBe(timesRun('storm'));
      });

      test('R25: a circuit that is forced open says why, and refuses until it is reset', async () => {
        await front.setCircuit('force_open', forced.name);
        const message = `${forced.name} takes no calls for now (a test).`;
        expect(await refused(forced, 'forced')).toMatchObject({ error: { breakerState: 'FORCED_OPEN', message } });
        await front.setCircuit('reset', forced.name);
        await eventually(async () => (await session.call(forced, { label: 'forced' })).status === 'success');
      });
    });

    describe('refusals', () => {
      test('TR-1: parameters that the schema refuses name the field, and nothing is recorded or run', async () => {
        const key = { idempotencyKey: 'invalid' };
        const result = await session.call('work', { label: 7, lable: 'x' }, key);
        expect(result).toMatchObject({ status: 'error', attempts: 0, error: { code: 'INVALID_PARAMS' } });
        expect(result.error?.issues?.map(({ path }) => path).sort()).toEqual(['label', 'lable']);
        expect(await session.call(work, { label: 'invalid' }, key)).toMatchObject({
          status: 'success',
          fromCache: false,
        });
      });

      test.each([
        ['an empty key', { idempotencyKey: '' }],
        ['a key above 1 KiB', { idempotencyKey: 'x'.repeat(1_025) }],
        ['a request ID that is none', { requestId: 'seven' }],
      ])('TR-1: %s is CONTRACT_INVALID', async (_name, options) => {
        expect(await session.call(work, { label: 'contract' }, options)).toMatchObject({
          status: 'error',
          attempts: 0,
          error: { code: 'CONTRACT_INVALID' },
        });
        expect(timesRun('contract')).toBe(0);
      });

      test('an unknown tool is answered with the nearest names', async () => {
        expect(await session.call('wrok', {})).toMatchObject({
          error: { code: 'UNKNOWN_TOOL', message: expect.stringContaining('work') },
        });
      });

      test('A9, A17: what tier, session kind or policy forbids is denied before anything runs', async () => {
        const reader = await front.openSession({ kind: 'worker', actorId: 'ada' });
        const denied = { status: 'error', attempts: 0, error: { code: 'PERMISSION_DENIED' } };
        expect(await reader.call(work, { label: 'denied' })).toMatchObject(denied);
        expect(await reader.call(look, { label: 'allowed' })).toMatchObject({ status: 'success' });
        expect(await session.call(disabled, { label: 'denied' })).toMatchObject(denied);
        expect(await session.call(elevated, { label: 'denied' })).toMatchObject(denied);
        const unmerged = await session.call(work, { label: 'denied' }, { dedupeMode: 'disabled' });
        expect(unmerged).toMatchObject({ status: 'error', attempts: 0, error: { code: 'DEDUPE_REQUIRED' } });
        expect(await session.call(writer, {})).toMatchObject(denied);
        expect(timesRun('denied')).toBe(0);
      });

      test('a closed session takes no calls, and what runs in it is cancelled', async () => {
        const closing = await front.openSession({ actorId: 'ada' });
        const { begun } = held('closing');
        const running = closing.call(work, { label: 'closing' });
        await begun;
        await closing.close();
        expect(await running).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
        expect(await closing.call(work, { label: 'closed' })).toMatchObject({ error: { code: 'SESSION_CLOSED' } });
      });

      test('R10: a call that all sessions share goes on when the one is closed that asked for it first', async () => {
        const closing = await front.openSession({ actorId: 'ada' });
        const { begun, open } = held('shared');
        const key = { idempotencyKey: 'shared' };
        const first = await closing.submit(shared, { label: 'shared' }, key);
        await begun;
        const joined = await session.submit(shared, { label: 'shared' }, key);
        await closing.close();
        open();
        expect(await joined.result).toMatchObject({ status: 'success', callId: first.callId });
      });
    });

    describe('while it runs', () => {
      test('progress reaches the session, and the last report is never lost', async () => {
        scripts.set('progress', async (ctx) => {
          for (let step = 1; step <= 5; step += 1) ctx.progress({ progress: step, total: 5 });
        });
        const heard: number[] = [];
        const listen = ({ progress }: { progress: number }) => heard.push(progress);
        session.events.on('progress', listen);
        await session.call(work, { label: 'progress' });
        await eventually(() => heard.at(-1) === 5);
        session.events.off('progress', listen);
        expect(heard[0]).toBe(1);
      });

      test('a running call is cancelled, and its key stays cancelled', async () => {
        const { begun } = held('cancelled');
        const submission = await session.submit(work, { label: 'cancelled' }, { idempotencyKey: 'cancelled' });
        await begun;
        expect(await session.cancel(submission.callId ?? '')).toMatchObject({
          settlement: 'unsettled',
          result: { error: { code: 'CANCELLED' } },
        });
        expect(await submission.result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
        expect(
          await session.call(work, { label: 'cancelled' }, { idempotencyKey: 'cancelled', dedupeMode: 'bestEffort' }),
        ).toMatchObject({ fromCache: true, error: { code: 'CANCELLED' } });
        expect(await session.cancel(submission.callId ?? '')).toMatchObject({ settlement: 'too-late' });
        await expect(session.cancel('w0.unknown')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
      });

      test('a caller’s signal cancels its call', async () => {
        const { begun } = held('signalled');
        const stop = new AbortController();
        const result = session.call(look, { label: 'signalled' }, { signal: stop.signal });
        await begun;
        stop.abort();
        expect(await result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
      });

      test('the signal of a caller that joined another’s call ends its own waiting alone', async () => {
        const { begun, open } = held('joined');
        const first = session.call(look, { label: 'joined' });
        await begun;
        const stop = new AbortController();
        const joined = await session.submit(look, { label: 'joined' }, { signal: stop.signal });
        expect(joined).toMatchObject({ kind: 'pending', merged: true });
        stop.abort();
        expect(await joined.result).toMatchObject({
          status: 'error',
          callId: joined.callId,
          error: { code: 'CANCELLED', message: 'The call goes on for those who asked before; this caller left.' },
        });
        open();
        expect(await first).toMatchObject({ status: 'success' });
      });
    });
  });
}
