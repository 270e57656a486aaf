import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('pawl plans checks, runs, lists and shows a plan', async () => {
  await place.worker();
  await place.run(['sessions', 'open', '--key', 'trip']);
  const file = join(place.folder, 'plan.json');
  const nodes = { second: { tool: 'list_dir', params: { path: '.' }, after: ['first'] }, first: { tool: 'read' } };
  writeFileSync(file, JSON.stringify({ nodes }));
  const run = (...args: string[]) => place.run(['plans', ...args]);
  expect(await run('run', file, '--session', 'trip', '--dry-run')).toMatchObject({ code: 2 });
  Object.assign(nodes, { first: { tool: 'list_dir', params: { path: '.' } } });
  writeFileSync(file, JSON.stringify({ nodes }));
  const dry = await run('run', file, '--session', 'trip', '--dry-run');
  expect([dry.code, dry.stdout]).toEqual([0, 'first\nsecond\n']);
  const ended = await run('run', file, '--session', 'trip');
  expect(ended.stdout).toMatch(/: done\n\n.*first +list_dir +success/s);
  const { plans } = JSON.parse((await run('ls', '--json')).stdout);
  expect(plans).toMatchObject([{ state: 'done', session: 'trip', counts: { success: 2 } }]);
  expect((await run('show', plans[0].planId)).stdout).toContain('second');
  expect((await run('cancel', plans[0].planId)).stdout).toContain('is done');
  expect((await run('show', 'none')).stderr).toContain('There is no plan');
});
