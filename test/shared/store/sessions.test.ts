import { describe, expect, test } from 'vitest';
import type { SessionRecord } from '../../../src/shared/session.ts';
import { FleetKeys } from '../../../src/shared/store/keys.ts';
import { Sessions } from '../../../src/shared/store/sessions.ts';
import { openBooks } from './calls.ts';

const session = (sessionKey: string, change: Partial<SessionRecord> = {}): SessionRecord => ({
  sessionKey,
  kind: 'main',
  state: 'open',
  actorId: 'ada',
  workspaceRoot: '/tmp',
  createdAtMs: 1,
  ...change,
});

async function openSessions() {
  const { redis, world } = await openBooks();
  return { sessions: new Sessions(redis, world.prefix), redis, keys: new FleetKeys(world.prefix) };
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

  test('a closed session stays readable for a day', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('one'));
    expect(await redis.pttl(keys.session('one'))).toBeGreaterThan(29 * 24 * 3_600_000);
    expect(await sessions.close('one')).toEqual(session('one', { state: 'closed' }));
    expect(await sessions.read('one')).toMatchObject({ state: 'closed' });
    const leftMs = await redis.pttl(keys.session('one'));
    expect(leftMs).toBeLessThanOrEqual(24 * 3_600_000);
    expect(leftMs).toBeGreaterThan(23 * 3_600_000);
    expect(await sessions.close('two')).toBeUndefined();
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

  test('who is gone leaves the lists, also when nobody looks at them', async () => {
    const { sessions, redis, keys } = await openSessions();
    await sessions.create(session('old'));
    await sessions.create(session('new', { createdAtMs: 32 * 24 * 3_600_000 }));
    expect(await redis.zrange(keys.sessions, '0', '-1')).toEqual(['new']);
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
