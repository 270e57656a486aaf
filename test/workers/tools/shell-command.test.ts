import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { shellCommand } from '../../../src/workers/tools/shell-command.ts';
import { testContext } from '../../helpers/context.ts';

const run = async (command: string, more: object = {}, ctx = testContext()) =>
  shellCommand.run(shellCommand.parse({ command, ...more }), ctx);

test('a script runs with pipes and redirections, and gives both outputs in order (C16)', async () => {
  const result = await run('echo one; echo two >&2; printf "c\\nb\\n" | sort; exit 3');
  expect(result).toMatchObject({
    output: { exitCode: 3, output: 'one\ntwo\nb\nc\n', timedOut: false, truncatedBytes: 0 },
    success: false,
  });
});

test('quotes, comments and here-documents of the script stay its own', async () => {
  expect((await run('cat <<\'X\'\n$HOME "quoted"\nX\n# a comment')).output.output).toBe('$HOME "quoted"\n');
  expect((await run('echo "unfinished')).output.exitCode).not.toBe(0);
});

test('it starts in the workspace, and no path leads its start out of it (A11)', async () => {
  const ctx = testContext();
  await ctx.workspace.write('sub/file', 'x');
  expect((await run('cat file', { workdir: 'sub' }, ctx)).output.output).toBe('x');
  await expect(run('pwd', { workdir: '..' }, ctx)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
});

test('its time limit ends it with all that it started', async () => {
  const ctx = testContext();
  const result = await run('echo first; (sleep 20; touch late) & sleep 60', { timeout_ms: 2_500 }, ctx);
  expect(result).toMatchObject({ output: { exitCode: null, output: 'first\n', timedOut: true } });
  expect(existsSync(join(ctx.workspace.root, 'late'))).toBe(false);
});

test('a worker session runs nothing (A10, A17)', async () => {
  await expect(run('true', {}, testContext({ kind: 'worker' }))).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
});
