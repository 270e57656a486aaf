import { afterAll, beforeAll, expect, test } from 'vitest';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('pawl schedules writes, shows, pauses, resumes and removes a schedule', async () => {
  await place.worker();
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await place.run(['schedules', ...args]);
    expect(code, stderr).toBe(0);
    return stdout;
  };
  await place.run(['sessions', 'open', '--key', 'ops']);
  const call = ['--tool', 'read', '--params', '{"path":"README.md"}', '--session', 'ops'];
  const put = JSON.parse(
    await run('put', 'nightly', ...call, '--cron', '0 2 * * *', '--timezone', 'Europe/Berlin', '--json'),
  );
  expect(put).toMatchObject({ id: 'nightly', revision: 1, next: { length: 5 }, overlap: 'skip' });
  expect(await run()).toMatch(/nightly +read +0 2 \* \* \* Europe\/Berlin +ops +active/);
  expect(await run('pause', 'nightly', '--reason', 'holidays')).toBe('nightly is paused\n');
  expect(await run('show', 'nightly')).toMatch(/pauseReason +holidays/);
  expect(await run('resume', 'nightly')).toMatch(/nightly is active, next \d{4}-/);
  expect(await run('run', 'nightly')).toMatch(/^\S+\n$/);
  expect(await run('rm', 'nightly')).toContain('removed');
  expect(await place.run(['schedules', 'show', 'nightly'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('There is no schedule "nightly"'),
  });
  const wrong = await place.run(['schedules', 'put', 'wrong', ...call, '--cron', '0 25 * * *']);
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('cron: is no cron expression')]);
});
