import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { createLocalRunner } from '../../../src/local/run-tool.ts';
import type { Session } from '../../../src/producer/sessions/session.ts';
import { declaredToolRecord } from '../../../src/shared/connectors/declared-tool.ts';
import { costUnitsOf, sessionAccount } from '../../../src/shared/limits/budget.ts';
import { spent } from '../../../src/shared/store/limits/budgets.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import type { ToolBudget } from '../../../src/shared/tools/tool-variant.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { gated, scripted } from '../../helpers/tools.ts';

const task = () => scripted('task', () => ({ output: 1 }), { budget: { costUnits: 2.5 } });

/** Calls with the same parameters at the same time would be one. */
let made = 0;

async function call(session: Session, options: Parameters<Session['call']>[2] = {}, name = 'task') {
  made += 1;
  const params = options.idempotencyKey === undefined ? { number: made } : {};
  const result = await session.call(name, params, options);
  return result.status === 'success' ? 'success' : result.error.code;
}

async function many(count: number, one: () => Promise<string>): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const code of await Promise.all(Array.from({ length: count }, one))) counts[code] = (counts[code] ?? 0) + 1;
  return counts;
}

const spentOf = (fleet: Fleet, name: string) => spent(fleet.pawl.backend.ledger.access, name);

describe('I17: budgets', () => {
  test('of a session tree: exact under concurrency, taken from by the sessions below, and the error says what is spent', async () => {
    const { tool, contexts } = task();
    const fleet = await startFleet({ tools: [tool], workers: 2 });
    const root = await fleet.pawl.openSession({ budget: { calls: 12, costUnits: 1_000 } });
    const branch = await root.branch();
    const below = await fleet.pawl.openSession({ parent: branch.key, kind: 'branch', budget: { calls: 3 } });
    expect(await many(8, () => call(below))).toEqual({ success: 3, BUDGET_EXHAUSTED: 5 });
    const producer = await fleet.openProducer();
    const elsewhere = await producer.session(branch.key);
    const counts = await Promise.all([many(10, () => call(branch)), many(10, () => call(elsewhere))]);
    expect(counts.reduce((sum, { success = 0 }) => sum + success, 0)).toBe(9);
    expect(contexts).toHaveLength(12);
    const refused = await root.call('task', {});
    expect(refused).toMatchObject({
      status: 'error',
      attempts: 0,
      error: {
        code: 'BUDGET_EXHAUSTED',
        retriable: false,
        message: `The budget of session ${root.key} is spent: 12 of 12 calls.`,
        issues: [{ path: 'budget.calls', message: `session ${root.key}: 12 of 12 spent` }],
      },
    });
    expect(refused.callId).toBeUndefined();
  });

  test('in cost units, per call and in all; replays and calls that were merged take nothing', async () => {
    const { tool } = task();
    const fleet = await startFleet({ tools: [tool] });
    const session = await fleet.pawl.openSession({ budget: { costUnits: 6 } });
    expect(await call(session, { idempotencyKey: 'one' })).toBe('success');
    expect(await many(5, () => call(session, { idempotencyKey: 'one' }))).toEqual({ success: 5 });
    expect(await call(session)).toBe('success');
    const refused = await session.call('task', {});
    expect(refused.error?.message).toContain('5 of 6 cost units and this call takes 2.5');
    const cheap = await fleet.pawl.openSession({ budget: { perCall: { costUnits: 2 } } });
    expect(await call(cheap)).toBe('BUDGET_EXHAUSTED');
  });

  test('whose count another program changed to a text: the error names its key, and what to do', async () => {
    const { tool } = task();
    const fleet = await startFleet({ tools: [tool] });
    const session = await fleet.pawl.openSession({ budget: { calls: 5 } });
    expect(await call(session)).toBe('success');
    const [key = ''] = (await fleet.world.keys()).filter((name) => name.includes('{budget}'));
    for (const field of ['calls', 'costUnits', 'timeMs']) {
      const before = await fleet.pawl.backend.redis.hget(key, field);
      await fleet.pawl.backend.redis.hset(key, field, 'many');
      await expect(session.call('task', {}), field).rejects.toMatchObject({
        code: 'CONFIGURATION',
        message: expect.stringMatching(new RegExp(`${key}.*Put back what was there`)),
      });
      await fleet.pawl.backend.redis.hset(key, field, before ?? 0);
    }
    expect(await call(session)).toBe('success');
  });

  test('in fractions of a cost unit, to the last one', async () => {
    const { tool } = scripted('tenth', () => ({ output: 1 }), { budget: { costUnits: 0.1 } });
    const fleet = await startFleet({ tools: [tool] });
    const runner = createLocalRunner({ tools: [tool] });
    onTestFinished(() => runner.close(0));
    for (const front of [fleet.pawl, runner]) {
      const session = await front.openSession({ budget: { costUnits: 0.3 } });
      const ends: unknown[] = [];
      for (let number = 0; number < 4; number += 1) {
        const { status, error } = await session.call('tenth', { number });
        ends.push(error?.code ?? status);
      }
      expect(ends).toEqual(['success', 'success', 'success', 'BUDGET_EXHAUSTED']);
    }
  });

  test('in time: of all attempts, and of one call', async () => {
    const slow = scripted('slow', () => sleep(60, { output: 1 }));
    const gate = gated();
    const fleet = await startFleet({ tools: [slow.tool, gate.tool] });
    const session = await fleet.pawl.openSession({ budget: { timeMs: 100 } });
    expect(await call(session, {}, 'slow')).toBe('success');
    // The second is within the budget as well, unless the first took much longer than it should.
    expect(['success', 'BUDGET_EXHAUSTED']).toContain(await call(session, {}, 'slow'));
    const refused = await session.call('slow', {});
    expect(refused.error?.message).toMatch(/is spent: \d{3,} of 100 milliseconds/);
    const brief = await fleet.pawl.openSession({ budget: { perCall: { timeMs: 150 } } });
    expect(await call(brief, {}, 'gate')).toMatch(/DEADLINE_EXCEEDED|TIMEOUT/);
  });

  test('of a turn, by its tag or its correlation; of a tool in policy and in its own definition', async () => {
    const { tool } = scripted('task', () => ({ output: 1 }), { budget: { maxCallsPerTurn: 2 } });
    const other = scripted('other', () => ({ output: 1 }));
    const fleet = await startFleet({
      tools: [tool, other.tool],
      settings: { policy: { global: { tools: { other: { perMinute: 2, perSession: 3 } } } } },
    });
    const turn = (turnId: string) => many(3, () => call(fleet.session, { turnId }));
    expect(await turn('t1')).toEqual({ success: 2, BUDGET_EXHAUSTED: 1 });
    expect(await turn('t2')).toEqual({ success: 2, BUDGET_EXHAUSTED: 1 });
    expect(await many(3, () => call(fleet.session))).toEqual({ success: 3 });
    expect(await many(4, () => call(fleet.session, {}, 'other'))).toEqual({ success: 2, BUDGET_EXHAUSTED: 2 });
    const refused = await fleet.session.call('other', {});
    expect(refused.error).toMatchObject({
      message: 'The budget of policy.global.tools.other for tools.other in a minute is spent: 2 of 2 calls.',
      retryAfterMs: expect.any(Number),
    });
    const session = await fleet.pawl.openSession({ budget: { perTurn: { calls: 1 } } });
    const correlated = () => call(session, { correlationId: 'c1' });
    expect(await many(3, correlated)).toEqual({ success: 1, BUDGET_EXHAUSTED: 2 });
  });

  test('of a tenant: each has its own, which is full again when its window is over', async () => {
    const { tool } = task();
    const fleet = await startFleet({
      tools: [tool],
      settings: { budgets: { tenants: { 'team-*': { calls: 2, windowMs: 60_000 } } } },
    });
    const [one, other, free] = await Promise.all(
      ['team-a', 'team-b', 'others'].map((tenantId) => fleet.pawl.openSession({ tenantId })),
    );
    for (const session of [one, other])
      if (session !== undefined) expect((await many(3, () => call(session)))['success']).toBe(2);
    if (free !== undefined) expect(await many(3, () => call(free))).toEqual({ success: 3 });
    const windows = (await fleet.world.keys()).filter((key) => key.includes('{budget}'));
    expect(windows).toHaveLength(2);
    const { redis } = fleet.pawl.backend;
    for (const key of windows) {
      const leftMs = await redis.pttl(key);
      expect(leftMs > 0 && leftMs <= 60_000, `${key}: ${leftMs} ms`).toBe(true);
      await redis.pexpire(key, 1);
    }
    if (one !== undefined)
      await eventually(async () => (await call(one)) === 'success', { what: 'the tenant’s next window' });
  });

  test('a session opens with a budget that can be understood, or not at all', async () => {
    const fleet = await startFleet({ tools: [], workers: 0 });
    for (const budget of [{ cals: 3 }, { calls: -1 }, { calls: 1.5 }, { perTurn: 3 }, { perCall: { timeMs: 0 } }])
      await expect(fleet.pawl.openSession({ budget: budget as never })).rejects.toMatchObject({
        code: 'CONTRACT_INVALID',
        issues: [{ path: expect.stringMatching(/^budget/) }],
      });
    expect(await spentOf(fleet, 'nothing')).toEqual({ calls: 0, costUnits: 0, timeMs: 0 });
  });
});

