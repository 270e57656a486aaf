import { describe, expect, test } from 'vitest';
import type { SessionRecord } from '../../../../src/shared/sessions/session.ts';
import { SessionCache } from '../../../../src/shared/store/sessions/session-cache.ts';

const MINUTE_MS = 60_000;
const open = { sessionKey: 's', state: 'open' } as SessionRecord;
const closed: SessionRecord = { ...open, state: 'closed' };

function cacheWith(limit = 10) {
  let nowMs = 0;
  const cache = new SessionCache(limit, { monotonic: () => nowMs });
  const pass = (ms: number) => {
    nowMs += ms;
  };
  return { cache, pass };
}

describe('a session that was read a minute ago', () => {
  test('is read again by one of those who ask, and the others do not wait for it', async () => {
    const { cache, pass } = cacheWith();
    cache.remember(open);
    pass(MINUTE_MS - 1);
    expect(cache.get('s')).toBe(open);
    pass(1);
    expect([cache.get('s'), cache.get('s'), cache.get('s')]).toEqual([undefined, open, open]);
    // News of its end were lost on their way.
    await cache.keep('s', async () => closed);
    expect(cache.get('s')).toBe(closed);
  });

  test('is read by all who ask when it could not be read', async () => {
    const { cache, pass } = cacheWith();
    cache.remember(open);
    pass(MINUTE_MS);
    expect(cache.get('s')).toBeUndefined();
    const failing = cache.keep('s', () => Promise.reject(new Error('Redis is away')));
    await expect(failing).rejects.toThrow('Redis is away');
    expect([cache.get('s'), cache.get('s')]).toEqual([undefined, undefined]);
    expect(cache.last('s')).toBe(open);
  });

  test('is no newer for having been used', () => {
    const { cache, pass } = cacheWith();
    cache.remember(open);
    for (let second = 0; second < 60; second += 1) {
      cache.use('s');
      pass(1_000);
    }
    expect(cache.get('s')).toBeUndefined();
  });
});

test('the one that was not used for longest makes room', () => {
  const { cache } = cacheWith(2);
  cache.remember(open);
  cache.remember({ ...open, sessionKey: 't' });
  cache.use('s');
  cache.remember({ ...open, sessionKey: 'u' });
  expect(['s', 't', 'u'].map((key) => cache.last(key)?.sessionKey)).toEqual(['s', undefined, 'u']);
});

test.each<[what: string, known: object, then: object]>([
  ['its end', { state: 'closed' }, { state: 'closed' }],
  ['its taint', { taint: [{ source: 'web', atMs: 1 }] }, { state: 'open', taint: [{ source: 'web', atMs: 1 }] }],
])('an earlier record of a session that was put back does not undo %s', async (_what, known, then) => {
  const { cache } = cacheWith();
  cache.remember({ ...open, ...known });
  cache.forget('s');
  expect(await cache.keep('s', async () => open)).toEqual({ ...open, ...then });
  expect(cache.get('s')).toEqual({ ...open, ...then });
  // Another session that took the key after the end of this one.
  const later = { ...open, createdAtMs: 1 };
  expect(await cache.keep('s', async () => later)).toBe(later);
});
