import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../../helpers/signal.ts';
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
  expect(ended.stdout).toMatch(/: done\n\n.*first +list_dir +success +Listed \d+ entries/s);
  const idOf = ({ stdout }: { readonly stdout: string }) => JSON.parse(stdout).planId;
  const keyed = async () => idOf(await run('run', file, '--session', 'trip', '--key', 'a', '--json'));
  expect(await keyed()).toBe(await keyed());
  writeFileSync(file, JSON.stringify({ nodes, idempotencyKey: 'b' }));
  expect(await run('run', file, '--session', 'trip', '--key', 'a')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('another idempotencyKey than --key'),
  });
  const { plans } = JSON.parse((await run('--json')).stdout);
  expect(plans).toMatchObject(Array(2).fill({ state: 'done', session: 'trip', counts: { success: 2 } }));
  expect((await run('show', plans[0].planId)).stdout).toContain('second');
  expect((await run('cancel', plans[0].planId)).stdout).toContain('is done');
  expect(await run('show', 'none')).toMatchObject({ code: 2, stderr: expect.stringContaining('There is no plan') });
});

test('pawl plans run waits for the approval of its plan, and ends with 5 when it is denied', async () => {
  await place.worker();
  await place.run(['sessions', 'open', '--key', 'asking', '--channel', 'operator']);
  const file = join(place.folder, 'asking.json');
  const nodes = { only: { tool: 'shell', params: { command: ['ls'], sandbox_permissions: 'require_escalated' } } };
  writeFileSync(file, JSON.stringify({ nodes }));
  const dry = await place.run(['plans', 'run', file, '--session', 'asking', '--dry-run']);
  expect([dry.stderr, dry.stdout]).toEqual(['', 'only (needs approval)\n']);
  const running = place.run(['plans', 'run', file, '--session', 'asking']);
  const [id] = await eventually(async () => {
    const { approvals } = JSON.parse((await place.run(['approvals', '--json'])).stdout);
    return approvals.length > 0 && approvals.map((approval: { id: string }) => approval.id);
  });
  const shown = await place.run(['approvals', 'show', id]);
  expect(shown.stdout).toContain('Run a plan of 1 node, of which 1 needs this approval: only');
  await place.run(['approvals', 'deny', id, '--reason', 'not today']);
  const ended = await running;
  expect(ended.code).toBe(5);
  expect(ended.stdout).toMatch(/: failed: .* denied the plan: not today/);
});

test.each([
  ['{"nodes":', 'The plan (broken.json) is not JSON'],
  ['[]\n', 'The plan (broken.json) must be a JSON object such as {"nodes":'],
  ['null', 'got null.'],
  ['\u00a9'.repeat(3), 'is not JSON'],
])('pawl plans run says of %j that it is no plan, and what a plan is', async (text, message) => {
  writeFileSync(join(place.folder, 'broken.json'), text);
  const { code, stderr } = await place.run(['plans', 'run', 'broken.json', '--session', 'trip']);
  expect(code).toBe(2);
  expect(stderr).toContain(message);
  expect(stderr).toContain('{"nodes":{"list":');
  expect(stderr).not.toMatch(/parameters|--params/);
});
