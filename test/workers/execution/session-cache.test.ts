import { expect, test } from 'vitest';
import type { SessionRecord } from '../../../src/shared/sessions/session.ts';
import type { Sessions } from '../../../src/shared/store/sessions/sessions.ts';
import { WorkerSessions } from '../../../src/workers/execution/session-cache.ts';

test('a session is not known without its taint when the news of it overtake the record', async () => {
  const before = { sessionKey: 's', state: 'open', createdAtMs: 0 } as SessionRecord;
  const after: SessionRecord = { ...before, taint: [{ source: 'web_fetch', atMs: 1 }] };
  const { promise: onItsWay, resolve: arrive } = Promise.withResolvers<SessionRecord>();
  const answers = [onItsWay, Promise.resolve(after)];
  const known = new WorkerSessions({ read: () => answers.shift() } as unknown as Sessions);
  const read = known.find('s');
  known.forget('s');
  arrive(before);
  await read;
  expect(await known.find('s')).toEqual(after);
});
