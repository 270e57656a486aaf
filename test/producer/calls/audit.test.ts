import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { CallAudit } from '../../../src/producer/calls/audit.ts';
import { ToolError } from '../../../src/shared/errors/failure.ts';
import type { AuditRecord } from '../../../src/shared/store/audit/audit-trail.ts';
import { AuditKeys } from '../../../src/shared/store/redis/keys.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, gated, scripted } from '../../helpers/tools.ts';
import { VirtualTime } from '../../model/time.ts';
import { envelopeFor } from '../../shared/store/calls.ts';

/** The records of a call or a session, the oldest first. */
async function trailOf(fleet: Fleet, query: Parameters<Fleet['pawl']['audit']>[0] = {}): Promise<AuditRecord[]> {
  const found = await fleet.pawl.audit({ sessionKey: fleet.session.key, ...query });
  return found.map(({ record }) => record).reverse();
}

const types = (records: readonly AuditRecord[]) => records.map(({ type }) => type);

describe('refusals that come again and again', () => {
  function open() {
    const time = new VirtualTime();
    const told: [sessionKey: string, code: string | undefined, times: number | undefined][] = [];
    const audit = new CallAudit({
      record: (event) => {
        if (event.type === 'call') told.push([event.sessionKey, event.code, event.times]);
      },
      writer: { formatSubmitted: () => '', add: () => {} },
      publishedTool: () => undefined,
      schedule: time.schedule,
    });
    const refuse = (sessionKey: string, code = 'CIRCUIT_OPEN') => {
      const envelope = envelopeFor('key', sessionKey);
      audit.observe({ type: 'refused', envelope, code, message: 'not now' });
    };
    return { time, audit, told, refuse };
  }

  test('of an open circuit’s refusals, the first is recorded at once, and those within the next second in one record with their number', () => {
    const { time, told, refuse } = open();
    for (let refusals = 0; refusals < 5; refusals += 1) refuse('trip');
    refuse('other');
    expect(told.splice(0)).toEqual([
      ['trip', 'CIRCUIT_OPEN', undefined],
      ['other', 'CIRCUIT_OPEN', undefined],
    ]);
    expect(time.next()).toBe(true);
    expect(told.splice(0)).toEqual([['trip', 'CIRCUIT_OPEN', 4]]);
    refuse('trip');
    expect(told).toEqual([['trip', 'CIRCUIT_OPEN', undefined]]);
    expect(time.next()).toBe(true);
    expect(time.next()).toBe(false);
    expect(told).toHaveLength(1);
  });

  test('a refusal that depends on the call is recorded each time', () => {
    const { told, refuse } = open();
    for (let refusals = 0; refusals < 3; refusals += 1) refuse('trip', 'PERMISSION_DENIED');
    expect(told).toHaveLength(3);
  });

  test('closing and reading record what was counted until then', () => {
    const { time, audit, told, refuse } = open();
    for (let refusals = 0; refusals < 3; refusals += 1) refuse('trip');
    audit.flush();
    expect(told.at(-1)).toEqual(['trip', 'CIRCUIT_OPEN', 2]);
    expect(time.next()).toBe(false);
  });
});

