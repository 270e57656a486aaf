import { expect, test } from 'vitest';
import type { AuditEvent } from '../../../src/shared/audit/audit-event.ts';
import { AuditFormatter } from '../../../src/shared/audit/audit-record.ts';
import { digest } from '../../../src/shared/schema/canonical-json.ts';

const TOKEN = ['ghp', 'a1B2c3D4e5F6g7H8i9J0k1L2m3N4'].join('_');
const attempt: AuditEvent = {
  type: 'attempt',
  callId: 'w0.x',
  tool: 'tools.write',
  toolVersion: '1.0.0',
  tier: 'workspace',
  sessionKey: 's',
  actorId: 'ada',
  attempt: 1,
  fence: 1,
  worker: 'w',
  status: 'success',
  startedAtMs: 1_700_000_000_000,
  finishedAtMs: 1_700_000_000_012.4,
  latencyMs: 12.3456,
  estimatedCostUnits: 2,
  trustClass: 'BestEffort',
  idempotencyKey: 'trip-1',
  params: { password: 'four plain words', path: 'a.txt' },
  result: { wrote: 'a.txt' },
};

const submitted: AuditEvent = {
  type: 'call',
  answer: 'refused',
  requestId: 'r',
  tool: 'tools.fetch',
  sessionKey: 's',
  actorId: 'ada',
};

function recordOf(event: AuditEvent, known: readonly string[] = []) {
  return JSON.parse(new AuditFormatter(known).format(event, 5, 'p.1')) as Record<string, unknown>;
}

test('I4: a record has the seed’s fields: summaries, timing in nanoseconds, latency, cost, trust class, key', () => {
  expect(recordOf(attempt)).toMatchObject({
    id: 'p.1',
    atMs: 5,
    type: 'attempt',
    startedAtNs: '1700000000000000000',
    finishedAtNs: '1700000000012000000',
    latencyMs: 12.346,
    estimatedCostUnits: 2,
    trustClass: 'BestEffort',
    idempotencyKeyHash: digest('trip-1'),
    result: '{"wrote":"a.txt"}',
  });
  expect(recordOf(attempt)).not.toHaveProperty('params');
});

test('R31: what the parameters hold under a secret’s name is in no result, and tokens and known values are in no field', () => {
  const result = { echo: 'it was four plain words', also: `use ${TOKEN}`, env: 'hunter2hunter2' };
  const text = new AuditFormatter(['hunter2hunter2']).format({ ...attempt, result }, 5, 'p.1');
  expect(text).not.toMatch(/four plain|ghp_|hunter2/);
  const refused: AuditEvent = {
    ...submitted,
    params: { url: 'https://x', headers: { authorization: `Bearer ${TOKEN}` } },
    code: 'PERMISSION_DENIED',
    reason: `no ${TOKEN} here`,
  };
  const clean = recordOf(refused);
  expect(JSON.stringify(clean)).not.toContain(TOKEN);
  expect(clean['request']).toContain('https://x');
});

test('R31: what the parameters hold under a secret’s name is in no reason that quotes it', () => {
  const reason = 'cannot log in with four plain words at a.txt';
  const failed = recordOf({ ...attempt, status: 'error', reason });
  expect(failed['reason']).toBe('cannot log in with [redacted] at a.txt');
  const { requestId, tool, sessionKey, actorId, params } = { ...attempt, requestId: 'r' };
  const refused = { type: 'call', answer: 'refused', requestId, tool, sessionKey, actorId, params, reason } as const;
  expect(recordOf(refused)['reason']).toBe('cannot log in with [redacted] at a.txt');
});

test.each<[string, AuditEvent]>([
  ['because', { type: 'group-changed', kind: 'plan', groupId: 'g', action: 'ended', because: `node ${TOKEN}` }],
  ['submittedBy', { ...submitted, submittedBy: TOKEN }],
  ['correlationId', { ...submitted, correlationId: TOKEN }],
  ['action', { type: 'override', what: 'worker', action: TOKEN, by: 'ada' }],
  ['by', { type: 'override', what: 'worker', action: 'drain', by: TOKEN }],
])('a token that people put into %s is in no record', (field, event) => {
  const record = recordOf(event);
  expect(record[field]).toContain('[redacted]');
  expect(JSON.stringify(record)).not.toContain(TOKEN);
});

test('a summary is bounded, whatever the value, and never shows a part of a long text', () => {
  const deep: Record<string, unknown> = {};
  let at = deep;
  for (let depth = 0; depth < 200; depth += 1) {
    const below = {};
    at['below'] = below;
    at = below;
  }
  const members = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`k${index}`, index]));
  const list = Array.from({ length: 5_000 }, (_, index) => index);
  for (const result of [deep, members, list, 'x'.repeat(100_000), { text: 'x'.repeat(100_000) }, null, undefined, 0n])
    expect(new AuditFormatter([]).format({ ...attempt, result }, 5, 'p.1').length).toBeLessThan(2_500);
  expect(recordOf({ ...attempt, result: { text: 'x'.repeat(300) } })['result']).toBe('{"text":"(300 characters)"}');
  const why = recordOf({ ...attempt, status: 'error', reason: 'why '.repeat(2_000) });
  expect(String(why['reason']).length).toBeLessThan(1_100);
});

test('a summary says what JSON says of dates and of all that has a form of its own there', () => {
  const result = { at: new Date(0), row: { toJSON: () => ({ id: 7 }) } };
  expect(recordOf({ ...attempt, result })['result']).toBe(JSON.stringify(result));
});

test('an attempt is recorded although its result is not JSON-serializable', () => {
  const throwing = (): never => {
    throw new Error('no such form');
  };
  for (const result of [{ toJSON: throwing }, Object.defineProperty({}, 'row', { get: throwing, enumerable: true })])
    expect(recordOf({ ...attempt, result })).toMatchObject({ callId: 'w0.x', result: '(not JSON-serializable)' });
});
