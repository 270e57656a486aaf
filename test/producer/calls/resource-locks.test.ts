/** C3, on real Redis and workers: what a call works on decides whom it waits for. */
import { expect, test } from 'vitest';
import { z } from 'zod';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';

/** A tool whose calls begin, wait until they are let go, and tell what ran at the same time. */
function desk(change: Partial<Parameters<typeof defineTool>[0]> = {}) {
  const gate = signal();
  const inside: string[] = [];
  const seen: string[] = [];
  const tool = defineTool({
    name: 'desk',
    version: '1.0.0',
    description: 'Works on a file.',
    tier: 'workspace',
    effects: 'idempotent',
    ...change,
    input: z.object({
      file: z.string(),
      look: z.boolean().default(false),
      name: z.string(),
      fails: z.boolean().default(false),
    }),
    isMutating: ({ look }) => !look,
    resource: ({ file }) => (file === 'none' ? undefined : file),
    run: async ({ name, fails }) => {
      inside.push(name);
      seen.push([...inside].sort().join('+'));
      if (name.startsWith('held')) await gate.promise;
      inside.splice(inside.indexOf(name), 1);
      if (fails) throw Object.assign(new Error('busy'), { status: 503 });
      return { output: name };
    },
  });
  return { tool, seen, inside, open: () => gate.fire() };
}

test('C3: calls that only look share a file, one that changes it waits, and files of other names are free', async () => {
  const { tool, inside, open } = desk();
  const { session } = await startFleet({ tools: [tool] });
  const looks = ['held 1', 'held 2'].map((name) => session.call(tool, { file: 'a', look: true, name }));
  await eventually(() => inside.length === 2);
  const change = await session.submit(tool, { file: 'a', name: 'change' });
  expect(contentOf(await session.call(tool, { file: 'b', name: 'elsewhere' }))).toBe('elsewhere');
  expect(contentOf(await session.call(tool, { file: 'none', name: 'nowhere' }))).toBe('nowhere');
  expect(inside).toEqual(['held 1', 'held 2']);
  open();
  await Promise.all(looks);
  expect(await change.result).toMatchObject({ status: 'success', attempts: 1 });
});

test('C3: a file of one tenant is not that of another', async () => {
  const { tool, inside, open } = desk();
  const { session, pawl } = await startFleet({ tools: [tool] });
  const held = session.call(tool, { file: 'a', name: 'held' });
  await eventually(() => inside.length === 1);
  const other = await pawl.openSession({ tenantId: 'other', actorId: 'eve' });
  expect((await other.call(tool, { file: 'a', name: 'theirs' })).status).toBe('success');
  open();
  await held;
});

test('C3: a tool that is not parallel has its resource to itself even when it only looks', async () => {
  const { tool, seen, inside, open } = desk({ parallel: false });
  const { session } = await startFleet({ tools: [tool] });
  const first = session.call(tool, { file: 'a', look: true, name: 'held' });
  await eventually(() => inside.length === 1);
  const second = session.call(tool, { file: 'a', look: true, name: 'second' });
  open();
  await Promise.all([first, second]);
  expect(seen).toEqual(['held', 'second']);
});

test('C3: a hook that rewrites the parameters changes whom the call waits for, and waiting is no attempt', async () => {
  const { tool, seen, inside, open } = desk();
  const hook: Hook = {
    name: 'in-folder',
    beforeAttempt: ({ params }) => ({ params: { ...params, file: `folder/${params['file']}` } }),
  };
  const { session } = await startFleet({ tools: [tool], hooks: [hook] });
  const held = session.call(tool, { file: 'a', name: 'held' });
  await eventually(() => inside.length === 1);
  const others = ['2', '3', '4'].map((name) => session.call(tool, { file: 'a', name }));
  expect((await session.call(tool, { file: 'b', name: 'elsewhere' })).status).toBe('success');
  open();
  for (const result of await Promise.all([held, ...others]))
    expect(result).toMatchObject({ status: 'success', attempts: 1 });
  expect(seen.filter((names) => names !== 'elsewhere+held')).toEqual([
    'held',
    expect.any(String),
    expect.any(String),
    expect.any(String),
  ]);
  expect(seen.slice(1).some((names) => /\d\+/.test(names))).toBe(false);
});

test('C3: calls that wait for a service that goes down are refused one after the other, and none waits for a lease', async () => {
  const { tool, inside, open } = desk({
    retry: { maxAttempts: 1 },
    circuit: { consecutiveFailures: 2, cooldownMs: 60_000 },
  });
  const { session } = await startFleet({ tools: [tool] });
  const held = session.call(tool, { file: 'a', name: 'held', fails: true });
  await eventually(() => inside.length === 1);
  const others = ['1', '2', '3', '4', '5'].map((name) => session.submit(tool, { file: 'a', name, fails: true }));
  const submitted = await Promise.all(others);
  open();
  const ends = await Promise.all([held, ...submitted.map(({ result }) => result)]);
  expect(ends.filter(({ status }) => status === 'circuit_open').length).toBeGreaterThanOrEqual(3);
});

test('C3: a resource that is no name ends the call with an error that says so', async () => {
  const wrong = defineTool({
    name: 'wrong',
    version: '1.0.0',
    description: 'Names nothing.',
    tier: 'workspace',
    input: z.object({}),
    resource: () => 7 as never,
    run: () => ({ output: 1 }),
  });
  const { session } = await startFleet({ tools: [wrong] });
  expect(await session.call(wrong, {})).toMatchObject({
    status: 'error',
    error: { code: 'RESOURCE_INVALID', message: expect.stringContaining('resource of wrong must return a name') },
  });
});
