import { expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { type AnyTool, defineTool, type Effects } from '../../../src/index.ts';
import type { ToolCallEnvelope } from '../../../src/shared/calls/envelope.ts';
import { digest } from '../../../src/shared/schema/canonical-json.ts';
import { Catalogue } from '../../../src/shared/store/fleet/catalogue.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { gated, scripted } from '../../helpers/tools.ts';

const runs: string[] = [];

/** Says which version ran. */
function noteOf(version: string, effects: Effects = 'once', input: z.ZodObject = z.strictObject({ text: z.string() })) {
  return defineTool({
    name: 'note',
    version,
    description: 'Notes.',
    tier: 'workspace',
    effects,
    input,
    run: (_params, { callId }) => {
      runs.push(`${callId} ${version}`);
      return { output: version };
    },
    ...(effects === 'probe' ? { probe: () => ({ state: 'unknown' as const }) } : {}),
  });
}

const other = scripted('other', () => ({ output: null })).tool;

/** The tool is offered, and a worker that cannot run it takes its call. */
async function callPassedOn(published: AnyTool, present: AnyTool, toolWaitMs?: number) {
  const fleet = await startFleet({
    tools: [published],
    workers: 0,
    settings: toolWaitMs === undefined ? {} : { toolWaitMs },
  });
  await fleet.startWorker({ tools: [present] });
  // Whatever the catalogue offers first, the call was validated against this version.
  const submission = pending(await submitTo(fleet, published));
  await eventually(async () => ((await fleet.pawl.read(submission.callId))?.fence ?? 0) > 0);
  return { fleet, submission, ranIn: () => runs.filter((run) => run.startsWith(submission.callId)) };
}

async function submitTo(fleet: Fleet, tool: AnyTool, change: Partial<ToolCallEnvelope> = {}) {
  const envelope = { ...fleet.session.envelope(tool, { text: 'a' }), ...change };
  const callId = `w0.${digest(envelope.requestId)}`;
  const { ledger, catalogue } = fleet.pawl.backend;
  const published = (await catalogue.read()).tools.find(
    ({ name, version }) => name === tool.name && version === tool.version,
  );
  await ledger.claim({
    callId,
    mode: 'enforced',
    paramsDigest: digest('a'),
    request: {
      envelope,
      tool: { version: tool.version, definition: published?.definition ?? 'unknown' },
      idempotencyKey: callId,
    },
    generation: '1',
    circuit: `tool:tools.${tool.name}`,
    keepJob: true,
  });
  const result = fleet.pawl.result(callId).then((ended) => {
    if (ended === undefined) throw new Error('the call did not end');
    return ended;
  });
  result.catch(() => {});
  return { kind: 'pending', callId, requestId: envelope.requestId, result, stop: () => {} } as const;
}

test.each([
  ['an older', '1.1.0', '1.2.0'],
  ['a newer', '2.0.0', '1.2.0'],
])(
  '%s worker (%s) passes a call on that was validated against %s, and it runs where it fits (row 30)',
  async (_age, present, asked) => {
    const { fleet, submission, ranIn } = await callPassedOn(noteOf(asked), noteOf(present));
    expect(ranIn()).toEqual([]);
    await fleet.startWorker();
    expect(await submission.result).toMatchObject({ status: 'success', attempts: 1, output: { content: asked } });
    expect(ranIn()).toHaveLength(1);
  },
);

test('a later version of the same line runs the call, after it has validated the parameters again', async () => {
  const fleet = await startFleet({ tools: [noteOf('1.2.0')], workers: 0 });
  const taken = await submitTo(fleet, noteOf('1.2.0'));
  await fleet.startWorker({ tools: [noteOf('1.3.0')] });
  expect(await taken.result).toMatchObject({ status: 'success', output: { content: '1.3.0' } });
});

test.each(['1.2.0', '1.3.0'])(
  'version %s that refuses what was validated before says so, and nothing runs',
  async (version) => {
    const fleet = await startFleet({ tools: [noteOf('1.2.0')], workers: 0 });
    const { callId, result } = await submitTo(fleet, noteOf('1.2.0'));
    await fleet.startWorker({ tools: [noteOf(version, 'once', z.strictObject({ text: z.string().min(2) }))] });
    expect(await result).toMatchObject({
      status: 'error',
      error: { code: 'DEFINITION_CHANGED', retriable: true, issues: [{ path: 'text' }] },
    });
    expect(runs.filter((run) => run.startsWith(callId))).toEqual([]);
  },
);

test('a contract that a worker does not know is left to others, and never read', async () => {
  const fleet = await startFleet({ tools: [noteOf('1.2.0')], settings: { toolWaitMs: 300 } });
  const { callId, result } = await submitTo(fleet, noteOf('1.2.0'), { contractVersion: '2.0' as '1.1' });
  expect(await result).toMatchObject({
    status: 'error',
    error: { code: 'TOOL_UNAVAILABLE', message: expect.stringContaining('contract 2.0') },
  });
  expect(runs.filter((run) => run.startsWith(callId))).toEqual([]);
});

test('a call whose tool no worker publishes any more ends in time, and says why', async () => {
  const { submission } = await callPassedOn(noteOf('1.2.0'), other, 300);
  expect(await submission.result).toMatchObject({
    status: 'error',
    attempts: 0,
    error: { code: 'TOOL_UNAVAILABLE', retriable: true, message: expect.stringContaining('does not have tools.note') },
  });
});

test.each(['once', 'probe'] as const)(
  'a worker that lacks the tool decides nothing about a lost attempt with effects %s: it is not run again',
  async (effects) => {
    const tool = noteOf('1.2.0', effects);
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const { callId, result } = await submitTo(fleet, tool);
    // Somebody began it, and died.
    const begin = { workerId: 'dead', leaseMs: 1_000, token: 'dead 1' };
    await fleet.pawl.backend.ledger.begin({ callId, generation: '1', session: fleet.session.key }, begin);
    await fleet.startWorker({ tools: [other] });
    await eventually(async () => ((await fleet.pawl.read(callId))?.fence ?? 0) > 1);
    await fleet.startWorker();
    expect(await result).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
    expect(runs.filter((run) => run.startsWith(callId))).toEqual([]);
    expect((await fleet.pawl.read(callId))?.lostAttempts).toBe(1);
  },
);

test('a call that is cancelled while a worker passes it on has not begun', async () => {
  const { fleet, submission, ranIn } = await callPassedOn(noteOf('1.0.0'), other);
  const { pawl } = fleet;
  const { callId } = submission;
  const read = Catalogue.prototype.read;
  // A worker that has taken the call asks who else could run it.
  const asking = vi.spyOn(Catalogue.prototype, 'read').mockImplementation(async function (this: Catalogue) {
    if ((await pawl.read(callId))?.phase === 'running') await pawl.calls.requestCancel(callId);
    return read.call(this);
  });
  onTestFinished(() => asking.mockRestore());
  await eventually(async () => {
    const record = await pawl.read(callId);
    return record?.cancelRequested === true || record?.state !== 'inflight';
  });
  await fleet.startWorker({ tools: [noteOf('1.0.0')] });
  expect((await submission.result).error?.code).toBe('CANCELLED');
  expect((await pawl.read(callId))?.outcome?.settlement).toBe('cancelled-before-start');
  expect(ranIn()).toEqual([]);
});

test.each([1, 2])(
  'of workers with different tools (%s shards), each gets its own calls while the other one is full, and a call changes hands once at most',
  async (shards) => {
    const gate = gated();
    const settings = { shards: { workspace: shards } };
    const fleet = await startFleet({ tools: [gate.tool], concurrency: 1, settings });
    await fleet.startWorker({ tools: [other], concurrency: 1 });
    const sessions = await Promise.all(Array.from({ length: 4 }, () => fleet.pawl.openSession({ actorId: 'ada' })));
    const submitted = await Promise.all(
      sessions.flatMap((session) => [0, 1, 2].map((index) => session.submit('gate', { index }))),
    );
    const submissions = submitted.map(pending);
    await gate.arrived();
    for (const session of [...sessions, ...sessions, ...sessions])
      expect(await session.call('other', {})).toMatchObject({ status: 'success' });
    gate.open();
    for (const { callId, result } of submissions) {
      expect(await result).toMatchObject({ status: 'success', attempts: 1 });
      expect((await fleet.pawl.read(callId))?.fence).toBeLessThanOrEqual(2);
    }
  },
);