describe('I4: one record per call, attempt, decision and override', () => {
  test('a call and its attempt are in the trail when its caller has the result, and are chained soon', async () => {
    const fleet = await startFleet({ tools: [echo] });
    const result = await fleet.session.call(echo, { text: 'hello' }, { idempotencyKey: 'trip-1' });
    const [call, attempt, ...more] = await trailOf(fleet);
    expect(more).toEqual([]);
    expect(call).toMatchObject({
      type: 'call',
      answer: 'claimed',
      callId: result.callId,
      tool: 'tools.echo',
      toolVersion: '1.0.0',
      tier: 'read-only',
      actorId: 'ada',
      request: '{"text":"hello"}',
      idempotencyKeyHash: expect.stringMatching(/^.{43}$/),
      estimatedCostUnits: 1,
    });
    expect(attempt).toMatchObject({
      type: 'attempt',
      status: 'success',
      callId: result.callId,
      attempt: 1,
      fence: 1,
      result: '{"text":"hello"}',
      startedAtNs: expect.stringMatching(/^\d{19}$/),
      finishedAtNs: expect.stringMatching(/^\d{19}$/),
      latencyMs: expect.any(Number),
      trustClass: 'BestEffort',
    });
    await eventually(async () => (await fleet.pawl.audit()).every(({ seq }) => seq !== undefined), {
      what: 'the seals',
    });
  });

  test('retries, replays, refusals and cancellations each have theirs, and overrides say whose they are', async () => {
    let runs = 0;
    const flaky = scripted('flaky', () => {
      runs += 1;
      if (runs === 1) throw new ToolError('not now', { code: 'HTTP_503', retriable: true, nothingHappened: true });
      return { output: 'well' };
    });
    const gate = gated();
    const fleet = await startFleet({ tools: [flaky.tool, gate.tool] });
    const { session, pawl } = fleet;
    await session.call('flaky', {}, { idempotencyKey: 'one' });
    await session.call('flaky', {}, { idempotencyKey: 'one' });
    await session.call('flaky', { other: true }, { idempotencyKey: 'one' });
    const told = await trailOf(fleet, { tool: 'flaky' });
    expect(told.map(({ type, answer, status, code }) => [type, answer ?? status, code])).toEqual([
      ['call', 'claimed', undefined],
      ['attempt', 'error', 'HTTP_503'],
      ['attempt', 'success', undefined],
      ['call', 'replayed', undefined],
      ['call', 'refused', 'IDEMPOTENCY_CONFLICT'],
    ]);
    const held = pending(await session.submit('gate', {}));
    await gate.arrived();
    await pawl.cancel(held.callId, 'operator:42');
    await pawl.circuits.set('force_open', { tool: 'gate' }, 'too slow', 'admin:7');
    await pawl.circuits.set('reset', { tool: 'gate' }, undefined, 'admin:7');
    // There is no such circuit: nothing is reset.
    expect(await pawl.circuits.set('reset', { tool: 'gat' }, undefined, 'admin:7')).toEqual([]);
    await pawl.reliability.set(false, { tool: 'gate', reason: 'trying', by: 'admin:7' });
    expect((await trailOf(fleet, { callId: held.callId })).map(({ type, status, by }) => [type, status ?? by])).toEqual(
      [
        ['call', undefined],
        ['attempt', 'aborted'],
        ['override', 'operator:42'],
      ],
    );
    const overrides = await pawl.audit({ type: 'override', sessionKey: undefined });
    expect(overrides.map(({ record }) => [record['what'], record['action'], record['by'], record['reason']])).toEqual([
      ['reliability', 'disable', 'admin:7', 'trying'],
      ['circuit', 'reset', 'admin:7', undefined],
      ['circuit', 'force_open', 'admin:7', 'too slow'],
      ['cancellation', expect.any(String), 'operator:42', undefined],
    ]);
  });

  test('a result that no caller can be given is an error in the trail, as for its caller', async () => {
    const cyclic: { self?: object } = {};
    cyclic.self = cyclic;
    const outputs: Readonly<Record<string, unknown>> = {
      bigint: { total: 1n },
      cyclic,
      throwing: { toJSON: () => JSON.parse('no JSON') as unknown },
      large: 'x'.repeat(2_000),
    };
    const give = scripted('give', (_ctx, { what }) => ({ output: outputs[String(what)] }), { maxResultBytes: 1_000 });
    const fleet = await startFleet({ tools: [give.tool] });
    for (const what of Object.keys(outputs)) {
      const { callId, error } = await fleet.session.call('give', { what });
      const [record] = await trailOf(fleet, { type: 'attempt', callId });
      expect(record).toMatchObject({ status: 'error', code: error?.code, reason: error?.message });
      expect(record?.code).toBe(what === 'large' ? 'RESULT_TOO_LARGE' : 'RESULT_INVALID');
    }
  });

  test('calls that end with their session were cancelled by the actor who closed it', async () => {
    const gate = gated();
    const fleet = await startFleet({ tools: [gate.tool], workers: 0 });
    const { session, pawl } = fleet;
    await session.submit('gate', {});
    await pawl.sessions.close(session.key, 'operator:42');
    const overrides = await pawl.audit({ type: 'override' });
    expect(overrides.map(({ record }) => [record['what'], record['by']])).toEqual([
      ['cancellation', 'operator:42'],
      ['session-closed', 'operator:42'],
    ]);
  });

  test('what a worker refuses to run has a record, too; reads can be left out', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0, settings: { audit: { reads: 'off' } } });
    const write = scripted('write', () => ({ output: 1 }));
    await fleet.startWorker({ tools: [echo, write.tool], settings: { tools: { write: { enabled: false } } } });
    await fleet.session.call(echo, { text: 'a' });
    await eventually(() => fleet.pawl.catalogue().then(({ tools }) => tools.length === 2), { what: 'the tool' });
    const refused = await fleet.session.call('write', {});
    expect(refused.error?.code).toBe('PERMISSION_DENIED');
    // The worker tells of it, and is not waited for; the producer's own record may come behind it.
    const told = await eventually(async () => {
      const records = await trailOf(fleet);
      return records.length >= 2 && records;
    });
    expect(types(told).toSorted()).toEqual(['call', 'call-ended']);
    expect(told.find(({ type }) => type === 'call-ended')).toMatchObject({
      code: 'PERMISSION_DENIED',
      tool: 'tools.write',
      callId: refused.callId,
    });
  });
});

