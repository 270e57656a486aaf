/**
 * A writer of Redis can store any text. A part of a record that cannot be read hides no other record, and ends no request in a defect.
 *
 * @module-tag slow
 */
import { expect, test } from 'vitest';
import { z } from 'zod';
import { Pawl } from '../../../src/producer/client.ts';
import { ROUTES } from '../../../src/producer/http/route-table.ts';
import { startHttpServer } from '../../../src/producer/http/server.ts';
import { FleetView } from '../../../src/producer/operations/fleet-metrics.ts';
import { ToolError } from '../../../src/shared/errors/failure.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, scripted } from '../../helpers/tools.ts';
import { openReceiver } from '../../workers/callbacks/receiver.ts';
import { type Rig, startRig } from './rig.ts';

const publish = defineTool({
  name: 'publish',
  version: '1.0.0',
  description: 'Publishes a text.',
  tier: 'elevated',
  input: z.strictObject({ text: z.string() }),
  run: () => ({ output: 'published' }),
});

/** A fleet that has a record of each kind. Returns what names each of them in a path. */
async function populate({ ask, call }: Rig): Promise<Readonly<Record<string, string>>> {
  const post = (path: string, json: object) => ask(path, { method: 'POST', json });
  const put = (path: string, json: object) => ask(path, { method: 'PUT', json });
  const receiver = await openReceiver((response) => void response.writeHead(200).end());
  await post('/v1/sessions', { sessionKey: 's', kind: 'main', channel: { kind: 'operator' } });
  await post('/v1/sessions', { sessionKey: 'other' });
  const good = await call({ tool: 'echo', session: 's', params: { text: 'a' }, callbackUrl: receiver.url });
  const failed = await call({ tool: 'pay', session: 's', idempotencyKey: 'f', params: {} });
  await call({ tool: 'pay', session: 'other', idempotencyKey: 'g', params: {} });
  await call({ tool: 'publish', session: 's', params: { text: 'x' } }, { wait: 0 });
  const redrive = await post('/v1/dead-letters', { action: 'redrive', ids: [failed.body.callId] });
  const batch = await post('/v1/batches', { calls: [{ tool: 'echo', session: 's', params: { text: 'b' } }] });
  const plan = await post('/v1/plans', { session: 's', nodes: { a: { tool: 'echo', params: { text: 'p' } } } });
  await put('/v1/schedules/nightly', { tool: 'echo', params: { text: 'hi' }, session: 's', cron: '0 2 * * *' });
  await put('/v1/skills/speech', { description: 'Says things.', allowedTools: ['echo'] });
  const routing = { method: 'GET', url: 'https://weather.example.com/{city}' };
  const inputSchema = { type: 'object', properties: { city: { type: 'string' } } };
  await put('/v1/tools/weather', { kind: 'http', version: '1.0.0', description: 'Weather.', inputSchema, routing });
  await post('/debug/tool-reliability', { action: 'force_open', tool: 'weather', reason: 'a test' });
  await post('/debug/tool-reliability', { action: 'disable', tool: 'weather', reason: 'a test' });
  await eventually(async () => (await ask(`/v1/plans/${plan.body.planId}`)).body.state === 'done', {
    what: 'the plan',
  });
  const [approval] = await eventually(async () => {
    const { approvals } = (await ask('/v1/approvals?state=pending')).body;
    return approvals.length > 0 && approvals;
  });
  return {
    key: 's',
    callId: good.body.callId,
    'batches/{id}': batch.body.batchId,
    'plans/{id}': plan.body.planId,
    'schedules/{id}': 'nightly',
    'redrives/{id}': redrive.body.redriveId,
    'approvals/{id}': approval.id,
    'skills/{name}': 'speech',
    'tools/{name}': 'weather',
  };
}

/** The paths of all that can be read, with the names of these records. */
function pathsOf(names: Readonly<Record<string, string>>): string[] {
  return ROUTES.filter(({ method, path }) => method === 'get' && !path.endsWith('/events')).map(({ path }) =>
    Object.entries(names).reduce((text, [name, value]) => {
      const folder = name.includes('/') ? `${name.split('/')[0]}/` : '';
      return text.replace(folder === '' ? `{${name}}` : name, `${folder}${encodeURIComponent(value)}`);
    }, path),
  );
}

