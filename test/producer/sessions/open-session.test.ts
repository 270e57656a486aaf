import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import { Pawl } from '../../../src/producer/client.ts';
import { Session } from '../../../src/producer/sessions/session.ts';
import { awaitReady } from '../../../src/shared/store/redis/connection.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { resultOf, startFleet } from '../../helpers/fleet.ts';
import { echo, scripted } from '../../helpers/tools.ts';

function startFleetPeer({ settings }: Pawl): Promise<Pawl> {
  return Pawl.open({ settings, log: silentLogger, defaultWorkspaceRoot: tmpdir() });
}

describe('opening sessions', () => {
  test('a key is taken once, a parent must exist, and faults are named', async () => {
    const { pawl, session } = await startFleet({ tools: [], workers: 0 });
    await expect(pawl.openSession({ sessionKey: session.key })).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      issues: [{ path: 'sessionKey' }],
    });
    await expect(pawl.openSession({ parent: 'nobody' })).rejects.toMatchObject({ code: 'UNKNOWN_SESSION' });
    await expect(pawl.openSession({ kind: 'root' as never })).rejects.toMatchObject({ issues: [{ path: 'kind' }] });
    await expect(pawl.session('nobody')).rejects.toMatchObject({ code: 'UNKNOWN_SESSION' });
  });

  test('a session below another takes over whose it is and where it works', async () => {
    const { pawl } = await startFleet({ tools: [], workers: 0 });
    const above = await pawl.openSession({
      actorId: 'ada',
      agentId: 'agent',
      tenantId: 'acme',
      workspaceRoot: tmpdir(),
    });
    const below = await pawl.openSession({ kind: 'branch', parent: above.key });
    expect(below.record).toMatchObject({ actorId: 'ada', agentId: 'agent', tenantId: 'acme', workspaceRoot: tmpdir() });
    expect((await pawl.sessions.list()).map(({ sessionKey }) => sessionKey)).toContain(below.key);
  });

  test('an envelope that names an unknown session opens it, also when two do so at once', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    const envelope = session.envelope(echo, { text: 'x' });
    const target = { sessionKey: 'fresh', actorId: 'bob' };
    const other = await startFleetPeer(pawl);
    const results = await Promise.all([
      resultOf(pawl, { ...envelope, target }),
      resultOf(other, { ...session.envelope(echo, { text: 'y' }), target }),
    ]);
    await other.close();
    expect(results.map((result) => result.status)).toEqual(['success', 'success']);
    expect((await pawl.session('fresh')).record).toMatchObject({ kind: 'main', actorId: 'bob' });
  });

  test('that Redis has lost is the same one again when its holder calls, and may do no more than before', async () => {
    const change = scripted('change', () => ({ output: null })).tool;
    const { pawl, session } = await startFleet({ tools: [change] });
    const helper = await session.worker();
    const elsewhere = await startFleetPeer(pawl);
    const { redis, prefix } = pawl.backend;
    await redis.unlink(new FleetKeys(prefix).session(helper.key));
    const lost = new Session(elsewhere.sessions.host, helper.record);
    expect(await lost.call(change, {})).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
    expect((await elsewhere.session(helper.key)).record).toEqual(helper.record);
    await elsewhere.close();
  });

  test('that Redis has lost together with the connection is opened again at once', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    const { redis, prefix } = pawl.backend;
    await redis.unlink(new FleetKeys(prefix).session(session.key));
    const lost = once(redis, 'close');
    redis.disconnect(true);
    await lost;
    await awaitReady(redis, 30_000);
    expect(await session.call(echo, { text: 'a' })).toMatchObject({ status: 'success' });
  });

  test('that Redis has lost unnoticed is opened again, as it was, after the first call that did not find it', async () => {
    const { pawl, session } = await startFleet({ tools: [echo] });
    const { record } = await session.worker();
    await pawl.backend.redis.unlink(new FleetKeys(pawl.settings.prefix).session(record.sessionKey));
    const { sessionKey, actorId } = record;
    const call = (text: string) =>
      resultOf(pawl, { ...session.envelope(echo, { text }), target: { sessionKey, actorId: actorId ?? '' } });
    expect(await call('a')).toMatchObject({ error: { code: 'UNKNOWN_SESSION' } });
    expect(await call('b')).toMatchObject({ status: 'success' });
    expect((await pawl.session(sessionKey)).record).toMatchObject({ kind: 'worker' });
  });
});
