import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openPlace } from '../../cli/pawl.ts';
import { startScript } from '../../helpers/process.ts';
import { createWorld } from '../../helpers/world.ts';

const PROGRAM = new URL('../fixtures/failing-program.ts', import.meta.url);

test('an error of the program that a worker runs in ends it, and says where it is', async () => {
  await using world = await createWorld();
  const program = startScript(PROGRAM, [], { env: { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix } });
  const { code } = await program.ended;
  expect(code).not.toBe(0);
  expect(program.stderr()).toMatch(/the fault of the program[\s\S]*failing-program\.ts/);
});

test('a program that listens to such errors decides by itself', async () => {
  await using world = await createWorld();
  const program = startScript(PROGRAM, ['listen'], { env: { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix } });
  expect(await program.ended).toEqual({ code: 3, signal: null });
  expect(program.stdout()).toContain('heard the fault of the program');
});

test('pawl worker outlives what a tools file throws beside its calls, and goes on with those (D12)', async () => {
  await using partition = await openPlace();
  const go = join(partition.folder, 'go');
  const throwing = `
    const look = setInterval(() => {
      if (!existsSync(${JSON.stringify(go)})) return;
      clearInterval(look);
      throw new Error('of no call');
    }, 5);`;
  appendFileSync(join(partition.folder, 'tools.ts'), throwing);
  await using worker = partition.start(['worker', '--tools', 'tools.ts', '--json']);
  await worker.line('"event":"ready"');
  writeFileSync(go, '');
  expect(JSON.parse(await worker.line('"event":"stray_error"'))).toMatchObject({
    msg: 'an error that belongs to no call',
    stack: expect.stringContaining('of no call'),
  });
  expect(await partition.run(['call', 'plain'])).toMatchObject({ code: 0 });
  worker.signal('SIGTERM');
  expect(await worker.ended).toEqual({ code: 0, signal: null });
});

test('a tool that ends the process of its worker is named in the log', async () => {
  await using partition = await openPlace();
  const quit = `
    export const quit = defineTool({
      name: 'quit',
      version: '1.0.0',
      description: 'Ends its worker.',
      tier: 'read-only',
      input: z.object({}),
      run: async () => process.exit(7),
    });`;
  appendFileSync(join(partition.folder, 'tools.ts'), quit);
  await using worker = partition.start(['worker', '--tools', 'tools.ts', '--json']);
  await worker.line('"event":"ready"');
  await using _ = partition.start(['call', 'quit']);
  expect(JSON.parse(await worker.line('"event":"tool_ended_process"'))).toMatchObject({
    callId: expect.any(String),
    stack: expect.stringMatching(/process\.exit\(7\)[\s\S]*tools\.ts/),
  });
  expect(await worker.ended).toEqual({ code: 7, signal: null });
});
