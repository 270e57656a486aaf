import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import type { Backend } from '../../../src/shared/store/backend.ts';
import type { Logger } from '../../../src/shared/telemetry/log.ts';
import { SegmentSweep } from '../../../src/workers/queue/segment-sweep.ts';
import { PLACE } from '../../shared/store/calls.ts';
import { done, openWithFiles } from '../../shared/store/segments/moved-calls.ts';

test('a store that cannot be written is logged once; when it can, calls leave Redis', async () => {
  const { books, folder } = await openWithFiles();
  await done(books);
  const logged: unknown[] = [];
  const log = { info: (fields: object) => logged.push(fields), warn: (fields: object) => logged.push(fields) };
  const settings = { ...resolveSettings({}), segmentsAfterMs: 0 };
  const sweep = new SegmentSweep(books as unknown as Backend, settings, log as unknown as Logger);
  const run = async () => {
    await sweep.run([PLACE]).catch((error: Error) => sweep.warn(error));
  };
  renameSync(folder, `${folder}.away`);
  writeFileSync(folder, 'no folder');
  await run();
  await run();
  expect(logged).toEqual([
    { event: 'calls_not_moved', error: expect.stringContaining(`The blob store cannot write to ${folder}`) },
  ]);
  rmSync(folder);
  renameSync(`${folder}.away`, folder);
  await run();
  expect(logged[1]).toMatchObject({ event: 'calls_moved', calls: 1 });
});
