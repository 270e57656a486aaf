import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { Pawl } from '../../../src/producer/client.ts';
import type { ScheduleProgress } from '../../../src/shared/schedules/progress.ts';
import { occurrenceKey } from '../../../src/shared/schedules/schedule.ts';
import { FileBlobs } from '../../../src/shared/store/blobs/file-blobs.ts';
import { SegmentMover } from '../../../src/shared/store/segments/segment-mover.ts';
import { METRICS } from '../../../src/shared/telemetry/metrics.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { type Fleet, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';

/** Calls of a tool that notes when it was to run, and ends when its gate opens. */
function noting() {
  const noted: {
    readonly key: string;
    readonly scheduledAt: string;
    readonly schedule: string;
  }[] = [];
  const gates: (() => void)[] = [];
  const tool = defineTool({
    name: 'note',
    version: '1.0.0',
    description: 'Notes.',
    tier: 'workspace',
    effects: 'once',
    input: z.strictObject({ waits: z.boolean().default(false) }),
    async run({ waits }, ctx) {
      noted.push({
        key: ctx.idempotencyKey,
        schedule: String(ctx.values.get('schedule')),
        scheduledAt: String(ctx.values.get('scheduledAt')),
      });
      if (waits)
        await new Promise<void>((resolve, reject) => {
          gates.push(resolve);
          ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason));
        });
      return { output: noted.length };
    },
  });
  return { tool, noted, gates };
}

/** Puts a schedule back to a time long ago, as if no front door had run since. */
async function backTo(pawl: Pawl, id: string, cursorMs: number, change: Partial<ScheduleProgress> = {}): Promise<void> {
  const { schedules } = pawl.backend;
  const { found, seen } = await schedules.read(id);
  if (found === undefined) throw new Error(`there is no schedule ${id}`);
  expect(await schedules.write(id, seen, { progress: { ...found.progress, cursorMs, ...change }, dueAtMs: 1 })).toBe(
    true,
  );
}

const runningProducer = (fleet: Fleet) => fleet.openProducer({}, { schedules: true });
const HOUR_MS = 3_600_000;
/** An hourly cron expression, and its last time, about twenty minutes ago. */
function hourly() {
  const last = new Date(Math.floor(Date.now() / 60_000) * 60_000 - 20 * 60_000);
  return { cron: `${last.getUTCMinutes()} * * * *`, lastMs: last.getTime() };
}

test('an occurrence is a call of the session, whose key is the schedule and its time, and which runs once', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session } = fleet;
  await pawl.schedules.put({ id: 'often', tool, session, every: '1s', limit: 2 });
  await Promise.all([runningProducer(fleet), runningProducer(fleet), runningProducer(fleet)]);
  const ended = await eventually(async () => {
    const view = await pawl.schedules.get('often');
    return view.state === 'ended' && noted.length === 2 && view;
  });
  expect(ended).toMatchObject({ counts: { started: 2, missed: 0, skipped: 0 }, next: [] });
  for (const { key, schedule, scheduledAt } of noted) {
    expect(schedule).toBe('often');
    expect(key).toBe(occurrenceKey('often', Date.parse(scheduledAt)));
    expect(Date.parse(scheduledAt) % 1_000).toBe(0);
  }
  expect(new Set(noted.map(({ key }) => key)).size).toBe(2);
  const call = await pawl.read(ended.last?.callId ?? '');
  expect(call?.request.envelope.target).toMatchObject({ sessionKey: session.key, actorId: 'ada' });
});

test('occurrences that an outage missed follow the rule', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session } = fleet;
  const { cron, lastMs } = hourly();
  for (const missed of ['skip', 'run-latest', 'run-all'] as const) {
    await pawl.schedules.put({ id: missed, tool, session: session.key, cron, missed });
    await backTo(pawl, missed, lastMs - 3 * HOUR_MS);
  }
  expect(await pawl.backend.schedules.overdue(Date.now())).toBe(3);
  const door = await runningProducer(fleet);
  await eventually(async () => {
    const counts = (await pawl.schedules.list()).map((view) => view.counts);
    return counts.every(({ started, missed }) => started + missed === 3);
  });
  const timesOf = (id: string) =>
    noted.filter((each) => each.schedule === id).map(({ scheduledAt }) => Date.parse(scheduledAt));
  const hours = [2, 1, 0].map((number) => lastMs - number * HOUR_MS);
  await eventually(() => timesOf('run-all').length === 3);
  expect(timesOf('skip')).toEqual([]);
  expect(timesOf('run-latest')).toEqual(hours.slice(2));
  expect(timesOf('run-all')).toEqual(hours);
  expect(await pawl.backend.schedules.overdue(Date.now())).toBe(0);
  const counted = (result: string) => door.metrics.series().get(`${METRICS.occurrences.name}{result="${result}"}`);
  await eventually(() => counted('started') === 4);
  expect(counted('missed')).toBe(5);
});

