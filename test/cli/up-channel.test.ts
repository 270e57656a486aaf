/** Who is asked about calls of sessions that name no channel. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../src/main.ts';
import { eventually } from '../helpers/signal.ts';
import { type CliFixture, openPlace } from './pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

interface Approvals {
  readonly approvals: readonly { readonly id: string; readonly digest: string; readonly tool: string }[];
}

const OPERATOR = "channel: { kind: 'operator' }";

test('the page of a running up is the default channel of sessions; without up, the error explains how to name a channel', async () => {
  await using pawl = await connect({ redisUrl: place.world.redisUrl, prefix: place.world.prefix });
  const early = await pawl.openSession({ actorId: 'ada' });
  const process = place.start(['up', '--port', '0', '--json', '--workers', '1', '--tools', 'tools.ts']);
  const { url } = JSON.parse(await process.line('"event":"ready"')) as { readonly url: string };
  const ask = async (method: string, path: string, body?: object) => {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
    return (await answer.json()) as Record<string, unknown>;
  };
  const approveNext = async () => {
    const { id, digest } = await eventually(async () => {
      const { approvals } = (await ask('GET', '/v1/approvals?state=pending')) as unknown as Approvals;
      return approvals[0];
    });
    await ask('POST', `/v1/approvals/${id}`, { decision: 'approve', digest });
  };
  const elsewhere = await pawl.openSession({ actorId: 'ada' });
  const { sessionKey } = await ask('POST', '/v1/sessions', { kind: 'main' });
  const ways: Readonly<Record<string, (key: string) => Promise<unknown>>> = {
    'a session that was opened over HTTP': (idempotencyKey) =>
      ask('POST', '/v1/calls', { tool: 'launch', params: { what: 'it' }, session: sessionKey, idempotencyKey }),
    'a session that its first call opens': (session) =>
      ask('POST', '/v1/calls', { tool: 'launch', params: { what: 'it' }, session }),
    'a session of another program': (idempotencyKey) => elsewhere.call('launch', { what: 'it' }, { idempotencyKey }),
    'a session that was opened before': (idempotencyKey) => early.call('launch', { what: 'it' }, { idempotencyKey }),
    'a branch of it': async (idempotencyKey) =>
      (await elsewhere.branch()).call('launch', { what: 'it' }, { idempotencyKey }),
  };
  for (const [what, call] of Object.entries(ways)) {
    const result = call(what.replaceAll(' ', '-'));
    await approveNext();
    expect(await result, what).toMatchObject({ status: 'success' });
  }
  process.signal('SIGINT');
  expect(await process.ended).toEqual({ code: 0, signal: null });
  expect((await place.world.keys()).filter((key) => key.includes('default-channel'))).toEqual([]);

  const later = await pawl.openSession({ actorId: 'ada' });
  const worker = await place.worker();
  const refused = await later.call('launch', { what: 'it' });
  expect(refused.error).toMatchObject({ code: 'PERMISSION_DENIED', message: expect.stringContaining(OPERATOR) });
  worker.signal('SIGTERM');
  await worker.ended;
});