describe('I20: importance', () => {
  test('of a tier with shards, the refusal says which one is full: the others are not', async () => {
    const gate = gated();
    const settings = { admission: { maxInflight: 10 }, shards: { workspace: 2 } };
    const { session } = await startFleet({ tools: [gate.tool], settings });
    for (let number = 0; number < 4; number += 1) pending(await session.submit('gate', { number }));
    const refused = await session.call('gate', { number: 4 });
    expect(refused.error?.message).toMatch(
      /^Shard [01] of the tier workspace, one of 2 with its share of the limit, has 4 calls/,
    );
  });

  test('when a tier is full, what matters least is refused first, with a time to come back; the rest goes on', async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool], settings: { admission: { maxInflight: 10 } } });
    const { pawl, session } = fleet;
    const background = await pawl.openSession({ importance: 'background' });
    const child = await background.branch();
    expect(child.record.importance).toBe('background');
    const submit = async (from: Session, number: number, tags: readonly string[] = []) => {
      const envelope = from.envelope('gate', { number, tags });
      const control = { ...envelope.control, requestTags: [...(envelope.control.requestTags ?? []), ...tags] };
      return pawl.submit({ ...envelope, control });
    };
    const taken = async (from: Session, tags: readonly string[] = []) => {
      let number = 0;
      for (;;) {
        const submission = await submit(from, number, tags);
        if (submission.kind === 'answered') return { number, error: submission.result.error };
        pending(submission);
        number += 1;
      }
    };
    expect(await taken(child)).toMatchObject({ number: 5, error: { code: 'OVERLOADED', retryAfterMs: 10_000 } });
    expect(await taken(session)).toMatchObject({ number: 4, error: { code: 'OVERLOADED', retriable: true } });
    expect(await taken(session, ['importance:critical'])).toMatchObject({ number: 1, error: { retryAfterMs: 1_000 } });
    const wrong = await submit(session, 99, ['importance:huge']);
    expect(wrong).toMatchObject({ result: { error: { code: 'CONTRACT_INVALID' } } });
    gate.open();
    await eventually(async () => (await pawl.calls.backlog()) === 0, { what: 'the end of the calls' });
    expect(pending(await submit(child, 100)).callId).toBeDefined();
  });
});

