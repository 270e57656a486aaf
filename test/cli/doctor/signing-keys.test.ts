import { afterAll, beforeAll, expect, test } from 'vitest';
import { type CliFixture, openPlace } from '../pawl.ts';

const KEYS = { PAWL_SIGNING_KEYS: 'one:a key of this test only' };

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('a command without the fleet’s keys fails with a hint, instead of writing a record that no worker trusts', async () => {
  const worker = await place.worker(KEYS);
  const greet = (name: string, env?: Record<string, string>) => {
    const args = ['call', 'greet', '--params', JSON.stringify({ name }), '--session', 'trip'];
    return place.run(args, env === undefined ? {} : { env });
  };
  for (const name of ['Ada', 'Bob']) expect((await greet(name, KEYS)).code).toBe(0);

  const disabled = await place.run(['tools', 'disable', 'greet']);
  expect(disabled).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('PAWL_SIGNING_KEYS') });
  expect(disabled.stderr).toContain('the workers of this fleet');
  expect(disabled.stderr).not.toContain('for the whole fleet');

  const called = await greet('Eve');
  expect(called.code).toBe(1);
  expect(called.stderr).toMatch(/^pawl: greet: SIGNATURE_INVALID: /m);
  expect(called.stderr).toContain('pawl doctor');

  const others = { PAWL_SIGNING_KEYS: 'one:another key of the same name' };
  const { stderr } = await place.run(['calls', 'ls', '--session', 'trip'], { env: others });
  expect(stderr.match(/'pawl doctor' compares signing keys/g)).toHaveLength(1);

  // Some workers have the keys of this command: it is done, and the others are named.
  const stranger = await place.worker(others);
  const switched = await place.run(['tools', 'disable', 'greet'], { env: KEYS });
  expect(switched).toMatchObject({ code: 0, stderr: expect.stringContaining('not those of 1 of 2 workers') });
  for (const each of [worker, stranger]) {
    each.signal('SIGTERM');
    expect((await each.ended).code).toBe(0);
  }
});
