import { expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { previewCall } from '../../../src/workers/approvals/preview.ts';
import { shell } from '../../../src/workers/tools/shell.ts';
import { testContext } from '../../helpers/context.ts';

const run = (
  command: string[],
  more: { cwd?: string; workdir?: string; timeout_ms?: number; stdin?: string } = {},
  ctx = testContext(),
) => shell.run(shell.parse({ command, ...more }), ctx);

test('shell gives exit code and outputs: a non-zero exit is a result (A12, A16)', async () => {
  const { output, display } = await run(['sh', '-c', 'cat; echo bad >&2; exit 2'], { stdin: 'in' });
  expect(output).toEqual({
    exitCode: 2,
    signal: null,
    stdout: 'in',
    stderr: 'bad\n',
    timedOut: false,
    durationMs: expect.any(Number),
    truncated: { stdoutBytes: 0, stderrBytes: 0 },
  });
  expect(display).toMatch(/^Ran sh -c "cat; echo bad >&2; exit 2": exit code 2, \d+ ms$/);
});

test('shell starts in the workspace, or in a folder of it and no other (A11)', async () => {
  const ctx = testContext();
  await ctx.workspace.write('sub/file', 'x');
  expect((await run(['ls'], {}, ctx)).output.stdout).toBe('sub\n');
  expect((await run(['ls'], { cwd: 'sub' }, ctx)).output.stdout).toBe('file\n');
  expect((await run(['ls'], { workdir: 'sub' }, ctx)).output.stdout).toBe('file\n');
  await expect(run(['ls'], { cwd: '..' }, ctx)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
});

test('shell marks a truncated output', async () => {
  const { output } = await run(['head', '-c', '100000', '/dev/zero']);
  expect(output.stdout.endsWith(`\n[truncated: ${100_000 - 64 * 1024} more bytes]\n`)).toBe(true);
  expect(output.truncated.stdoutBytes).toBe(100_000 - 64 * 1024);
});

test('at its time limit shell gives the outputs so far', async () => {
  const { output, display } = await run(['sh', '-c', 'echo first; sleep 1000'], { timeout_ms: 2_500 });
  expect(output).toMatchObject({ exitCode: null, stdout: 'first\n', timedOut: true });
  expect(display).toContain('killed at its time limit of 2500 ms');
});

test('shell names the missing program, and ends with the call', async () => {
  await expect(run(['no-such-program'])).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await expect(run(['cd', 'src'])).rejects.toThrow('Program not found: cd. It is a word of the shell: run it in one');
  const reason = new PawlError('DRAINED');
  await expect(run(['true'], {}, testContext({ signal: AbortSignal.abort(reason) }))).rejects.toBe(reason);
});

test('shell is refused in a worker session before anything runs (A10, A17)', async () => {
  await expect(run(['true'], {}, testContext({ kind: 'worker' }))).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
});

test('shell is in the system tier, never run twice by itself, and previews the very command', async () => {
  expect([shell.tier, shell.effects, shell.needs]).toEqual(['system', 'once', ['processes']]);
  const { summary } = await previewCall(shell, { command: ['rm', '-rf', 'a b', '\u001b[2K'] }, { workspaceRoot: '/' });
  expect(summary).toBe('Run rm -rf "a b" "\\u001b[2K"');
});
