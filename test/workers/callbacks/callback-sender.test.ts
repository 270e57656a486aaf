import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { createUser } from '../../helpers/redis-user.ts';
import { eventually } from '../../helpers/signal.ts';
import { gated } from '../../helpers/tools.ts';
import { openReceiver } from './receiver.ts';

const SECRET = 'a-secret-of-sixteen';
const settings = { allowedHosts: ['127.0.0.1'], callbackSecrets: [SECRET] };

const answer = defineTool({
  name: 'answer',
  version: '1.0.0',
  description: 'Answers with a text of a given length, or fails.',
  tier: 'workspace',
  effects: 'once',
  input: z.object({
    length: z.number().default(5),
    fails: z.boolean().default(false),
  }),
  run: async ({ length, fails }) => {
    if (fails) throw new Error('it broke');
    return { output: 'x'.repeat(length) };
  },
});

const base = (name: string) => ({
  name,
  version: '1.0.0',
  description: 'Does nothing.',
  effects: 'once' as const,
  input: z.object({}),
  run: async () => ({ output: 'done' }),
});

const fleet = (change: Partial<Parameters<typeof startFleet>[0]> = {}) =>
  startFleet({ tools: [answer], settings, ...change });

describe('the end of a call', () => {
  test('is posted in the form of Standard Webhooks, signed', async () => {
    const { session } = await fleet();
    const receiver = await openReceiver();
    const { callId } = await session.call(answer, {}, { idempotencyKey: 'a', callbackUrl: receiver.url });
    await eventually(() => receiver.received.length === 1);
    const [{ headers, body } = { headers: {}, body: '' }] = receiver.received;
    expect(headers['content-type']).toBe('application/json');
    const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature } = headers;
    expect(id).toMatch(/^msg_[\w-]+$/);
    expect(Math.abs(Number(timestamp) - Date.now() / 1_000)).toBeLessThan(60);
    const mac = createHmac('sha256', SECRET).update(`${id}.${timestamp}.${body}`).digest('base64');
    expect(signature).toBe(`v1,${mac}`);
    expect(JSON.parse(body)).toMatchObject({
      type: 'call.settled',
      timestamp: expect.stringMatching(/^\d{4}-.*Z$/),
      data: {
        callId,
        tool: 'answer',
        session: session.key,
        status: 'success',
        result: { callId, status: 'success', output: { content: 'xxxxx' } },
      },
    });
  });

  test('is posted by a worker whose Redis user may use the keys of its own tier alone', async () => {
    const { world, session, startWorker } = await fleet({ workers: 0 });
    const own = ['{workspace}*', '{fleet}*', '{turns}*', '{limit:*', '{budget}*', '{clients}*', '{audit}*'];
    const keys = own.map((pattern) => `~${world.prefix}:${pattern}`);
    const user = await createUser(world.redisUrl, world.prefix, [...keys, `&${world.prefix}:*`, '+@all']);
    await startWorker({ tiers: ['workspace'], settings: { redisUrl: user.url } });
    const receiver = await openReceiver();
    await session.call(answer, {}, { callbackUrl: receiver.url });
    await eventually(() => receiver.received.length === 1);
  });

  test.each([
    ['a failure', { fails: true }, 'error'],
    ['a result that is kept apart', { length: 20_000 }, 'success'],
  ])('is posted for %s', async (_title, params, status) => {
    const { session } = await fleet();
    const receiver = await openReceiver();
    const result = await session.call(answer, params, { callbackUrl: receiver.url });
    await eventually(() => receiver.received.length === 1);
    const { data } = JSON.parse(receiver.received[0]?.body ?? '');
    expect(data.status).toBe(status);
    expect(data.result).toEqual(JSON.parse(JSON.stringify(result)));
  });

  test('is posted without a result above 64 KiB, which the receiver can read', async () => {
    const { session } = await fleet();
    const receiver = await openReceiver();
    const { callId } = await session.call(answer, { length: 100_000 }, { callbackUrl: receiver.url });
    await eventually(() => receiver.received.length === 1);
    const { data } = JSON.parse(receiver.received[0]?.body ?? '');
    expect(data).toMatchObject({ callId, status: 'success', resultPath: `/v1/calls/${callId}` });
    expect(data.result).toBeUndefined();
  });

  test('is written down by the process that cancels a call, and waits for a worker', async () => {
    const { session, pawl } = await fleet({ workers: 0 });
    const receiver = await openReceiver();
    const submitted = await session.submit(answer, {}, { callbackUrl: receiver.url });
    await pawl.cancel(submitted.callId ?? '');
    expect((await pawl.callbacks.list({ state: 'pending' })).callbacks).toMatchObject([{ callId: submitted.callId }]);
  });

  test('is posted for a call that a person denied', async () => {
    const risky = defineTool({ ...base('risky'), tier: 'elevated' });
    const { pawl } = await fleet({ tools: [risky] });
    const receiver = await openReceiver();
    const session = await pawl.openSession({ channel: { kind: 'operator' }, callbackUrl: receiver.url });
    const submitted = await session.submit(risky, {}, { idempotencyKey: 'a' });
    const [waiting] = await eventually(async () => {
      const found = await pawl.approvals.list({ state: 'pending' });
      return found.length > 0 && found;
    });
    const { record, digest } = waiting as NonNullable<typeof waiting>;
    await pawl.approvals.decide(record.request.id, { decision: 'deny', digest, by: 'bob' });
    await eventually(() => receiver.received.length === 1);
    const { data } = JSON.parse(receiver.received[0]?.body ?? '');
    expect(data).toMatchObject({ callId: submitted.callId, status: 'error' });
  });

  test('is posted to the URL of the session, unless the call names its own', async () => {
    const { pawl } = await fleet();
    const [ofSession, ofCall] = [await openReceiver(), await openReceiver()];
    const session = await pawl.openSession({ callbackUrl: ofSession.url });
    await session.call(answer, {}, { idempotencyKey: 'a' });
    await session.call(answer, {}, { idempotencyKey: 'b', callbackUrl: ofCall.url });
    // The first submission's URL holds: the call has ended, and nothing more is posted.
    await session.call(answer, {}, { idempotencyKey: 'a', callbackUrl: ofCall.url });
    await eventually(() => ofSession.received.length === 1 && ofCall.received.length === 1);
    expect((await pawl.callbacks.list()).callbacks).toHaveLength(2);
  });

  test('is written down only for calls that have a callback', async () => {
    const { session, world } = await fleet();
    await session.call(answer, {});
    expect((await world.keys()).filter((key) => key.includes('callback'))).toEqual([]);
  });

  test('a resolved call in doubt is posted twice, under two IDs', async () => {
    const gate = gated('pay', { effects: 'once' });
    const { session, pawl } = await fleet({ tools: [gate.tool] });
    const receiver = await openReceiver();
    const { callId, result } = pending(await session.submit('pay', {}, { callbackUrl: receiver.url }));
    await gate.arrived();
    await pawl.cancel(callId);
    await result;
    await pawl.resolve(callId, { as: 'succeeded', output: 'done' });
    await eventually(() => receiver.received.length === 2);
    const statuses = receiver.received.map(({ body }) => JSON.parse(body).data.status);
    expect(statuses.toSorted()).toEqual(['error', 'success']);
    expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(2);
  });
});