/** What a producer that has just started answers: the status of each path, and how many records it lists. */
async function answersOf({ settings }: Rig, paths: readonly string[]) {
  const pawl = await Pawl.open({ settings, log: silentLogger, defaultWorkspaceRoot: process.cwd() });
  try {
    const fleet = new FleetView(pawl, { cacheMs: 0 });
    const server = await startHttpServer({ pawl, settings, log: silentLogger, port: 0, fleet });
    const answers = new Map<string, { readonly status: number; readonly listed: number }>();
    for (const path of paths) {
      const response = await fetch(`${server.url}${path}`);
      const text = await response.text();
      const body: unknown = text.startsWith('{') ? JSON.parse(text) : undefined;
      const list = Object.values(body ?? {}).find(Array.isArray) as readonly unknown[] | undefined;
      answers.set(path, { status: response.status, listed: list?.length ?? 0 });
    }
    await server.close();
    return answers;
  } finally {
    await pawl.close();
  }
}

type Damage = (garbage: string) => Promise<unknown>;

/** Each way to damage a part of a record. */
async function damagesOf({ pawl }: Rig, key: string): Promise<readonly (readonly [what: string, damage: Damage])[]> {
  const { redis } = pawl.backend;
  switch (await redis.type(key)) {
    case 'string':
      return [[key, (garbage) => redis.set(key, garbage)]];
    case 'hash':
      return Object.keys(await redis.hgetall(key)).map((field) => [
        `${key} ${field}`,
        (garbage) => redis.hset(key, field, garbage),
      ]);
    case 'list':
      return [[key, (garbage) => redis.lset(key, 0, garbage)]];
    case 'zset':
      return [[key, (garbage) => redis.zadd(key, Date.now(), garbage)]];
    default:
      return [];
  }
}

const GARBAGE = ['{"broken', 'null', '[]', 'x'];

const TITLE = 'a part of a record that cannot be read ends no request in a defect, and hides no other record';

// It takes a minute, and several where other tests run beside it.
test(TITLE, { timeout: 600_000 }, async () => {
  const bank = scripted('pay', () => {
    throw new ToolError('the bank is closed', { code: 'BANK_CLOSED' });
  });
  const rig = await startRig({
    tools: [echo, bank.tool, publish],
    tiers: ['read-only', 'workspace', 'system', 'elevated'],
    settings: { allowedHosts: ['127.0.0.1'] },
  });
  const paths = pathsOf(await populate(rig));
  expect([...(await answersOf(rig, paths))].filter(([, { status }]) => status !== 200)).toEqual([]);
  const { redis } = rig.pawl.backend;
  const faults: string[] = [];
  let number = 0;
  // The head of the audit trail names the trail of all its records.
  const keys = (await rig.world.keys()).filter((key) => !key.endsWith(':{audit}:head'));
  for (const key of keys) {
    // A dead letter whose call was damaged is gone from then on.
    const whole = await answersOf(rig, paths);
    const [dump, ttlMs] = await Promise.all([redis.dumpBuffer(key), redis.pttl(key)]);
    for (const [what, damage] of dump === null ? [] : await damagesOf(rig, key)) {
      const garbage = GARBAGE[number % GARBAGE.length] ?? '';
      number += 1;
      await damage(garbage);
      const answers = await answersOf(rig, paths).catch((error: Error) => error);
      if (answers instanceof Error) faults.push(`${what} = ${garbage}: ${answers}`);
      else
        for (const [path, { status, listed }] of answers)
          if (status >= 500 || (status === 200 && listed < (whole.get(path)?.listed ?? 0) - 1))
            faults.push(`${what} = ${garbage}: ${path} ${status}, ${listed} listed`);
      if (dump !== null) await redis.restore(key, Math.max(0, ttlMs), dump, 'REPLACE');
    }
  }
  expect(faults).toEqual([]);
});
