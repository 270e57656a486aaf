import { describe, expect, test } from 'vitest';
import { ProducerSessions } from '../../../src/producer/sessions/session-cache.ts';
import type { SessionRecord } from '../../../src/shared/sessions/session.ts';
import type { Backend } from '../../../src/shared/store/backend.ts';
import { systemClock } from '../../../src/shared/util/time.ts';
import { envelopeFor } from '../../shared/store/calls.ts';

const open: SessionRecord = {
  sessionKey: 's',
  kind: 'main',
  state: 'open',
  actorId: 'ada',
  workspaceRoot: '/work',
  createdAtMs: 0,
};
const closed: SessionRecord = { ...open, state: 'closed' };

/** A record that Redis answers with at once; the answer arrives when the test says so. */
function slowRecord() {
  const record = { stored: open };
  const onTheirWay: (() => void)[] = [];
  const answer = () => {
    const answered = record.stored;
    const { promise, resolve } = Promise.withResolvers<SessionRecord>();
    onTheirWay.push(() => resolve(answered));
    return promise;
  };
  const known = new ProducerSessions({
    sessions: { read: answer, taint: answer } as unknown as Backend['sessions'],
    clock: systemClock,
    workspaceRoot: () => '/work',
    now: async () => 0,
  });
  const arrive = () => {
    for (const each of onTheirWay.splice(0)) each();
  };
  return { record, known, arrive };
}

test('an open session is not known as such when the news that it is closed overtake its record', async () => {
  const { record, known, arrive } = slowRecord();
  const reads = [known.find('s'), known.resolve(envelopeFor('call', 's'))];
  record.stored = closed;
  known.forget('s');
  arrive();
  await Promise.all(reads);
  const later = known.find('s');
  arrive();
  expect(await later).toEqual(closed);
});

test('nor when they overtake the answer to a taint', async () => {
  const { record, known, arrive } = slowRecord();
  known.remember(open);
  const tainted = known.taint('s', 'web_fetch');
  record.stored = closed;
  known.forget('s');
  arrive();
  await tainted;
  const later = known.find('s');
  arrive();
  expect(await later).toEqual(closed);
});

test('after a taint, the session is judged by it, also when news of others come meanwhile', async () => {
  const { record, known, arrive } = slowRecord();
  known.remember(open);
  record.stored = { ...open, taint: [{ source: 'web_fetch', atMs: 1 }] };
  const tainted = known.taint('s', 'web_fetch');
  known.forget('another');
  arrive();
  await tainted;
  const later = known.find('s');
  arrive();
  expect(await later).toEqual(record.stored);
});

describe('a session that Redis has lost', () => {
  const helper: SessionRecord = { ...open, kind: 'worker', budget: { calls: 3 } };
  const seen = { source: 'web_fetch', atMs: 1 };

  function emptyRedis() {
    const created: SessionRecord[] = [];
    const sessions = {
      read: async () => undefined,
      create: async (record: SessionRecord) => {
        created.push(record);
        return record;
      },
    };
    const known = new ProducerSessions({
      sessions: sessions as unknown as Backend['sessions'],
      clock: systemClock,
      workspaceRoot: () => '/work',
      now: async () => 0,
    });
    return { known, created };
  }

  test('comes back with what it has seen since it was opened', async () => {
    const { known, created } = emptyRedis();
    known.remember({ ...helper, taint: [seen] });
    known.forget('s');
    expect(await known.resolve(envelopeFor('call', 's'), helper)).toEqual({ ...helper, taint: [seen] });
    expect(created).toEqual([{ ...helper, taint: [seen] }]);
  });

  test('is found as it was: its key cannot be opened as a session that may do more', async () => {
    const { known, created } = emptyRedis();
    known.remember(helper);
    known.forget('s');
    expect(await known.find('s')).toEqual(helper);
    expect(await known.find('another')).toBeUndefined();
    expect(created).toEqual([]);
  });

  test.each([
    ['is known to be closed', closed, undefined],
    ['is known to be closed, and held as it was before', closed, open],
    ['is held as a closed one', undefined, closed],
  ])('and that %s stays closed', async (_name, last, held) => {
    const { known, created } = emptyRedis();
    if (last !== undefined) known.remember(last);
    known.forget('s');
    await expect(known.resolve(envelopeFor('call', 's'), held)).rejects.toMatchObject({ code: 'SESSION_CLOSED' });
    expect(created).toEqual([]);
  });
});
