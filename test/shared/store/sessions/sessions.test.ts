import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { SessionRecord } from '../../../../src/shared/sessions/session.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { broadcastChannel } from '../../../../src/shared/store/redis/broadcasts.ts';
import { FleetKeys } from '../../../../src/shared/store/redis/keys.ts';
import { Sessions } from '../../../../src/shared/store/sessions/sessions.ts';
import { openBooks } from '../calls.ts';

const session = (sessionKey: string, change: Partial<SessionRecord> = {}): SessionRecord => ({
  sessionKey,
  kind: 'main',
  state: 'open',
  actorId: 'ada',
  workspaceRoot: '/tmp',
  createdAtMs: 1,
  ...change,
});

const DAY_MS = 24 * 3_600_000;

async function openSessions() {
  const { redis, world } = await openBooks();
  return { sessions: new Sessions(redis, world.prefix), redis, keys: new FleetKeys(world.prefix), world };
}

describe('sessions in Redis', () => {
  test('what was stored is read back; a key is taken once', async () => {
    const { sessions } = await openSessions();
    const one = session('one', { tenantId: 'acme', budget: { calls: 3 } });
    const answers = await Promise.all([
      sessions.create(one),
      sessions.create(session('one')),
      sessions.create(session('one')),
    ]);
    expect(answers).toEqual([one, undefined, undefined]);
    expect(await sessions.read('one')).toEqual(one);
    expect(await sessions.read('two')).toBeUndefined();
  });

  test('a closed session stays readable, and its key taken, for as long as an open one does', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('one'));
    expect(await redis.pttl(keys.session('one'))).toBeGreaterThan(29 * DAY_MS);
    await redis.pexpire(keys.session('one'), DAY_MS);
    expect(await sessions.close('one')).toEqual(session('one', { state: 'closed' }));
    expect(await sessions.read('one')).toMatchObject({ state: 'closed' });
    expect(await redis.pttl(keys.session('one'))).toBeGreaterThan(29 * DAY_MS);
    expect(await sessions.create(session('one'))).toBeUndefined();
    expect(await sessions.close('two')).toBeUndefined();
  });

  test('a session that is used lives on, with all that is above it and where it is looked for', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('root', { tenantId: 'acme' }));
    await sessions.create(session('middle', { tenantId: 'acme', parent: 'root', ancestors: ['root'] }));
    await sessions.create(session('leaf', { tenantId: 'acme', parent: 'middle', ancestors: ['root', 'middle'] }));
    const records = ['root', 'middle', 'leaf'].map((key) => keys.session(key));
    const lists = [
      keys.sessions,
      keys.sessionsOf('acme'),
      keys.sessionChildren('root'),
      keys.sessionChildren('middle'),
    ];
    for (const key of [...records, ...lists]) await redis.pexpire(key, 20 * DAY_MS);
    const left = () => Promise.all([...records, ...lists].map((key) => redis.pttl(key)));
    await sessions.read('leaf');
    // Most of its time is left.
    expect(Math.max(...(await left()))).toBeLessThanOrEqual(20 * DAY_MS);
    for (const key of records) await redis.pexpire(key, 14 * DAY_MS);
    expect(await sessions.read('leaf')).toMatchObject({ parent: 'middle' });
    expect(Math.min(...(await left()))).toBeGreaterThan(29 * DAY_MS);
  });

  test('one that lives on is signed with the newest key', async () => {
    const { redis, keys, world } = await openSessions();
    const old = { kid: 'old', key: 'o'.repeat(32) };
    const fresh = { kid: 'new', key: 'n'.repeat(32) };
    const sessionsWith = (...signing: (typeof old)[]) =>
      new Sessions(redis, world.prefix, new Signatures(new Signer(signing)));
    await sessionsWith(old).create(session('one'));
    await redis.pexpire(keys.session('one'), DAY_MS);
    expect(await sessionsWith(fresh, old).read('one')).toEqual(session('one'));
    expect(await sessionsWith(fresh).read('one')).toEqual(session('one'));
  });

  test.each([
    ['that a session is closed', 'session', (sessions: Sessions) => sessions.close('one'), { state: 'closed' }],
    [
      'what a session has seen',
      'taint',
      (sessions: Sessions) => sessions.taint('one', ['tools.page'], 7),
      { taint: [{ source: 'tools.page', atMs: 7 }] },
    ],
  ])('whoever writes down %s has told all processes, also when Redis’ answer to that is lost', async (...row) => {
    const [, type, change, changed] = row;
    const { sessions, redis, world } = await openSessions();
    await sessions.create(session('one'));
    const listener = redis.duplicate();
    onTestFinished(() => listener.disconnect());
    const heard: unknown[] = [];
    listener.on('message', (_channel, text) => heard.push(JSON.parse(text)));
    await listener.subscribe(broadcastChannel(redis, world.prefix));
    const evaluate = redis.eval.bind(redis) as (...args: unknown[]) => Promise<unknown>;
    // Sent again behind a connection that broke, the script finds its own work.
    const again = vi.spyOn(redis, 'eval').mockImplementationOnce((async (...args: unknown[]) => {
      await evaluate(...args);
      return evaluate(...args);
    }) as never);
    expect(await change(sessions)).toEqual(session('one', changed as Partial<SessionRecord>));
    expect(again).toHaveBeenCalled();
    await expect.poll(() => heard).toContainEqual({ type, sessionKey: 'one' });
    expect(await sessions.read('one')).toMatchObject(changed);
  });

  test('I23: marks of taint that come at once are all kept, once each, beside the end of the session', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('one'));
    const marks = Array.from({ length: 12 }, (_, index) => sessions.taint('one', [`tools.t${index % 6}`], 7));
    await Promise.all(marks);
    await Promise.all([sessions.close('one'), sessions.taint('one', ['tools.last'], 8)]);
    const found = await sessions.read('one');
    expect(found?.state).toBe('closed');
    expect(new Set(found?.taint?.map(({ source }) => source)).size).toBe(found?.taint?.length);
    expect(
      found?.taint
        ?.slice(0, 6)
        .map(({ source }) => source)
        .sort(),
    ).toEqual([0, 1, 2, 3, 4, 5].map((index) => `tools.t${index}`));
    expect(await redis.pttl(keys.session('one'))).toBeGreaterThan(0);
    expect(await sessions.taint('two', ['tools.t'], 9)).toBeUndefined();
  });

  test('the list has the newest first, and drops what has expired', async () => {
    const { sessions, redis, keys } = await openSessions();
    for (const [index, key] of ['a', 'b', 'c'].entries()) await sessions.create(session(key, { createdAtMs: index }));
    await redis.del(keys.session('b'));
    expect((await sessions.list(10)).map(({ sessionKey }) => sessionKey)).toEqual(['c', 'a']);
    expect(await redis.zcard(keys.sessions)).toBe(2);
    expect((await sessions.list(1)).map(({ sessionKey }) => sessionKey)).toEqual(['c']);
  });

  test('what has expired takes no place in the list, however much of it there is', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('old'));
    for (let number = 0; number < 25; number += 1) {
      await sessions.create(session(`over ${number}`, { createdAtMs: 2 }));
      await redis.del(keys.session(`over ${number}`));
    }
    await sessions.create(session('new', { createdAtMs: 3 }));
    expect((await sessions.list(2)).map(({ sessionKey }) => sessionKey)).toEqual(['new', 'old']);
    expect(await redis.zcard(keys.sessions)).toBe(2);
  });

  test('none are asked for, none come', async () => {
    const { sessions } = await openSessions();
    await sessions.create(session('one'));
    expect(await sessions.list(0)).toEqual([]);
  });

  test('a tenant finds its sessions, however many others have opened some since', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('ours', { tenantId: 'acme' }));
    for (let number = 0; number < 5; number += 1)
      await sessions.create(session(`theirs ${number}`, { tenantId: 'globex', createdAtMs: 2 }));
    expect((await sessions.list(3, 'acme')).map(({ sessionKey }) => sessionKey)).toEqual(['ours']);
    expect(await sessions.list(3)).toHaveLength(3);
    expect(await redis.pttl(keys.sessionsOf('acme'))).toBeGreaterThan(30 * 24 * 3_600_000);
  });

  test('expired sessions leave the lists, also when these are not read; living ones stay, however old', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('root'));
    for (const key of ['old', 'gone']) await sessions.create(session(key, { parent: 'root' }));
    await redis.del(keys.session('gone'));
    const newest = session('new', { parent: 'root', createdAtMs: 100 * DAY_MS });
    await sessions.create(newest);
    expect(await redis.zrange(keys.sessions, '0', '-1')).toEqual(['old', 'root', 'new']);
    expect((await redis.smembers(keys.sessionChildren('root'))).toSorted()).toEqual(['new', 'old']);
  });

  test('a key that another session has does not hang below who asked for it', async () => {
    const { sessions } = await openSessions();
    await sessions.create(session('root'));
    await sessions.create(session('other'));
    expect(await sessions.create(session('other', { parent: 'root' }))).toBeUndefined();
    expect(await sessions.tree('root')).toEqual(['root']);
  });

  test('a tree is all that is below, however deep, and nothing beside', async () => {
    const { sessions } = await openSessions();
    for (const [key, parent] of [
      ['root', undefined],
      ['left', 'root'],
      ['leaf', 'left'],
      ['right', 'root'],
      ['other', undefined],
      ['other child', 'other'],
    ] as const)
      await sessions.create(session(key, parent === undefined ? {} : { parent }));
    expect((await sessions.tree('root')).sort()).toEqual(['leaf', 'left', 'right', 'root']);
    expect(await sessions.tree('leaf')).toEqual(['leaf']);
  });
});