describe('I4: elevated calls fail closed', () => {
  function transfer() {
    const ran: unknown[] = [];
    const tool = defineTool({
      name: 'transfer',
      version: '1.0.0',
      description: 'Sends money.',
      tier: 'elevated',
      input: z.object({ amount: z.number(), password: z.string().optional() }),
      run: (params) => {
        ran.push(params);
        return { output: { sent: params.amount } };
      },
    });
    return { tool, ran };
  }

  async function ask(fleet: Fleet) {
    const session = await fleet.pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const { callId, result } = pending(await session.submit('transfer', { amount: 5 }));
    const listed = await eventually(
      async () =>
        (await fleet.pawl.approvals.list({ state: 'pending' })).find(({ record }) => record.request.callId === callId),
      { what: 'the approval' },
    );
    const approve = (edited: { params?: Record<string, unknown> } = {}) =>
      fleet.pawl.approvals.decide(listed.record.request.id, {
        decision: 'approve',
        digest: listed.digest,
        by: 'grace',
        ...edited,
      });
    return { session, callId, result, approve };
  }

  test('request, decision, use and attempt are recorded in this order', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool] });
    const { callId, result, approve } = await ask(fleet);
    await approve();
    expect(contentOf(await result)).toEqual({ sent: 5 });
    expect(types(await trailOf(fleet, { sessionKey: undefined, callId }))).toEqual([
      'call',
      'approval-requested',
      'approval-decided',
      'approval-used',
      'attempt',
    ]);
    expect(ran).toHaveLength(1);
  });

  test('parameters that an approver edited are recorded with the decision, without their secrets', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool] });
    const { callId, result, approve } = await ask(fleet);
    await approve({ params: { amount: 3, password: 'xyzzy-plugh' } });
    expect(contentOf(await result)).toEqual({ sent: 3 });
    expect(ran).toEqual([{ amount: 3, password: 'xyzzy-plugh' }]);
    const told = await trailOf(fleet, { sessionKey: undefined, callId });
    expect(told.find(({ type }) => type === 'call')).toMatchObject({ request: '{"amount":5}' });
    const decided = told.find(({ type }) => type === 'approval-decided');
    expect(decided).toMatchObject({ edited: true, request: expect.stringContaining('"amount":3') });
    expect(JSON.stringify(told)).not.toContain('xyzzy-plugh');
  });

  test('where its record cannot be written, the tool does not run', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool, echo] });
    const { result, approve } = await ask(fleet);
    const { redis, prefix } = fleet.pawl.backend;
    const { pending: waiting } = new AuditKeys(prefix);
    await redis.multi().del(waiting).set(waiting, 'not a stream').exec();
    await approve();
    expect((await result).error).toMatchObject({ code: 'AUDIT_UNAVAILABLE' });
    expect(ran).toEqual([]);
    // What is not elevated goes on.
    expect(contentOf(await fleet.session.call(echo, { text: 'still here' }))).toEqual({ text: 'still here' });
    await redis.del(waiting);
  });
});
