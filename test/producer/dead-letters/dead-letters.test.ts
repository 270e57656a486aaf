/** The view of calls of mutating tools that failed. */
import { describe, expect, test } from 'vitest';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, httpError, scripted } from '../../helpers/tools.ts';
import { failed, NO_CIRCUIT, ONE_TRY, payments } from './payments.ts';

describe('the view', () => {
  test('has the failures of tools that change something, the newest first, and costs a success nothing', async () => {
    const { tool } = payments();
    const { tool: good } = scripted('good', () => ({ output: 1 }));
    const look = scripted('look', () => Promise.reject(httpError(400)), { tier: 'read-only', effects: 'none' });
    const fleet = await startFleet({ tools: [tool, good, echo, look.tool], settings: NO_CIRCUIT });
    await fleet.session.call('good', {});
    await fleet.session.call('look', {});
    expect((await fleet.world.keys()).filter((key) => key.includes('dead-letter'))).toEqual([]);
    const [first = '', second = ''] = [...(await failed(fleet, 1)), ...(await failed(fleet, 2)).slice(1)];
    const { deadLetters, counts, next } = await fleet.pawl.deadLetters.list();
    expect(deadLetters.map(({ record }) => record.callId)).toEqual([second, first]);
    expect(deadLetters[0]?.record.outcome?.error?.code).toBe('HTTP_400');
    expect(counts).toEqual({ total: 2, codes: { HTTP_400: 2 }, tools: { 'tools.pay': 2 } });
    expect(next).toBeUndefined();
  });

  test('is filtered by tool, code, session, circuit and time, and paged', async () => {
    const { tool } = payments();
    const other = scripted('send', () => Promise.reject(httpError(503)), { effects: 'idempotent' });
    const fleet = await startFleet({ tools: [tool, other.tool], settings: NO_CIRCUIT });
    const before = await fleet.pawl.backend.ledger.now();
    const paid = await failed(fleet, 7);
    await failed(fleet, 1, 'send');
    const after = await fleet.pawl.backend.ledger.now();
    const { deadLetters: all } = fleet.pawl;
    const total = async (filter: Parameters<typeof all.list>[0]) => (await all.list(filter)).counts?.total;
    expect(await total({ tool: 'pay' })).toBe(7);
    expect(await total({ tool: 'tools.send' })).toBe(1);
    expect(await total({ tool: 'end' })).toBe(0);
    expect(await total({ code: 'HTTP_503' })).toBe(1);
    expect(await total({ session: fleet.session.key })).toBe(8);
    expect(await total({ session: 'another' })).toBe(0);
    expect(await total({ circuit: 'tool:tools.pay' })).toBe(7);
    expect(await total({ sinceMs: before, untilMs: after })).toBe(8);
    expect(await total({ untilMs: before - 1 })).toBe(0);
    expect(await total({ sinceMs: after + 1 })).toBe(0);
    const seen: string[] = [];
    let next: string | undefined;
    do {
      const page = await all.list({ tool: 'pay', limit: 3, next });
      seen.push(...page.deadLetters.map(({ record }) => record.callId));
      expect(page.counts === undefined).toBe(next !== undefined);
      next = page.next;
    } while (next !== undefined);
    expect(seen).toHaveLength(7);
    expect(new Set(seen)).toEqual(new Set(paid));
    await expect(all.list({ next: 'nonsense' })).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path: 'next' }],
    });
  });

  test('keeps a tenant’s dead letters to itself', async () => {
    const { tool, mend, paid } = payments();
    const fleet = await startFleet({ tools: [tool], settings: NO_CIRCUIT });
    const ofTenant = async (tenantId: string) => {
      const session = await fleet.pawl.openSession({ actorId: 'ada', tenantId });
      return (await session.call('pay', {}, { idempotencyKey: 'k', ...ONE_TRY })).callId ?? '';
    };
    const [red, blue] = [await ofTenant('red'), await ofTenant('blue')];
    const { deadLetters } = fleet.pawl;
    const page = await deadLetters.list({ tenantId: 'red' });
    expect(page.deadLetters.map(({ record }) => record.callId)).toEqual([red]);
    expect(page.counts?.total).toBe(1);
    mend();
    expect(await deadLetters.redrive({ ids: [blue], tenantId: 'red' })).toMatchObject({
      matched: 1,
      started: 0,
      skipped: [{ callId: blue, code: 'UNKNOWN_CALL' }],
    });
    expect(await deadLetters.discard({ ids: [blue], tenantId: 'red' })).toMatchObject({ started: 0 });
    expect(await deadLetters.redrive({ filter: {}, tenantId: 'red' })).toMatchObject({ matched: 1, started: 1 });
    await fleet.pawl.result(red);
    expect(paid).toEqual(['k']);
    expect((await deadLetters.list()).deadLetters.map(({ record }) => record.callId)).toEqual([blue]);
    const [mine] = await deadLetters.redrives({ tenantId: 'red' });
    await expect(deadLetters.progress(mine?.redriveId ?? '', { tenantId: 'blue' })).rejects.toMatchObject({
      code: 'UNKNOWN_REDRIVE',
    });
  });

  test('keeps a failure as long as its setting says, and forgets it with its record', async () => {
    const { tool } = payments();
    const settings: Partial<SettingsInput> = {
      ...NO_CIRCUIT,
      ttl: { doneMs: 60_000, failedMs: 10 },
      tools: { 'tools.pay': { ttl: { failedKeptMs: 400 } } },
    };
    const fleet = await startFleet({ tools: [tool], settings });
    const [callId = ''] = await failed(fleet, 1);
    const record = await fleet.pawl.read(callId);
    expect((record?.expiresAtMs ?? 0) - (record?.updatedAtMs ?? 0)).toBe(400);
    expect((await fleet.pawl.deadLetters.list()).deadLetters).toHaveLength(1);
    await eventually(async () => (await fleet.pawl.read(callId)) === undefined);
    expect((await fleet.pawl.deadLetters.list()).deadLetters).toEqual([]);
    expect((await fleet.world.keys()).filter((key) => key.includes('dead-letter'))).toEqual([]);
  });

  test('loses a call that is flushed, and one whose key is used again', async () => {
    const { tool, mend } = payments();
    const fleet = await startFleet({ tools: [tool], settings: { ...NO_CIRCUIT, ttl: { failedMs: 1 } } });
    const [first = '', second = ''] = await failed(fleet, 2);
    await fleet.pawl.calls.flush({ callId: first });
    expect((await fleet.pawl.deadLetters.list()).counts?.total).toBe(1);
    mend();
    const again = await fleet.session.call('pay', { number: 1 }, { idempotencyKey: 'pay-1' });
    expect(again).toMatchObject({ status: 'success', callId: second });
    expect((await fleet.pawl.deadLetters.list()).counts?.total).toBe(0);
    expect(await fleet.pawl.deadLetters.redrive({ ids: [second] })).toMatchObject({
      started: 0,
      skipped: [{ callId: second, code: 'CALL_NOT_REDRIVABLE' }],
    });
  });
});
