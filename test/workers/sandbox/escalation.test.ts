/** A command that asks to run outside of the sandbox runs there only after a person's approval (C25). */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import { detectIsolation } from '../../../src/workers/context/processes.ts';
import { execCommand } from '../../../src/workers/tools/exec-command.ts';
import { shell } from '../../../src/workers/tools/shell.ts';
import { shellCommand } from '../../../src/workers/tools/shell-command.ts';
import { writeStdin } from '../../../src/workers/tools/write-stdin.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

const escalated = { sandbox_permissions: 'require_escalated', justification: 'the file lies outside' } as const;

async function start(settings: Partial<SettingsInput> = {}, workers = 1) {
  const dataDir = temporaryFolder();
  const signingKeys = [{ kid: 'k', key: 'a key of this test alone' }];
  const fleet = await startFleet({
    tools: [shell, shellCommand, execCommand, writeStdin],
    settings: { signingKeys, dataDir, ...settings },
    workers,
  });
  const workspaceRoot = temporaryFolder();
  const session = await fleet.pawl.openSession({ channel: { kind: 'operator' }, workspaceRoot });
  /** The folder lies below /tmp, which is empty in the sandbox. */
  const outside = join(temporaryFolder(), 'proof');
  const ask = async (tool: string, params: object) => {
    const { callId, result } = pending(await session.submit(tool, params as Record<string, unknown>));
    const { id } = (await fleet.pawl.approvals.show(callId)).record.request;
    const { record, digest } = await eventually(async () => {
      const shown = await fleet.pawl.approvals.show(id);
      return (workers === 0 || shown.record.preview !== undefined) && shown;
    });
    const approve = (options: { readonly params?: Record<string, unknown>; readonly remember?: boolean } = {}) =>
      fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace', ...options });
    return { record, result, approve };
  };
  return { fleet, session, outside, ask, touch: { command: ['touch', outside] } };
}

const confines = (await detectIsolation()).includes('bubblewrap');

describe.skipIf(!confines)('with bubblewrap', () => {
  test('`require_escalated` waits for a person, who sees it and why; approved, that one command leaves the sandbox', async () => {
    const { session, outside, ask, touch } = await start();
    await session.call('shell', touch);
    expect(existsSync(outside)).toBe(false);
    const { record, result, approve } = await ask('shell', { ...touch, ...escalated });
    expect(record.request).toMatchObject({
      rule: 'built-in.sandbox-permissions',
      justification: 'the file lies outside',
      amendment: { kind: 'same-parameters' },
    });
    expect(record.preview?.summary).toBe(`Run touch ${outside} outside of the sandbox`);
    await approve();
    expect(contentOf(await result)).toMatchObject({ exitCode: 0 });
    expect(existsSync(outside)).toBe(true);
    const after = await session.call('shell', { command: ['test', '-e', outside] });
    expect(contentOf(after)).toMatchObject({ exitCode: 1 });
  });

  test('an approver who removes the escalation lets the command run inside', async () => {
    const { outside, ask, touch } = await start();
    const { result, approve } = await ask('shell', { ...touch, ...escalated });
    await approve({ params: { ...touch, sandbox_permissions: 'use_default' } });
    expect((await result).status).toBe('success');
    expect(existsSync(outside)).toBe(false);
  });

  test('a standing approval for a command inside does not let it out', async () => {
    const policy = { global: { tools: { shell: 'ask' } } } as const;
    const { session, outside, ask, touch } = await start({ policy });
    const inside = await ask('shell', touch);
    expect(inside.record.request.amendment).toEqual({ kind: 'command-prefix', prefix: ['touch', outside] });
    await inside.approve({ remember: true });
    await inside.result;
    expect((await session.call('shell', { ...touch, cwd: '.' })).status).toBe('success');
    const { result } = await ask('shell', { ...touch, ...escalated });
    await session.close();
    expect((await result).error?.code).toBe('CANCELLED');
    expect(existsSync(outside)).toBe(false);
  });

  test('a script and a terminal can escalate, too; a program outside of the sandbox takes no further commands', async () => {
    const { session, outside, ask } = await start();
    const script = await ask('shell_command', { command: `echo 1 > ${outside}`, ...escalated });
    await script.approve();
    expect((await script.result).status).toBe('success');
    expect(existsSync(outside)).toBe(true);
    const terminal = await ask('exec_command', { cmd: `cat ${outside}; cat`, yield_time_ms: 500, ...escalated });
    await terminal.approve();
    const { session_id: id, output } = contentOf(await terminal.result) as { session_id: string; output: string };
    expect(output).toContain('1');
    const typed = await session.call('write_stdin', { session_id: id, chars: 'rm -r /\n' });
    expect(typed.error).toMatchObject({ code: 'PERMISSION_DENIED', message: expect.stringContaining('Ctrl-C') });
    const ended = await session.call('write_stdin', { session_id: id, chars: '\u0003', yield_time_ms: 10_000 });
    expect(contentOf(ended)).toMatchObject({ session_id: null });
  });
});

test('with `sandbox: required`, no approver can edit a command out of the sandbox', async () => {
  const policy = { global: { tools: { shell: 'ask' } } } as const;
  const { outside, ask, touch } = await start({ sandbox: 'required', policy });
  const { result, approve } = await ask('shell', touch);
  await expect(approve({ params: { ...touch, ...escalated } })).rejects.toMatchObject({
    code: 'PERMISSION_DENIED',
    message: expect.stringContaining('sandbox: required'),
  });
  await approve();
  await result;
  expect(existsSync(outside)).toBe(false);
});

test('with `sandbox: required`, no person is asked', async () => {
  const { session, fleet, touch } = await start({ sandbox: 'required' });
  const { error } = await session.call('shell', { ...touch, ...escalated });
  expect(error).toMatchObject({ code: 'PERMISSION_DENIED', message: expect.stringContaining('sandbox: required') });
  expect(await fleet.pawl.approvals.list()).toEqual([]);
});

test('a worker with `sandbox: required` runs nothing outside, even with an approval', async () => {
  const { fleet, outside, ask, touch } = await start({}, 0);
  const { approve, result } = await ask('shell', { ...touch, ...escalated });
  await approve();
  await fleet.startWorker({ settings: { sandbox: 'required' } });
  expect((await result).error?.code).toBe('PERMISSION_DENIED');
  expect(existsSync(outside)).toBe(false);
});