const REVISION = { name: 'sizes', namespace: 'acme', revision: 1, updatedAtMs: 0, updatedBy: 'ada' };

describe('I17: the cost of an operation', () => {
  const remove = { when: { action: 'delete' }, costUnits: 5 };
  const many = { when: { action: 'delete', recursive: true }, costUnits: 50 };
  const files = (budget?: ToolBudget) =>
    defineTool({
      name: 'files',
      version: '1.0.0',
      description: 'Manages files.',
      tier: 'workspace',
      effects: 'idempotent',
      input: z.object({
        action: z.enum(['read', 'delete']).default('read'),
        recursive: z.boolean().optional(),
        target: z.object({ kind: z.string() }).optional(),
        depth: z.number().optional(),
      }),
      ...(budget === undefined ? {} : { budget }),
      run: ({ action }) => ({ output: action }),
    });

  test.for<[ToolBudget | undefined, Readonly<Record<string, unknown>>, number]>([
    [undefined, {}, 1],
    [{ costUnits: 2 }, { action: 'delete' }, 2],
    [{ costs: [remove] }, { action: 'read' }, 1],
    [{ costs: [remove] }, { action: 'delete' }, 5],
    [{ costUnits: 2, costs: [remove] }, {}, 2],
    [{ costs: [{ when: { action: 'read' }, costUnits: 0 }] }, {}, 0],
    [{ costs: [{ when: { action: 'read' }, costUnits: 3 }] }, { action: undefined }, 3],
    [{ costs: [{ when: { depth: 0 }, costUnits: 9 }] }, { depth: -0 }, 9],
    [{ costs: [many, remove] }, { action: 'delete', recursive: true }, 50],
    [{ costs: [remove, many] }, { action: 'delete', recursive: true }, 50],
    [{ costs: [remove, many] }, { action: 'delete', recursive: false }, 5],
    [{ costs: [remove, { when: { recursive: true }, costUnits: 9 }] }, { action: 'delete', recursive: true }, 9],
    [{ costs: [{ when: { target: { kind: 'disk' } }, costUnits: 7 }] }, { target: { kind: 'disk' } }, 7],
    [{ costs: [{ when: { target: { kind: 'disk' } }, costUnits: 7 }] }, { target: { kind: 'file' } }, 1],
  ])('with %j, a call with %j costs %d', ([budget, params, expected]) => {
    expect(costUnitsOf(files(budget), params)).toBe(expected);
  });

  test('is taken at the front door and recorded, also of a tool that the registry declares', async () => {
    const fleet = await startFleet({ tools: [files({ costs: [remove] })] });
    await fleet.pawl.registry.put('acme.disks', {
      kind: 'http',
      description: 'Manages disks.',
      version: '1.0.0',
      tier: 'workspace',
      effects: 'idempotent',
      inputSchema: { type: 'object', properties: { action: { type: 'string' } } },
      budget: { costs: [{ when: { action: 'delete' }, costUnits: 8 }] },
      routing: { method: 'POST', url: 'https://disks.example/{action}' },
    } as never);
    const session = await fleet.pawl.openSession({ budget: { costUnits: 7 } });
    const codeOf = async (params: object, options: object = {}) => {
      const { status, error } = await session.call('files', { ...params }, options);
      return error?.code ?? status;
    };
    expect(await codeOf({ action: 'delete' }, { idempotencyKey: '1' })).toBe('success');
    expect(await codeOf({ action: 'delete' }, { idempotencyKey: '2' })).toBe('BUDGET_EXHAUSTED');
    expect(await codeOf({ action: 'read' })).toBe('success');
    expect(await spentOf(fleet, sessionAccount(session.key, {}).name)).toMatchObject({ calls: 2, costUnits: 6 });
    const costs = fleet.audited.filter(({ type }) => type === 'call' || type === 'attempt');
    expect(costs.map((event) => 'estimatedCostUnits' in event && event.estimatedCostUnits).sort()).toEqual([
      1, 1, 5, 5, 5,
    ]);
    const { error } = await session.call('disks', { action: 'delete' }, { namespace: 'acme' });
    expect(error).toMatchObject({ code: 'BUDGET_EXHAUSTED', message: expect.stringContaining('takes 8') });
  });

  test('of a parameter that the tool does not have is named when the tool is defined', () => {
    expect(() => files({ costs: [{ when: { acton: 'delete' }, costUnits: 5 }] })).toThrow(
      'budget.costs[0].when must be about one of the parameters: action, recursive, target, depth; got "acton"',
    );
    expect(() => files({ costs: [{ when: {}, costUnits: 5 }] })).toThrow('budget.costs.0.when');
  });

  const sizes = {
    type: 'object',
    properties: {
      action: { $ref: '#/$defs/action' },
      n: { type: 'integer', maximum: 5 },
      at: { type: ['string', 'null'] },
    },
    required: ['action'],
    additionalProperties: false,
    $defs: { action: { enum: ['read', 'delete'] } },
  };

  const choice = z.toJSONSchema(
    z.discriminatedUnion('op', [
      z.strictObject({ op: z.literal('copy'), depth: z.number().default(2) }),
      z.strictObject({ op: z.literal('move') }),
    ]),
    { io: 'input' },
  );

  test('counts the default of the alternative that the call is of', () => {
    const tool = { budget: { costs: [{ when: { depth: 2 }, costUnits: 7 }] }, inputSchema: choice };
    expect([{ op: 'copy' }, { op: 'move' }].map((params) => costUnitsOf(tool, params))).toEqual([7, 1]);
  });

  test.each<[object, string | undefined, Readonly<Record<string, unknown>>?]>([
    [{ action: 'delete' }, undefined],
    [{ n: 5, at: null }, undefined],
    [{ action: 'remove' }, 'budget.costs[0].when.action must be as the schema says'],
    [{ action: ['read', 'delete'] }, 'budget.costs[0].when.action must be as the schema says'],
    [{ action: 'delete', n: 6 }, 'budget.costs[0].when.n must be as the schema says'],
    [{ n: '5' }, 'budget.costs[0].when.n must be as the schema says'],
    [{ acton: 'delete' }, 'budget.costs[0].when must be about one of the parameters: action, n, at'],
    [{ op: 'copy', depth: 1 }, undefined, choice],
    [{ op: 'mv' }, 'budget.costs[0].when.op must be as the schema says', choice],
    [{ op: 'move', depth: 1 }, 'budget.costs[0].when', choice],
    [{ up: 'copy' }, 'budget.costs[0].when must be about one of the parameters: op, depth', choice],
  ])('when %j is %s, of a tool in code and of one in the registry', async (when, fault, inputSchema = sizes) => {
    const budget = { costs: [{ when: when as Record<string, unknown>, costUnits: 5 }] };
    const common = {
      version: '1.0.0',
      description: 'Has sizes.',
      tier: 'workspace',
      inputSchema,
      budget,
    } as const;
    const define = () => defineUntypedTool({ ...common, name: 'sizes', run: () => ({ output: null }) });
    const routing = { method: 'POST', url: 'https://sizes.example/' } as const;
    const declare = () => declaredToolRecord({ ...common, kind: 'http', routing }, REVISION);
    if (fault === undefined) {
      expect(define).not.toThrow();
      return void (await declare());
    }
    expect(define).toThrow(fault);
    const message = expect.stringContaining(fault.replace(' must', ': must'));
    await expect(declare()).rejects.toMatchObject({ code: 'CONTRACT_INVALID', message });
  });
});
