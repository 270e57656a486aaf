import { expect, test } from 'vitest';
import { KnownSessions } from '../../src/producer/known-sessions.ts';
import type { SessionRecord } from '../../src/shared/session.ts';
import type { Backend } from '../../src/shared/store/backend.ts';
import { systemClock } from '../../src/shared/time.ts';
import { envelopeFor } from '../shared/store/calls.ts';

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
  const known = new KnownSessions({
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
  const reads = [known.find('s'), known.of(envelopeFor('call', 's'))];
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