test('a front door that died with an occurrence in hand leaves it to another one, which starts no second call', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session } = fleet;
  const { cron, lastMs: at } = hourly();
  await pawl.schedules.put({ id: 'hourly', tool, session: session.key, cron });
  // The one that died had submitted the call.
  await session.call(
    tool,
    {},
    { idempotencyKey: occurrenceKey('hourly', at), baggage: { schedule: 'hourly', scheduledAt: '' } },
  );
  await backTo(pawl, 'hourly', at, { starting: { atMs: at, sinceMs: Date.now() - 5_000, callRevision: 1 } });
  // Too long ago: whether its call existed cannot be told.
  await pawl.schedules.put({ id: 'forgotten', tool, session: session.key, cron });
  await backTo(pawl, 'forgotten', at, { starting: { atMs: at, sinceMs: Date.now() - HOUR_MS, callRevision: 1 } });
  await runningProducer(fleet);
  await eventually(async () => (await pawl.schedules.get('forgotten')).counts.unknown === 1);
  await eventually(async () => (await pawl.schedules.get('hourly')).counts.started === 1);
  expect(noted).toHaveLength(1);
});

test('overlaps: one that is queued starts when the call before it has ended, another kind cancels it', async () => {
  const { tool, noted, gates } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session } = fleet;
  const waits = { tool, params: { waits: true }, session: session.key, every: '1s' } as const;
  await pawl.schedules.put({ id: 'queue', ...waits, overlap: 'queue', limit: 2 });
  await runningProducer(fleet);
  await eventually(async () => (await pawl.schedules.get('queue')).waiting === 1);
  expect(noted).toHaveLength(1);
  gates[0]?.();
  await eventually(() => noted.length === 2);
  gates[1]?.();
  await pawl.schedules.put({ id: 'cancel', ...waits, overlap: 'cancel-previous', limit: 2 });
  const { recent } = await eventually(async () => {
    const view = await pawl.schedules.get('cancel');
    return view.counts.started === 2 && view;
  });
  const [second = '', first = ''] = recent.map(({ callId }) => callId ?? '');
  expect((await pawl.result(first))?.error?.code).toBe('CANCELLED');
  await eventually(() => noted.length === 4);
  gates.at(-1)?.();
  expect((await pawl.result(second))?.status).toBe('success');
});

test('a schedule whose session was closed pauses itself, and says so', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session, audited } = fleet;
  await pawl.schedules.put({ id: 'lost', tool, session: session.key, every: '1s' });
  await session.close();
  await runningProducer(fleet);
  const view = await eventually(async () => {
    const found = await pawl.schedules.get('lost');
    return found.state === 'paused' && found;
  });
  expect(view).toMatchObject({
    pausedBy: 'schedule:lost',
    pauseReason: expect.stringContaining('is closed'),
    next: [],
  });
  expect(noted).toEqual([]);
  // The record follows the change.
  await eventually(() =>
    audited.some(
      (event) => event.type === 'schedule-changed' && event.action === 'paused' && event.by === 'schedule:lost',
    ),
  );
  await expect(pawl.schedules.resume('lost')).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
  const another = await pawl.openSession();
  expect(await pawl.schedules.put({ id: 'lost', tool, session: another.key, every: '1s' })).toMatchObject({
    state: 'active',
  });
});

test('a call that is refused for now is made as soon as it may be', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session, events } = fleet;
  const { cron, lastMs } = hourly();
  await pawl.schedules.put({ id: 'hourly', tool, session: session.key, cron });
  await backTo(pawl, 'hourly', lastMs - 1);
  await pawl.circuits.set('force_open', { tool: 'note' });
  await runningProducer(fleet);
  await eventually(() => events.some((event) => event.type === 'refused' && event.code === 'CIRCUIT_OPEN'));
  expect((await pawl.schedules.get('hourly')).counts).toMatchObject({ started: 0, refused: 0 });
  await pawl.circuits.set('reset', { tool: 'note' });
  await eventually(() => noted.length === 1);
  await eventually(async () => (await pawl.schedules.get('hourly')).counts.started === 1);
  expect((await pawl.schedules.get('hourly')).counts).toMatchObject({ refused: 0 });
});

