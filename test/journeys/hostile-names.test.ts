/** @module-tag slow */
import { expect, test } from 'vitest';
import type { ToolResultEnvelope } from '../../src/index.ts';
import { startFleet } from './fixtures/fleet.ts';

/** Names of Redis keys, of BullMQ's own records, of JavaScript's prototypes, separators, and what is hardly text at all. */
const HOSTILE = [
  ...[
    '',
    ' ',
    '\t',
    '\n',
    '\r\n',
    'wait',
    'active',
    'meta',
    'id',
    'events',
    'marker',
    'delayed',
    'stalled',
    'completed',
  ],
  ...['a:b', 'a:b:c', 'a:b:c:d', ':', '::', '123', '-5', '0', '0:1', '1e3', 'NaN', 'null', 'undefined', 'true'],
  ...['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty', 'then', 'length'],
  ...[
    '*',
    '?',
    '{a}',
    '{',
    '}',
    '[a-z]',
    '%s',
    '%00',
    '..',
    '../..',
    "'; DROP TABLE calls; --",
    '"',
    "'",
    '\\',
    '\\u0000',
  ],
  ...[
    '\0',
    'a\0b',
    '\ud800',
    '\ud801',
    '\udc00',
    '\ufffd',
    '\ufeff',
    '\u202e',
    '\u2028',
    '🙂',
    '👩‍👩‍👧‍👦',
    'é',
    'e\u0301',
  ],
  ...['x'.repeat(1_023), 'x'.repeat(1_024), 'x'.repeat(1_025), 'é'.repeat(512), 'é'.repeat(513), 'x'.repeat(1_048_576)],
];
const shown = (text: string) => JSON.stringify(text.length > 40 ? `${text.slice(0, 10)}… ${text.length}` : text);
const endOf = ({ status, error }: ToolResultEnvelope) => (status === 'success' ? status : error.code);

test('any idempotency key is a typed error or names its own call, and the queue works afterwards (R8)', async () => {
  const { session, effects, pawl } = await startFleet();
  const ends = await Promise.all(
    HOSTILE.map(async (idempotencyKey) => {
      const call = () => session.call('record_once', { label: 'hostile' }, { idempotencyKey });
      const [first, second] = [await call(), await call()];
      return { idempotencyKey, first, second };
    }),
  );
  const sound = (key: string) => key !== '' && Buffer.byteLength(key) <= 1_024;
  expect(ends.map(({ idempotencyKey, first }) => `${shown(idempotencyKey)} ${endOf(first)}`)).toEqual(
    HOSTILE.map((key) => `${shown(key)} ${sound(key) ? 'success' : 'CONTRACT_INVALID'}`),
  );
  const worked = ends.filter(({ first }) => first.status === 'success');
  for (const { idempotencyKey, first, second } of worked)
    expect(second, shown(idempotencyKey)).toMatchObject({
      callId: first.callId,
      output: first.output,
      fromCache: true,
    });
  expect(new Set(worked.map(({ first }) => first.callId)).size).toBe(worked.length);
  const done = effects().filter((line) => line.phase === 'effect');
  expect(done.map((line) => line.key).sort()).toEqual(worked.map(({ idempotencyKey }) => idempotencyKey).sort());

  expect(await session.call('record_once', {}, { idempotencyKey: 'ordinary' })).toMatchObject({ status: 'success' });
  expect(await pawl.backend.ledger.index.counts({ tier: 'workspace', shard: 0 })).toEqual({
    inflight: 0,
    delayed: 0,
    pending: 0,
    calls: worked.length + 1,
  });
});

test('any session key is a typed error or a session of its own', async () => {
  const { pawl, folder } = await startFleet();
  const opened = await Promise.all(
    HOSTILE.map(async (sessionKey) => {
      try {
        const session = await pawl.openSession({
          sessionKey,
          workspaceRoot: folder,
          actorId: `of ${shown(sessionKey)}`,
        });
        // The same key in every session: sessions never share a call.
        const result = await session.call('record_once', { label: shown(sessionKey) }, { idempotencyKey: 'k' });
        return { sessionKey, end: endOf(result), result, again: (await pawl.session(sessionKey)).record.sessionKey };
      } catch (error) {
        return { sessionKey, end: (error as { code?: string }).code ?? String(error) };
      }
    }),
  );
  // A text that has no UTF-8 form of its own would share its record with others that have none either.
  const sound = (key: string) => key !== '' && key.length <= 256 && key.isWellFormed();
  expect(opened.map(({ sessionKey, end }) => `${shown(sessionKey)} ${end}`)).toEqual(
    HOSTILE.map((key) => `${shown(key)} ${sound(key) ? 'success' : 'CONTRACT_INVALID'}`),
  );
  const worked = opened.filter(({ result }) => result !== undefined);
  expect(new Set(worked.map(({ result }) => result?.callId)).size).toBe(worked.length);
  for (const { sessionKey, result, again } of worked) {
    expect(result?.output?.content).toMatchObject({ label: shown(sessionKey) });
    expect(again).toBe(sessionKey);
    expect(await pawl.calls.list({ sessionKey }), shown(sessionKey)).toHaveLength(1);
  }
});

test('any tool name is answered with a typed error at once, and no job is added', async () => {
  const { session, pawl } = await startFleet();
  const startedMs = performance.now();
  for (const name of HOSTILE) {
    const result = await session.call(name, {});
    expect(['UNKNOWN_TOOL', 'CONTRACT_INVALID'], shown(name)).toContain(endOf(result));
    expect(Buffer.byteLength(JSON.stringify(result)), shown(name)).toBeLessThan(16_384);
    const other = await session.call('record_once', {}, { namespace: name });
    expect(['UNKNOWN_TOOL', 'CONTRACT_INVALID'], `namespace ${shown(name)}`).toContain(endOf(other));
  }
  expect(performance.now() - startedMs).toBeLessThan(120_000);
  expect(await pawl.calls.list()).toEqual([]);
  expect(await session.call('record_once', {})).toMatchObject({ status: 'success' });
});
