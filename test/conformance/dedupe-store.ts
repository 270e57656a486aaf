/** What every dedupe store does, whatever it keeps its records in (R13 to R16). */
import { describe, expect, test } from 'vitest';
import { DEDUPE_DEFAULTS, type DedupeRecord, type DedupeStore } from '../../src/shared/calls/dedupe-store.ts';

export interface StoreHooks {
  readonly maxKeys?: number;
  readonly onEvicted?: (record: DedupeRecord) => void;
  readonly onBackpressure?: (pressure: { readonly size: number; readonly maxKeys: number }) => void;
}

/** A store in a test's own world. */
export interface StoreRig {
  open(hooks?: StoreHooks): DedupeStore;
  /** Lets the store's clock reach a time. */
  pass(untilMs: number): Promise<void>;
}

const LONG_MS = 60_000;
/** Short enough to wait for its end; nothing may depend on what is done within it. */
const SHORT_MS = 100;
/** What a busy machine may take between two steps of a test. */
const STANDSTILL_MS = 2_500;

type Change = Partial<DedupeRecord>;

async function recordFor(store: DedupeStore, key: string, change: Change = {}): Promise<DedupeRecord> {
  const { ttlMs = LONG_MS, ...rest } = change;
  const nowMs = await store.now();
  return {
    key,
    tool: 'tools.note',
    idempotencyKey: `the caller's ${key}`.slice(0, 40),
    state: 'inflight',
    createdAtMs: nowMs,
    updatedAtMs: nowMs,
    expiresAtMs: nowMs + ttlMs,
    ttlMs,
    request: {
      sessionKey: 'session-1',
      actorId: 'ada',
      requestId: 'request-1',
      toolCallId: 'call-1',
      paramsDigest: 'digest-1',
    },
    lockUntilMs: nowMs + DEDUPE_DEFAULTS.lockMs,
    version: 1,
    ...rest,
  };
}

async function claim(store: DedupeStore, key: string, change?: Change): Promise<DedupeRecord> {
  const record = await recordFor(store, key, change);
  expect(await store.setIfNotExists(record)).toEqual({ created: true });
  return record;
}

async function finish(store: DedupeStore, key: string, change: Change = {}): Promise<DedupeRecord> {
  const { lockUntilMs: _lease, ...record } = await recordFor(store, key, {
    state: 'done',
    payload: { key },
    ...change,
  });
  expect(await store.setIfNotExists(record)).toEqual({ created: true });
  return record;
}

async function keysIn(store: DedupeStore, keys: readonly string[]): Promise<string[]> {
  const found = await Promise.all(keys.map(async (key) => ((await store.get(key)) === undefined ? [] : [key])));
  return found.flat();
}