test('a forged schedule is never run, and is listed nowhere', async () => {
  const { tool, noted } = noting();
  const key = 'k1:0123456789abcdef0123456789abcdef';
  const fleet = await startFleet({ tools: [tool], settings: { signingKeys: [{ kid: 'k1', key: key.slice(3) }] } });
  const { pawl, session, world } = fleet;
  await pawl.schedules.put({ id: 'mine', tool, session: session.key, every: '1s' });
  const { redis } = pawl.backend;
  const records = `${world.prefix}:{schedules}:records`;
  const stored = (await redis.hget(records, 'mine')) ?? '';
  await redis.hset(records, 'mine', stored.replace('"every":"1s"', '"every":"2s"'));
  await runningProducer(fleet);
  expect(await pawl.schedules.list()).toEqual([]);
  await expect(pawl.schedules.get('mine')).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await eventually(
    async () => Number(await redis.zscore(`${world.prefix}:{schedules}:due`, 'mine')) > Date.now() + 1_000,
  );
  expect(noted).toEqual([]);
  expect(await pawl.schedules.put({ id: 'mine', tool, session: session.key, every: '1h' })).toMatchObject({
    revision: 1,
  });
});

test('a schedule that is written again goes on where it was, unless its times are others', async () => {
  const { tool } = noting();
  const { pawl, session } = await startFleet({ tools: [tool], workers: 0 });
  const put = (change: object) =>
    pawl.schedules.put({ id: 's', tool, session: session.key, cron: '0 * * * *', ...change });
  await put({});
  await backTo(pawl, 's', Date.now() - HOUR_MS, {
    counts: { started: 7, skipped: 0, missed: 0, refused: 0, unknown: 0 },
  });
  await pawl.schedules.pause('s', { reason: 'holidays' });
  expect(await put({ params: { waits: true } })).toMatchObject({
    state: 'paused',
    pauseReason: 'holidays',
    counts: { started: 7 },
  });
  expect(await pawl.schedules.resume('s')).toMatchObject({ state: 'active', next: { length: 5 } });
  expect(await put({ cron: '30 * * * *' })).toMatchObject({ revision: 3, counts: { started: 0 } });
});

test('parameters that JSON cannot say are refused when the schedule is written, and nothing is stored', async () => {
  const { pawl, session, world } = await startFleet({ tools: [echo] });
  const cyclic: Record<string, unknown> = {};
  cyclic['self'] = cyclic;
  for (const wrong of [Number.NaN, 1n, () => 1, new Map(), cyclic, 'x'.repeat(70_000)]) {
    const put = pawl.schedules.put({ id: 'a', tool: 'echo', every: '5m', session, params: { text: 'hi', wrong } });
    await expect(put).rejects.toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'params' }] });
  }
  expect((await world.keys()).filter((key) => key.includes('{schedules}'))).toEqual([]);
});

test('a runner that is stopped leaves what is due to others', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session } = fleet;
  const other = await runningProducer(fleet);
  await other.stopSchedules();
  const { cron, lastMs } = hourly();
  await pawl.schedules.put({ id: 'hourly', tool, session: session.key, cron });
  await backTo(pawl, 'hourly', lastMs - 1);
  await runningProducer(fleet);
  await eventually(() => noted.length === 1);
});

test('a schedule goes on while the store with its last call cannot be read', async () => {
  const { tool, noted } = noting();
  const fleet = await startFleet({ tools: [tool] });
  const { pawl, session } = fleet;
  const folder = mkdtempSync(join(tmpdir(), 'pawl-schedules-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const { redis, ledger } = pawl.backend;
  const { blobs, segments } = ledger.access;
  blobs.keepIn(new FileBlobs(folder));
  const { callId: lastCallId = '' } = await session.call(tool, {});
  const mover = new SegmentMover({ redis, blobs, segments, afterMs: 0 });
  expect(await mover.run(ledger.keys({ tier: 'workspace', shard: 0 }), Date.now())).toMatchObject({ calls: 1 });
  const { cron, lastMs } = hourly();
  await pawl.schedules.put({ id: 'hourly', tool, session, cron });
  await backTo(pawl, 'hourly', lastMs - 1, { lastCallId });
  // It knows nothing of the folder.
  await runningProducer(fleet);
  await eventually(async () => (await pawl.schedules.get('hourly')).counts.started === 1);
  await eventually(() => noted.length === 2);
});
