import { describe, expect, test } from 'vitest';
import { uuidv7 } from '../../../../src/shared/util/time.ts';
import { startRig, testTools } from '../rig.ts';

const SHORT = { tool: 'echo', params: { text: 'later' }, session: 's' };
const ENVELOPE = {
  contractVersion: '1.1',
  requestId: uuidv7(),
  toolName: 'echo',
  toolNamespace: 'tools',
  target: { sessionKey: 's', actorId: 'ada' },
  payload: { version: '1.0', params: { text: 'later' }, idempotencyKey: 'envelope' },
  transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 1, maxElapsedMs: 0 } },
  control: {},
  trace: {},
};

async function open() {
  const { tools, runs } = testTools();
  const rig = await startRig({ tools });
  const post = (query: string, json: object) => rig.ask(`/v1/calls${query}`, { method: 'POST', json });
  return { ...rig, runs, post };
}

describe('POST /v1/calls with a start', () => {
  test('answers at once: the call is delayed, listed, and has its start time', async () => {
    const { post, ask, runs } = await open();
    const startAt = new Date(Date.now() + 3_600_000).toISOString();
    const answers = await Promise.all([
      post('?startAfterMs=60000', SHORT),
      post(`?startAt=${encodeURIComponent(startAt)}`, { ...SHORT, idempotencyKey: 'at' }),
      post('', { ...SHORT, idempotencyKey: 'body', startAfterMs: 60_000 }),
      post('', { ...SHORT, idempotencyKey: 'body at', startAt }),
      post('?startAfterMs=60000', ENVELOPE),
    ]);
    for (const { status, body } of answers)
      expect([status, body]).toMatchObject([202, { state: 'inflight', phase: 'delayed' }]);
    const { body: listed } = await ask('/v1/calls?state=delayed');
    expect(listed.calls.map(({ callId }: { callId: string }) => callId).sort()).toEqual(
      answers.map(({ body }) => body.callId).sort(),
    );
    const { body: one } = await ask(`/v1/calls/${answers[1]?.body.callId}`);
    expect(one).toMatchObject({ phase: 'delayed', startAtMs: Date.parse(startAt) });
    const { body: ended } = await ask(`/v1/calls/${answers[0]?.body.callId}`, { method: 'DELETE' });
    expect(ended).toMatchObject({ settlement: 'cancelled-before-start' });
    expect(runs()).toBe(0);
  });

  test('waits for its end when asked to', async () => {
    const { post } = await open();
    const { status, body } = await post('?startAfterMs=200&wait=20000', SHORT);
    expect([status, body.status]).toEqual([200, 'success']);
  });

  test.each([
    ['?startAfterMs=soon', {}, 'startAfterMs'],
    ['?startAfterMs=-5', {}, 'startAfterMs'],
    ['?startAfterMs=1.5', {}, 'startAfterMs'],
    ['?startAfterMs=31622400000', {}, 'startAfterMs'],
    ['?startAt=2020-01-01T00:00:00Z', {}, 'startAt'],
    ['?startAt=2020-01-01T00:00:00Z', { idempotencyKey: 'k' }, 'startAt'],
    ['?startAt=now', {}, 'startAt'],
    ['?startAt=', {}, 'startAt'],
    ['?startAfterMs=5&startAt=2027-01-31T08:00:00Z', {}, 'startAt'],
    ['?startAfterMs=5', { startAfterMs: 5 }, 'startAfterMs'],
    ['', { startAfterMs: '5' }, 'startAfterMs'],
    ['', { startAfterMs: null }, 'startAfterMs'],
    ['', { startAt: 5 }, 'startAt'],
  ])('refuses %s with %j at %s', async (query, fields, path) => {
    const { post, ask } = await open();
    const { status, body } = await post(query, { ...SHORT, ...fields });
    expect([status, body]).toMatchObject([400, { error: { code: 'CONTRACT_INVALID', issues: [{ path }] } }]);
    expect((await ask('/v1/calls')).body.calls).toEqual([]);
  });
});