export function describeDedupeStore(name: string, openRig: () => Promise<StoreRig>): void {
  describe(`${name} is a dedupe store`, () => {
    test('of 1,000 who claim a key at once one creates, and the others get its record (R15)', async () => {
      const store = (await openRig()).open();
      const records = await Promise.all(
        Array.from({ length: 1_000 }, async (_, index) => ({
          ...(await recordFor(store, 'one')),
          request: { sessionKey: 'session-1', actorId: 'ada', requestId: `request-${index}`, paramsDigest: 'digest-1' },
        })),
      );
      const answers = await Promise.all(records.map((record) => store.setIfNotExists(record)));
      expect(answers.filter((answer) => answer.created)).toHaveLength(1);
      const winner = records[answers.findIndex((answer) => answer.created)];
      for (const answer of answers) if (!answer.created) expect(answer.existing).toEqual(winner);
      expect(await store.size()).toBe(1);
    });

    test('a record comes back with every field of the seed as it went in (R14)', async () => {
      const store = (await openRig()).open();
      const record = await claim(store, 'whole', {
        execution: {
          attemptCount: 2,
          attempts: [
            { startedAtMs: 1, finishedAtMs: 2, status: 'error', retriable: true, errorCode: 'HTTP_503' },
            { startedAtMs: 3, finishedAtMs: 4, status: 'success', retriable: false },
          ],
        },
        payload: { text: 'Ünïcödé 🐢 \u0000 "', list: [], nested: { empty: {}, number: 1.5, nothing: null } },
        error: { code: 'HTTP_503', message: 'busy', terminal: false, shouldRetriable: true },
      });
      expect(await store.get('whole')).toEqual(record);
      expect(await store.get('another')).toBeUndefined();
    });

    test('what a caller changes afterwards changes nothing that is stored', async () => {
      const store = (await openRig()).open();
      const payload = { list: [1] };
      await finish(store, 'kept', { payload });
      payload.list.push(2);
      const read = (await store.get('kept')) as { readonly payload: typeof payload };
      read.payload.list.push(3);
      expect((await store.get('kept'))?.payload).toEqual({ list: [1] });
    });

    test('of 50 who replace a version at once one does, and the version grows by one (R15)', async () => {
      const store = (await openRig()).open();
      const record = await claim(store, 'raced');
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, index) =>
          store.compareAndSet('raced', 1, { ...record, state: 'done', payload: index }),
        ),
      );
      expect(answers.filter((answer) => answer.swapped)).toEqual([{ swapped: true, version: 2 }]);
      const winner = answers.findIndex((answer) => answer.swapped);
      expect(await store.get('raced')).toEqual({ ...record, state: 'done', payload: winner, version: 2 });
      for (const answer of answers) if (!answer.swapped) expect(answer.existing).toMatchObject({ payload: winner });
    });

    test('a stale, a future and a made-up version replace nothing, and neither does a version of a key without a record', async () => {
      const store = (await openRig()).open();
      const record = await claim(store, 'versioned');
      for (let version = 1; version < 4; version += 1)
        expect(await store.compareAndSet('versioned', version, record)).toEqual({
          swapped: true,
          version: version + 1,
        });
      for (const version of [0, 1, 3, 5, -1, 1.5, Number.NaN])
        expect(await store.compareAndSet('versioned', version, { ...record, payload: 'wrong' })).toMatchObject({
          swapped: false,
          existing: { version: 4 },
        });
      for (const version of [0, 1])
        expect(await store.compareAndSet('absent', version, { ...record, key: 'absent' })).toEqual({
          swapped: false,
          existing: undefined,
        });
      expect(await store.size()).toBe(1);
      expect((await store.get('versioned'))?.payload).toBeUndefined();
    });

    test('what is stored under a key carries that key, whatever the record said', async () => {
      const store = (await openRig()).open();
      const record = await claim(store, 'mine');
      await store.compareAndSet('mine', 1, { ...record, key: 'yours' });
      expect(await store.get('mine')).toMatchObject({ key: 'mine', version: 2 });
      expect(await store.get('yours')).toBeUndefined();
    });

    test('a record exists up to its last millisecond and not after it, unswept (R16)', async () => {
      const rig = await openRig();
      const store = rig.open();
      const { expiresAtMs } = await finish(store, 'brief', { ttlMs: SHORT_MS });
      await finish(store, 'lasting');
      for (;;) {
        const beforeMs = await store.now();
        const found = await store.get('brief');
        const afterMs = await store.now();
        if (found !== undefined) expect(beforeMs).toBeLessThanOrEqual(expiresAtMs);
        else {
          expect(afterMs).toBeGreaterThan(expiresAtMs);
          break;
        }
        await rig.pass(afterMs + 1);
      }
      expect(await store.size()).toBe(1);
      expect(await store.delete('brief')).toBe(false);
      expect(await store.compareAndSet('brief', 1, await recordFor(store, 'brief'))).toEqual({
        swapped: false,
        existing: undefined,
      });
    });

    test('an expired key can be claimed again, and starts with version 1', async () => {
      const rig = await openRig();
      const store = rig.open();
      const first = await claim(store, 'again', { ttlMs: SHORT_MS });
      await store.compareAndSet('again', 1, { ...first, state: 'failed' });
      await rig.pass(first.expiresAtMs + 1);
      const second = await claim(store, 'again');
      expect(await store.get('again')).toEqual(second);
    });

    test('replacing a record gives it the new record’s time to live', async () => {
      const rig = await openRig();
      const store = rig.open();
      const first = await claim(store, 'prolonged', { ttlMs: STANDSTILL_MS + SHORT_MS });
      const second = await recordFor(store, 'prolonged', { state: 'done' });
      await store.compareAndSet('prolonged', 1, second);
      await rig.pass(first.expiresAtMs + 1);
      expect(await store.get('prolonged')).toMatchObject({ state: 'done', expiresAtMs: second.expiresAtMs });
      expect(await store.size()).toBe(1);
    });

    test('an expired lease frees nothing: the record in flight stays, and only its version moves it (ruling 6)', async () => {
      const rig = await openRig();
      const store = rig.open();
      const lockUntilMs = (await store.now()) + 5;
      const record = await claim(store, 'leased', { lockUntilMs });
      await rig.pass(lockUntilMs + 1);
      expect(await store.setIfNotExists(await recordFor(store, 'leased'))).toEqual({
        created: false,
        existing: record,
      });
      expect(await store.sweep()).toBe(0);
      expect(await store.compareAndSet('leased', 1, { ...record, lockUntilMs: lockUntilMs + 10 })).toMatchObject({
        swapped: true,
      });
    });

    test('a deleted key is free at once, and deleting it again says that there was nothing', async () => {
      const store = (await openRig()).open();
      await claim(store, 'cleared', { state: 'cancelled' });
      expect(await store.delete('cleared')).toBe(true);
      expect(await store.delete('cleared')).toBe(false);
      expect(await store.get('cleared')).toBeUndefined();
      await claim(store, 'cleared');
    });

    test('the janitor drops what has expired, tells how many, and touches nothing else', async () => {
      const rig = await openRig();
      const store = rig.open();
      await finish(store, 'lasting');
      await claim(store, 'running');
      expect(await store.sweep()).toBe(0);
      let lastMs = 0;
      for (const key of ['a', 'b', 'c']) lastMs = (await finish(store, key, { ttlMs: SHORT_MS })).expiresAtMs;
      await rig.pass(lastMs + 1);
      expect(await store.sweep()).toBe(3);
      expect(await store.sweep()).toBe(0);
      expect(await keysIn(store, ['lasting', 'running', 'a', 'b', 'c'])).toEqual(['lasting', 'running']);
    });

    test('at its cap the finished record that was used longest ago goes, and its owner hears of it (R15)', async () => {
      const evicted: string[] = [];
      const store = (await openRig()).open({ maxKeys: 4, onEvicted: ({ key }) => evicted.push(key) });
      await claim(store, 'running');
      for (const key of ['a', 'b', 'c']) await finish(store, key);
      expect(evicted).toEqual([]);
      // Read, and asked for again: used.
      await store.get('a');
      expect((await store.setIfNotExists(await recordFor(store, 'b'))).created).toBe(false);
      await finish(store, 'd');
      expect(evicted).toEqual(['c']);
      await finish(store, 'e');
      await finish(store, 'f');
      expect(evicted).toEqual(['c', 'a', 'b']);
      expect(await store.size()).toBe(4);
      expect(await keysIn(store, ['running', 'a', 'b', 'c', 'd', 'e', 'f'])).toEqual(['running', 'd', 'e', 'f']);
    });

    test('a store that is full of records in flight refuses a claim, says so, and takes it once there is room', async () => {
      const pressures: object[] = [];
      const store = (await openRig()).open({ maxKeys: 2, onBackpressure: (pressure) => pressures.push(pressure) });
      const first = await claim(store, 'first');
      await claim(store, 'second');
      const third = await recordFor(store, 'third');
      await expect(store.setIfNotExists(third)).rejects.toMatchObject({
        name: 'PawlError',
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining('store is full'),
      });
      expect(pressures).toEqual([{ size: 2, maxKeys: 2 }]);
      expect(await store.get('third')).toBeUndefined();
      // A key that is known is answered all the same.
      expect((await store.setIfNotExists(await recordFor(store, 'first'))).created).toBe(false);
      // Finishing takes no room, and makes the record one that may go.
      await store.compareAndSet('first', 1, { ...first, state: 'done' });
      expect(await store.setIfNotExists(third)).toEqual({ created: true });
      expect(await keysIn(store, ['first', 'second', 'third'])).toEqual(['second', 'third']);
    });

    test('expired records leave a full store before finished ones do, in flight or not', async () => {
      const evicted: string[] = [];
      const rig = await openRig();
      const store = rig.open({ maxKeys: 3, onEvicted: ({ key }) => evicted.push(key) });
      await finish(store, 'finished');
      const gone = await claim(store, 'gone', { ttlMs: SHORT_MS });
      const { expiresAtMs } = await claim(store, 'lost', { ttlMs: SHORT_MS });
      await rig.pass(Math.max(expiresAtMs, gone.expiresAtMs) + 1);
      await claim(store, 'new');
      await claim(store, 'newer');
      expect(evicted).toEqual([]);
      expect(await keysIn(store, ['finished', 'new', 'newer'])).toEqual(['finished', 'new', 'newer']);
    });

    test('many claims on a full store at once keep the cap, and none is lost', async () => {
      const evicted = new Set<string>();
      const store = (await openRig()).open({ maxKeys: 20, onEvicted: ({ key }) => evicted.add(key) });
      for (let index = 0; index < 20; index += 1) await finish(store, `old-${index}`);
      const keys = Array.from({ length: 15 }, (_, index) => `new-${index}`);
      await Promise.all(keys.map((key) => claim(store, key)));
      expect(await keysIn(store, keys)).toEqual(keys);
      expect(await store.size()).toBeLessThanOrEqual(20);
      expect([...evicted].every((key) => key.startsWith('old-'))).toBe(true);
    });

    test.each([
      'wait',
      'meta',
      'a:b',
      '123',
      ' ',
      '\u0000',
      'new\nline',
      '{tag}',
      '*',
      '🐢',
      'x'.repeat(1_024),
      '__proto__',
      'constructor',
      'toString',
      'hasOwnProperty',
    ])('the hostile text %j is a key like any other', async (text) => {
      const store = (await openRig()).open({ maxKeys: 5 });
      expect(await store.get(text)).toBeUndefined();
      const record = await claim(store, text);
      await claim(store, 'neighbour');
      expect(await store.get(text)).toEqual(record);
      expect(await store.compareAndSet(text, 1, { ...record, state: 'done' })).toMatchObject({ swapped: true });
      expect(await store.delete(text)).toBe(true);
      expect(await store.get(text)).toBeUndefined();
      expect(await store.get('neighbour')).toBeDefined();
    });

    test.each([
      ['an empty key', ''],
      ['a key above 1 KiB', 'x'.repeat(1_025)],
      ['a key above 1 KiB in UTF-8', '🐢'.repeat(257)],
      ['a key of 1 MiB', 'x'.repeat(1_048_576)],
      ['half a surrogate pair', '\ud800'],
    ])('%s is refused with a typed error, and the store works afterwards', async (_name, key) => {
      const store = (await openRig()).open();
      const refused = { name: 'PawlError', code: 'CONTRACT_INVALID' };
      const record = { ...(await recordFor(store, 'good')), key };
      await expect(store.setIfNotExists(record)).rejects.toMatchObject(refused);
      await expect(store.get(key)).rejects.toMatchObject(refused);
      await expect(store.compareAndSet(key, 1, record)).rejects.toMatchObject(refused);
      await expect(store.delete(key)).rejects.toMatchObject(refused);
      await claim(store, 'good');
      expect(await store.size()).toBe(1);
    });

    test('what JSON cannot say is refused with a typed error', async () => {
      const store = (await openRig()).open();
      const record = await recordFor(store, 'odd');
      const cycle: Record<string, unknown> = {};
      cycle['self'] = cycle;
      for (const payload of [1n, cycle])
        await expect(store.setIfNotExists({ ...record, payload })).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
      for (const expiresAtMs of [Number.NaN, Number.POSITIVE_INFINITY, 1.5])
        await expect(store.setIfNotExists({ ...record, expiresAtMs })).rejects.toMatchObject({
          code: 'CONTRACT_INVALID',
        });
      expect(await store.size()).toBe(0);
    });
  });
}
