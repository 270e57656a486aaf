/** @module-tag slow */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { startScript } from '../helpers/process.ts';
import { SHORT_LOCK_MS, startFleet } from './fixtures/fleet.ts';

test('kill -9 of the worker, then of the client, each in the middle of a call: nothing runs twice, nothing is lost (C21)', async () => {
  const fleet = await startFleet({ workers: 1, lockDurationMs: SHORT_LOCK_MS });
  const { folder, environment, gate } = fleet;
  const client = startScript(new URL('./fixtures/tool-client.ts', import.meta.url), [], {
    env: { ...environment, FOLDER: folder },
  });
  await client.line(/^ready/);
  const publish = async (page: string) => {
    const submission = await fleet.session.submit('publish', { page }, { idempotencyKey: page });
    if (submission.kind !== 'pending') throw new Error(JSON.stringify(submission.result));
    return submission.result;
  };

  const first = publish('a');
  await client.line('runs a');
  await fleet.workers[0]?.kill();
  await fleet.addWorker();
  gate('a').open();
  expect(await first).toMatchObject({ status: 'success', output: { content: 'published a' } });

  const second = publish('b');
  await client.line('runs b');
  await client.kill();
  expect(await second).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' }, attempts: 1 });
  expect(await publish('c')).toMatchObject({ error: { code: 'CLIENT_GONE' } });
  expect(readFileSync(join(folder, 'published'), 'utf8')).toBe('a b ');
});