describe('a receiver that fails', () => {
  test('gets the callback again, under the same ID', async () => {
    const { session, pawl } = await fleet();
    const receiver = await openReceiver((response, number) => {
      response.statusCode = number === 1 ? 500 : 204;
      response.end();
    });
    await session.call(answer, {}, { callbackUrl: receiver.url });
    const failing = await eventually(async () => (await pawl.callbacks.list({ state: 'failing' })).callbacks[0]);
    expect(failing).toMatchObject({ attempts: 1, lastStatus: 500, nextAtMs: expect.any(Number) });
    await eventually(() => receiver.received.length === 2);
    const [one, other] = receiver.received;
    expect(other?.headers['webhook-id']).toBe(one?.headers['webhook-id']);
    expect(other?.body).toBe(one?.body);
    await eventually(async () => (await pawl.callbacks.list({ state: 'delivered' })).callbacks.length === 1);
    expect((await pawl.callbacks.list({ state: 'failing' })).callbacks).toEqual([]);
  });

  test('that is gone (410) is left alone, until an operator replays it', async () => {
    const { session, pawl, audited } = await fleet();
    const receiver = await openReceiver((response, number) => {
      response.statusCode = number === 1 ? 410 : 200;
      response.end();
    });
    await session.call(answer, {}, { callbackUrl: receiver.url });
    const failed = await eventually(async () => (await pawl.callbacks.list({ state: 'failed' })).callbacks[0]);
    expect(failed.nextAtMs).toBeUndefined();
    await pawl.callbacks.replay(failed.id, { by: 'ada' });
    await eventually(() => receiver.received.length === 2);
    expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    await eventually(async () => (await pawl.callbacks.list({ state: 'delivered' })).callbacks.length === 1);
    expect(audited).toContainEqual(expect.objectContaining({ type: 'override', what: 'callback', by: 'ada' }));
  });

  test('and asks for a pause gets one', async () => {
    const { session, pawl } = await fleet();
    const receiver = await openReceiver((response) => {
      response.writeHead(429, { 'retry-after': '120' }).end();
    });
    await session.call(answer, {}, { callbackUrl: receiver.url });
    const { nextAtMs = 0, lastAtMs = 0 } = await eventually(
      async () => (await pawl.callbacks.list({ state: 'failing' })).callbacks[0],
    );
    expect(nextAtMs - lastAtMs).toBeGreaterThanOrEqual(120_000);
  });

  test('with a redirect took nothing, and a private address is refused unless policy allows it', async () => {
    const { session, pawl } = await fleet({ settings: { ...settings, allowedHosts: [] } });
    const receiver = await openReceiver();
    await session.call(answer, {}, { callbackUrl: receiver.url });
    const refused = await eventually(async () => (await pawl.callbacks.list({ state: 'failing' })).callbacks[0]);
    expect(refused.lastError).toContain('loopback');
    expect(receiver.received).toEqual([]);
  });

  test.each([
    ['a result that is too large to be posted', { outcome: '', parts: '' }],
    ['another state', {}],
    ['another outcome', { outcome: '{"status":"success","output":{"content":"paid"}}' }],
  ])('never gets %s of a call that failed, which a writer of Redis has put in its place', async (_title, forged) => {
    const signingKeys = [{ kid: 'k', key: 'a-key-of-sixteen-characters' }];
    const { session, pawl, world } = await fleet({ settings: { ...settings, signingKeys } });
    const receiver = await openReceiver((response) => void response.writeHead(410).end());
    await session.call(answer, { fails: true }, { callbackUrl: receiver.url });
    const failed = await eventually(async () => (await pawl.callbacks.list({ state: 'failed' })).callbacks[0]);
    const [key = ''] = (await world.keys()).filter((name) => name.includes(':callback:msg_'));
    await pawl.backend.redis.hset(key, { callState: 'done', ...forged });
    await pawl.callbacks.replay(failed.id);
    await eventually(async () => (await pawl.callbacks.list({ state: 'failed' })).callbacks[0]?.lastError);
    expect(receiver.received.map(({ body }) => JSON.parse(body).data.status)).toEqual(['error']);
  });

  test('does not follow a redirect', async () => {
    const { session, pawl } = await fleet();
    const other = await openReceiver();
    const receiver = await openReceiver((response) => void response.writeHead(302, { location: other.url }).end());
    await session.call(answer, {}, { callbackUrl: receiver.url });
    const failing = await eventually(async () => (await pawl.callbacks.list({ state: 'failing' })).callbacks[0]);
    expect(failing.lastStatus).toBe(302);
    expect(other.received).toEqual([]);
  });

  test('and answers delays no other on its host', async () => {
    const { session, pawl } = await fleet();
    const host = await openReceiver(
      (response, _number, path) => void response.writeHead(path === '/bad' ? 503 : 200).end(),
    );
    const badUrl = new URL('/bad', host.url).href;
    for (let number = 0; number < 8; number += 1)
      await session.call(answer, {}, { idempotencyKey: `bad-${number}`, callbackUrl: badUrl });
    const failing = async () => (await pawl.callbacks.list({ state: 'failing' })).callbacks.length === 8;
    await eventually(failing);
    await session.call(answer, {}, { idempotencyKey: 'good', callbackUrl: host.url });
    await eventually(async () => (await pawl.callbacks.list({ state: 'delivered' })).callbacks.length === 1);
    expect(await failing()).toBe(true);
    const [good] = (await pawl.callbacks.list({ state: 'delivered' })).callbacks;
    // After one failure, a host that is down would rest for a second.
    expect((good?.lastAtMs ?? 0) - (good?.settledAtMs ?? 0)).toBeLessThan(1_000);
  });

  test('and one that never answers delay no other', async () => {
    const { session, pawl } = await fleet();
    const [silent, down, good] = [await openReceiver(() => {}), await openReceiver(), await openReceiver()];
    down.close();
    for (let number = 0; number < 30; number += 1) {
      await session.call(answer, {}, { idempotencyKey: `silent-${number}`, callbackUrl: silent.url });
      await session.call(answer, {}, { idempotencyKey: `down-${number}`, callbackUrl: down.url });
    }
    const settledAtMs = Date.now();
    for (let number = 0; number < 10; number += 1)
      await session.call(answer, {}, { idempotencyKey: `good-${number}`, callbackUrl: good.url });
    await eventually(() => good.received.length === 10);
    expect(Date.now() - settledAtMs).toBeLessThan(5_000);
    // A host gets eight at a time, and the others wait.
    expect(silent.received.length).toBeLessThanOrEqual(8);
    expect((await pawl.callbacks.list({ state: 'failing', limit: 100 })).callbacks.length).toBeLessThan(30);
  });
});

test.each([
  ['no URL', 'receiver', 'must be a URL'],
  ['another scheme', 'ftp://example.org/', 'must be an http or https URL; got ftp:'],
  ['credentials', 'https://ada:secret@example.org/', 'must hold no user and no password'],
  ['a fragment', 'https://example.org/#a', 'must hold no fragment'],
  ['too long', `https://example.org/${'a'.repeat(2_048)}`, 'at most 2048'],
])('%s is no callback URL, and nothing is stored', async (_title, callbackUrl, words) => {
  const { session, pawl, world } = await fleet({ workers: 0 });
  const before = (await world.keys()).length;
  const { error } = await session.call(answer, {}, { callbackUrl });
  expect(error).toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'options.callbackUrl', message: expect.stringContaining(words) }],
  });
  expect((await world.keys()).length).toBe(before);
  await expect(pawl.openSession({ callbackUrl })).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path: 'callbackUrl' }],
  });
});
