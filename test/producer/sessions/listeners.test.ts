import { tmpdir } from 'node:os';
import { expect, onTestFinished, test, vi } from 'vitest';
import { startWorker } from '../../../src/index.ts';
import { Pawl, type PawlOptions } from '../../../src/producer/client.ts';
import type { Session, SessionEvents } from '../../../src/producer/sessions/session.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { WorkerAgents } from '../../../src/workers/context/sub-agents.ts';
import { contentOf, type Fleet, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, httpError, scripted } from '../../helpers/tools.ts';

const EVENTS = ['queued', 'approval-requested', 'progress', 'retrying', 'circuit-open', 'settled'] as const;

const flaky = () =>
  scripted(
    'flaky',
    (ctx) => {
      ctx.progress({ progress: ctx.attempt });
      if (ctx.attempt === 1) throw httpError(503);
      return { output: 'up' };
    },
    { tier: 'elevated' },
  ).tool;

/** A producer that keeps the names of the listeners which it warned of. */
async function openWarned({ settings }: Fleet, options: Partial<PawlOptions> = {}) {
  const warned: unknown[] = [];
  const warn = (fields: object) => {
    const { event, listener } = fields as { readonly event?: string; readonly listener?: string };
    if (event === 'listener_failed') warned.push(listener);
  };
  const log = { ...silentLogger, warn };
  const pawl = await Pawl.open({ settings, log, defaultWorkspaceRoot: tmpdir(), ...options });
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  return { pawl, session, warned };
}

/** Calls the elevated tool, which is approved, and a tool whose circuit is open. */
async function callBoth(pawl: Pawl, session: Session) {
  session.events.on('approval-requested', ({ approvalId, digest }) => {
    void pawl.approvals.decide(approvalId, { decision: 'approve', digest, by: 'grace' });
  });
  await pawl.circuits.set('force_open', { tool: 'echo' });
  const refused = await session.call(echo, { text: 'x' });
  return [contentOf(await session.call('flaky', {})), refused.status];
}

test.each([
  [
    'throws',
    () => {
      throw new Error('mine');
    },
  ],
  ['rejects', () => Promise.reject(new Error('mine'))],
])(
  'a listener that %s keeps no call from its end, no other listener from its event, and is warned of',
  async (_how, fail) => {
    const fleet = await startFleet({ tools: [flaky(), echo] });
    const { pawl, session, warned } = await openWarned(fleet);
    const look = vi.spyOn(pawl.backend.ledger, 'read');
    const told = new Set<string>();
    for (const name of EVENTS) {
      (session.events as { on(name: keyof SessionEvents, listener: () => unknown): void }).on(name, fail);
      session.events.on(name, () => void told.add(name));
    }
    expect(await callBoth(pawl, session)).toEqual(['up', 'circuit_open']);
    await eventually(() => told.has('progress'));
    expect([...told].sort()).toEqual([...EVENTS].sort());
    await eventually(() => new Set(warned).size === EVENTS.length);
    // As after a gap in what was heard.
    expect(look).not.toHaveBeenCalled();
  },
);

test('what a producer’s own listeners throw keeps no call from its end either', async () => {
  const { tool } = scripted('note', (ctx) => {
    ctx.progress({ progress: 1 });
    return { output: 'noted' };
  });
  const fleet = await startFleet({ tools: [tool] });
  const fail = () => {
    throw new Error('mine');
  };
  const { pawl, session, warned } = await openWarned(fleet, { onEvent: fail });
  const listeners = { onAccepted: fail, onProgress: fail };
  const submission = await pawl.submit(session.envelope(tool, {}), listeners);
  expect(contentOf(await submission.result)).toBe('noted');
  const unchecked = await pawl.submit(session.envelope(tool, { again: true }), listeners);
  expect(contentOf(await unchecked.result)).toBe('noted');
  await eventually(() => warned.includes('onProgress'));
  expect(new Set(warned)).toEqual(new Set(['onEvent', 'onAccepted', 'onProgress']));
});

test('who follows a call and throws keeps neither others from following it, nor the client from closing', async () => {
  const fleet = await startFleet({ tools: [echo], workers: 0 });
  const { pawl, session, warned } = await openWarned(fleet);
  const { callId = '' } = await session.submit(echo, { text: 'x' });
  const fail = () => {
    throw new Error('mine');
  };
  const told: string[] = [];
  pawl.follow(callId, { onEvents: fail, onEnd: fail });
  pawl.follow(callId, {
    onEvents: (events) => void told.push(...events.map(({ type }) => type)),
    onEnd: () => void told.push('end'),
  });
  await eventually(() => told.includes('queued'));
  await pawl.close();
  expect(told).toEqual(['queued', 'end']);
  expect(warned).toEqual(['onEvents', 'onEnd']);
});

test('a program that breaks off over an agent has failed it, unless it had replied', async () => {
  const fleet = await startFleet({ tools: [], workers: 0 });
  const { pawl, session, warned } = await openWarned(fleet);
  const agents = new WorkerAgents(pawl.backend).open({ callId: 'c', generation: '1', session: session.record });
  session.events.on('agent', async (event) => {
    if (event.message === 'reply first') await session.reply(event, { state: 'completed', output: 'done' });
    throw new Error('mine');
  });
  const { agentId } = await agents.spawn('break off');
  const failed = await eventually(async () =>
    (await agents.look([agentId])).find(({ state }) => state !== 'queued' && state !== 'running'),
  );
  expect(failed).toMatchObject({ state: 'failed', output: expect.stringContaining('failed before it had an answer') });
  await agents.send(agentId, 'reply first');
  await eventually(() => warned.length === 2);
  expect(await agents.look([agentId])).toMatchObject([{ state: 'completed', output: 'done' }]);
});

test('settled and circuit-open are emitted for submitted calls as for awaited ones, once each', async () => {
  const { session, pawl } = await startFleet({ tools: [echo] });
  const heard: [string, string | undefined][] = [];
  session.events.on('settled', ({ status, callId }) => heard.push([status, callId]));
  session.events.on('circuit-open', ({ toolName }) => heard.push(['circuit-open', toolName]));
  const submission = await session.submit(echo, { text: 'x' }, { idempotencyKey: 'k' });
  const { callId } = await submission.result;
  const replayed = await session.submit(echo, { text: 'x' }, { idempotencyKey: 'k' });
  await replayed.result;
  await pawl.circuits.set('force_open', { tool: 'echo' });
  await (await session.submit(echo, { text: 'y' })).result;
  await (await session.submit('echo', { text: 'y' }, { requestId: 'nonsense' })).result;
  await session.call(echo, { text: 'z' });
  expect(heard).toEqual([
    ['success', callId],
    ['success', callId],
    ['circuit-open', 'echo'],
    ['circuit_open', undefined],
    ['error', undefined],
    ['circuit-open', 'echo'],
    ['circuit_open', undefined],
  ]);
});

test('a worker whose program throws in its listener and its logger runs the call once', async () => {
  const { settings, session } = await startFleet({ tools: [echo], workers: 0 });
  const fail = () => {
    throw new Error('mine');
  };
  const log = { debug: fail, info: fail, warn: fail, error: fail };
  const { redisUrl, prefix } = settings;
  const worker = await startWorker({
    tools: [echo],
    onEvent: fail,
    log,
    ...(redisUrl !== undefined && { redisUrl }),
    prefix,
  });
  onTestFinished(() => worker.close(0));
  expect(await session.call(echo, { text: 'x' })).toMatchObject({ status: 'success', attempts: 1 });
});
