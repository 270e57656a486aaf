import { afterAll, beforeAll, expect, test } from 'vitest';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('pawl workers lists the workers that run, and drains one of them', async () => {
  expect(await place.run(['workers'])).toMatchObject({ code: 0, stderr: expect.stringContaining('pawl worker') });
  const worker = await place.worker();
  const { stdout } = await place.run(['workers', '--json']);
  const [found] = (JSON.parse(stdout) as { workers: { id: string; running: number; tools: string[] }[] }).workers;
  expect(found).toMatchObject({ running: 0, tools: expect.arrayContaining(['tools.greet@1.0.0']) });
  const id = found?.id ?? '';
  expect((await place.run(['workers', 'ls'])).stdout).toMatch(
    new RegExp(`^${id} +read-only,workspace,system,elevated +0 +128 `, 'm'),
  );

  const wrong = await place.run(['workers', 'drain', `${id}x`]);
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining(`Did you mean ${id}?`) });
  expect(await place.run(['workers', 'drain', id])).toMatchObject({ code: 0, stdout: expect.stringContaining(id) });
  expect((await worker.ended).code).toBe(0);
  expect((await place.run(['audit', '--type', 'override'])).stdout).toContain(`worker drain ${id}`);
});
