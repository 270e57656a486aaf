import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type CliFixture, openPlace } from '../pawl.ts';

const SKEWED_CLOCK = new URL('../../chaos/fixtures/skewed-clock.ts', import.meta.url).href;

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
  // Whether it fails is read again by each run.
  writeFileSync(
    join(place.folder, 'pay.ts'),
    `import { existsSync } from 'node:fs';
import { defineTool, ToolError } from 'pawl';
import { z } from 'zod';
export const pay = defineTool({
  name: 'pay', version: '1.0.0', description: 'Pays.', tier: 'workspace', effects: 'idempotent', input: z.object({}),
  run: () => {
    if (!existsSync('open')) throw new ToolError('the bank is closed', { code: 'BANK_CLOSED' });
    return { output: 'paid' };
  },
});
`,
  );
});
afterAll(() => place[Symbol.asyncDispose]());

test('pawl dead-letters lists, redrives and discards calls that failed', async () => {
  const worker = place.start(['worker', '--tools', 'pay.ts', '--json']);
  await worker.line('"event":"ready"');
  for (const key of ['a', 'b', 'c']) expect((await place.run(['call', 'pay', '--key', key])).code).toBe(1);
  const listed = await place.run(['dead-letters']);
  expect(listed).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('3 dead letters: 3 BANK_CLOSED · 3 tools.pay'),
  });
  expect(listed.stdout.split('\n').filter((line) => line.includes('the bank is closed'))).toHaveLength(3);
  const { deadLetters } = JSON.parse(
    (await place.run(['dead-letters', 'ls', '--code', 'BANK_CLOSED', '--json'])).stdout,
  );
  const [first] = deadLetters as { callId: string }[];

  expect(await place.run(['dead-letters', 'redrive'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--all'),
  });
  expect(await place.run(['dead-letters', 'redrive', first?.callId ?? '', '--all'])).toMatchObject({ code: 2 });
  expect(await place.run(['dead-letters', 'ls', '--since', 'lately'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--since'),
  });
  const dry = await place.run(['dead-letters', 'redrive', '--tool', 'pay', '--since', '1h', '--dry-run']);
  expect(dry).toMatchObject({ code: 0, stdout: '3 of 3 calls would be redriven, 0 skipped\n' });
  const env = { NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: '7200000' };
  const ahead = place.start(['dead-letters', 'redrive', '--since', '1h', '--dry-run'], env);
  expect(await ahead.ended).toMatchObject({ code: 0 });
  expect(ahead.stdout()).toBe('3 of 3 calls would be redriven, 0 skipped\n');
  const discarded = await place.run(['dead-letters', 'discard', first?.callId ?? '', '--reason', 'a test']);
  expect(discarded.stdout).toBe('1 of 1 call discarded, 0 skipped\n');
  writeFileSync(join(place.folder, 'open'), '');
  const redriven = await place.run([
    'dead-letters',
    'redrive',
    '--all',
    '--per-second',
    '100',
    '--reason',
    'open again',
  ]);
  expect(redriven.stdout).toBe('2 of 2 calls redriven, 0 skipped\n');
  expect((await place.run(['call', 'pay', '--key', 'a'])).stdout).toContain('paid');
  expect((await place.run(['dead-letters'])).stderr).toContain('there are no such dead letters');
  const redrives = await place.run(['dead-letters', 'redrives']);
  expect(redrives.stdout).toMatch(/ done +2 +2 +0 /);
  const { calls } = JSON.parse((await place.run(['calls', 'ls', '--tool', 'pay', '--state', 'done', '--json'])).stdout);
  const story = await place.run(['calls', 'show', calls[0].callId]);
  expect(story.stdout).toMatch(
    /attempt 1 failed with BANK_CLOSED[^\n]*\n[^\n]*redriven by [^\n]*, after BANK_CLOSED\n/,
  );
});

test('a named call that is not there is a failure, also beside one that is', async () => {
  for (const action of ['redrive', 'discard']) {
    for (const option of [[], ['--dry-run']]) {
      const answer = await place.run(['dead-letters', action, 'w0.nowhere', ...option]);
      expect(answer).toMatchObject({ code: 1, stdout: expect.stringContaining('w0.nowhere  UNKNOWN_CALL') });
    }
    expect(await place.run(['dead-letters', action, '--tool', 'none'])).toMatchObject({ code: 0 });
  }
});

test('pawl calls resolve --all takes a reason', async () => {
  const run = (...more: string[]) => place.run(['calls', 'resolve', ...more]);
  expect(await run('--as', 'failed')).toMatchObject({ code: 2, stderr: expect.stringContaining('--all') });
  expect(await run('--all', '--as', 'failed')).toMatchObject({ code: 2, stderr: expect.stringContaining('--reason') });
  expect(await run('w0.x', '--all', '--as', 'failed', '--reason', 'x')).toMatchObject({ code: 2 });
  for (const option of [['--dry-run'], ['--tool', 'pay'], ['--since', '2h']])
    expect(await run('w0.x', '--as', 'failed', ...option)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`${option[0]} belongs to --all`),
    });
  const answer = await run('--all', '--as', 'failed', '--reason', 'none happened');
  expect(answer).toMatchObject({ code: 0, stdout: '0 of 0 calls resolved as failed, 0 skipped\n' });
});
