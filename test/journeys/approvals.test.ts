/** A4, A5: what waits for a person stands in Redis alone, so that producer, front door and worker may all be killed meanwhile. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../helpers/context.ts';
import { startPawl, startScript } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { createWorld } from '../helpers/world.ts';
import { readEffects } from './fixtures/effect-log.ts';
import { tallyOf } from './fixtures/fleet.ts';
import type { Batch } from './fixtures/producer.ts';

const TOOL = fileURLToPath(new URL('./fixtures/elevated-tool.ts', import.meta.url));
const BATCH: Batch = { session: 's', count: 1, tool: 'transfer', params: { to: 'bob', amount: 5 }, key: 'rent' };
/** What the tool says of it, in a worker. */
const PREVIEW = 'Send 5 to bob';

interface Approval {
  readonly id: string;
  readonly callId: string;
  readonly digest: string;
  readonly state: string;
  readonly preview: { readonly summary: string };
}

/** What the routes that are asked here may say. */
interface Answer {
  readonly approvals: readonly Approval[];
  readonly records: readonly { readonly type: string }[];
}

interface PlanAnswer {
  readonly planId: string;
  readonly approvalId?: string;
  readonly state?: string;
  readonly approval?: object;
}

async function setUp() {
  const world = await createWorld();
  const cwd = temporaryFolder();
  const effects = join(cwd, 'effects.jsonl');
  const env = {
    REDIS_URL: world.redisUrl,
    PAWL_PREFIX: world.prefix,
    PAWL_LOCK_DURATION_MS: '5000',
    PAWL_STALLED_INTERVAL_MS: '250',
    PAWL_SIGNING_KEYS: 'k1:a key of this journey alone',
    EFFECT_LOG: effects,
    LOG_LEVEL: 'error',
  };
  const startServer = async () => {
    const server = startPawl(['serve', '--port', '0', '--json'], { env, cwd });
    const { url } = JSON.parse(await server.line('"ready"')) as { readonly url: string };
    const ask = async (path: string, body?: object) => {
      const post = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
      return (await (await fetch(url + path, body === undefined ? {} : post)).json()) as Answer;
    };
    return { ...server, ask };
  };
  const startWorker = async () => {
    const worker = startPawl(['worker', '--tiers', 'elevated', '--tools', TOOL, '--json'], { env, cwd });
    await worker.line('"ready"');
    return worker;
  };
  const startProducer = async () => {
    const producer = startScript(new URL('./fixtures/producer.ts', import.meta.url), [], { env, cwd });
    await producer.line(/^ready/);
    return producer;
  };
  /** A call of a producer waits, a worker has told what it would do, and all three are killed. */
  const askAndDie = async () => {
    const [server, worker, producer] = await Promise.all([startServer(), startWorker(), startProducer()]);
    await server.ask('/v1/sessions', { sessionKey: 's', actorId: 'agent-7', channel: { kind: 'operator' } });
    producer.say(JSON.stringify(BATCH));
    const callId = (await producer.line(/^accepted /)).slice('accepted '.length);
    const asked = await eventually(async () => {
      const [approval] = (await server.ask('/v1/approvals')).approvals;
      const told = approval?.state !== 'pending' || approval.preview.summary === PREVIEW;
      return told && approval;
    });
    await Promise.all([server.kill(), worker.kill(), producer.kill()]);
    await eventually(async () => (await world.connections()).length === 0, { what: 'the death of every process' });
    return { callId, asked };
  };
  return { world, startServer, startWorker, startProducer, askAndDie, effects: () => readEffects(effects) };
}

test('asked, killed, approved, killed, run: an approved call runs once, and its caller finds the result', async () => {
  const { startServer, startWorker, startProducer, askAndDie, effects } = await setUp();
  const { callId, asked } = await askAndDie();

  const second = await startServer();
  const { approvals } = await second.ask('/v1/approvals?state=pending');
  expect(approvals).toEqual([asked]);
  expect(asked).toMatchObject({ callId, params: BATCH.params, preview: { summary: PREVIEW } });
  const decision = { decision: 'approve', digest: asked.digest };
  expect(await second.ask(`/v1/approvals/${asked.id}`, decision)).toMatchObject({ state: 'approved' });
  // Nobody has heard of the decision yet but Redis.
  await second.kill();
  expect(effects()).toEqual([]);

  const [third, producer] = await Promise.all([startServer(), startProducer(), startWorker()]);
  expect(await tallyOf(producer, BATCH)).toEqual({
    outputs: { [JSON.stringify(BATCH.params)]: 1 },
    errors: {},
    callIds: [callId],
  });
  expect(effects()).toMatchObject([{ callId, key: 'rent', attempt: 1 }]);
  await eventually(async () => {
    const { records } = await third.ask(`/v1/audit?call=${callId}`);
    const steps = records.map(({ type }) => type).reverse();
    expect(steps.filter((type) => type.startsWith('approval'))).toEqual([
      'approval-requested',
      'approval-decided',
      'approval-used',
    ]);
    return true;
  });
});

test('a plan is asked, killed, approved, run: its nodes run once under one approval', async () => {
  const { world, startServer, startWorker, effects } = await setUp();
  const [first, worker] = await Promise.all([startServer(), startWorker()]);
  await first.ask('/v1/sessions', { sessionKey: 's', actorId: 'agent-7', channel: { kind: 'operator' } });
  const transfer = (params: object, more: object = {}) => ({ tool: 'transfer', params, ...more });
  const nodes = {
    one: transfer({ to: 'bob', amount: 5 }),
    two: transfer({ to: 'eve', amount: { $from: 'one.amount' } }),
  };
  const accepted = (await first.ask('/v1/plans', { session: 's', nodes })) as unknown as PlanAnswer;
  const asked = await eventually(async () => {
    const { approvals } = await first.ask('/v1/approvals?state=pending');
    return approvals.find(({ preview }) => preview.summary.startsWith('Run a plan of 2 nodes'));
  });
  expect(asked.id).toBe(accepted.approvalId);
  await Promise.all([first.kill(), worker.kill()]);
  await eventually(async () => (await world.connections()).length === 0, { what: 'the death of every process' });

  const [third] = await Promise.all([startServer(), startWorker()]);
  expect(effects()).toEqual([]);
  await third.ask(`/v1/approvals/${asked.id}`, { decision: 'approve', digest: asked.digest });
  const plan = await eventually(async () => {
    const answer = (await third.ask(`/v1/plans/${accepted.planId}`)) as unknown as PlanAnswer;
    return answer.state === 'done' && answer;
  });
  expect(plan.approval).toMatchObject({ approvalId: asked.id, state: 'approved' });
  expect(effects().map(({ key, attempt }) => [key, attempt])).toEqual([
    [`${accepted.planId}:one`, 1],
    [`${accepted.planId}:two`, 1],
  ]);
  expect((await third.ask('/v1/approvals')).approvals).toMatchObject([{ id: asked.id, state: 'approved' }]);
});
