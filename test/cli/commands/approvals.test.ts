import { fileURLToPath } from 'node:url';
import { spawn } from '@lydell/node-pty';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { TestProcess } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
let worker: TestProcess;
beforeAll(async () => {
  place = await openPlace();
  worker = await place.worker();
});
afterAll(async () => {
  worker.signal('SIGKILL');
  await worker.ended;
  await place[Symbol.asyncDispose]();
});

interface Pending {
  readonly id: string;
  readonly callId: string;
  readonly preview: { readonly summary: string };
}

async function pendingOne(): Promise<Pending> {
  return eventually(
    async () => {
      const { stdout } = await place.run(['approvals', '--json']);
      return (JSON.parse(stdout) as { approvals: Pending[] }).approvals[0];
    },
    { what: 'a pending approval' },
  );
}

test('A4: pawl call waits, pawl approvals shows and approves, and the call’s result comes', async () => {
  const call = place.start(['call', 'launch', '--params', '{"what":"a \\u202egnihton"}']);
  await call.line('waits for a person');
  const { id, preview } = await pendingOne();
  expect(preview.summary).toBe('Launch a \\u{202E}gnihton');
  // A tool of another namespace may have the same name.
  expect((await place.run(['approvals'])).stdout).toMatch(/pending +launch /);
  const shown = await place.run(['approvals', 'show', id]);
  expect(shown.stdout).toContain('built-in.tiers.elevated');
  expect(shown.stdout).not.toContain('\u202e');
  const stale = await place.run(['approvals', 'approve', id, '--digest', 'another']);
  expect(stale).toMatchObject({ code: 1, stderr: expect.stringContaining('look at it again') });
  const approved = await place.run(['approvals', 'approve', id]);
  expect(approved).toMatchObject({ code: 0, stdout: `${id} is approved\n` });
  expect((await call.ended).code).toBe(0);
  expect(call.stdout()).toContain('launched a');
  expect((await place.run(['approvals', 'deny', id])).code).toBe(1);
});

test('A4: pawl approvals approve takes other parameters, and refuses those that the tool refuses', async () => {
  const call = place.start(['call', 'launch', '--params', '{"what":"it"}']);
  const { id } = await pendingOne();
  const approve = (params: string) => place.run(['approvals', 'approve', id, '--params', params]);
  const refused = await approve('{"what":7}');
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('what: must be string') });
  expect(refused.stderr).toContain('The edited parameters of launch are not valid');
  expect(await approve('{"what":"less"}')).toMatchObject({ code: 0, stdout: `${id} is approved\n` });
  expect((await call.ended).code).toBe(0);
  expect(call.stdout()).toContain('launched less');
});

test('A6: denied is exit code 5, with the reason', async () => {
  const call = place.start(['call', 'launch', '--params', '{"what":"it"}']);
  const { callId } = await pendingOne();
  expect((await place.run(['approvals', 'deny', callId, '--reason', 'not today'])).code).toBe(0);
  expect((await call.ended).code).toBe(5);
  expect(call.stderr()).toContain('denied the call: not today');
  expect((await place.run(['approvals'])).stderr).toContain('no approval is pending');
});

test('C24: pawl approvals remembered lists standing approvals, and forget revokes them', async () => {
  await place.run(['sessions', 'open', '--key', 'trip', '--channel', 'console']);
  const call = place.start(['call', 'launch', '--params', '{"what":"it"}', '--session', 'trip']);
  await call.line('waits for a person');
  const { id } = await pendingOne();
  await place.run(['approvals', 'approve', id, '--remember']);
  expect((await call.ended).code).toBe(0);
  const { stdout } = await place.run(['approvals', 'remembered', 'trip']);
  expect(stdout).toMatch(new RegExp(`${id} +launch +same-parameters`));
  const forgotten = await place.run(['approvals', 'forget', 'trip', id]);
  expect(forgotten).toMatchObject({ code: 0, stdout: expect.stringContaining('need an approval again') });
  expect((await place.run(['approvals', 'remembered', 'trip'])).stderr).toContain('there are no standing approvals');
  expect(await place.run(['approvals', 'forget', 'trip', id])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('remembers no approval'),
  });
});

/** `pawl call launch` at a terminal of its own. */
function atTerminal() {
  const launcher = fileURLToPath(new URL('../../../bin/pawl.mjs', import.meta.url));
  const { redisUrl, prefix } = place.world;
  const args = [launcher, 'call', 'launch', '--params', '{"what":"it"}'];
  const env = { ...process.env, NODE_OPTIONS: '', REDIS_URL: redisUrl, PAWL_PREFIX: prefix };
  const terminal = spawn(process.execPath, args, { cwd: place.folder, env, cols: 400 });
  let shown = '';
  terminal.onData((data) => {
    shown += data;
  });
  const ended = new Promise<number>((resolve) => terminal.onExit(({ exitCode }) => resolve(exitCode)));
  onTestFinished(() => terminal.kill('SIGKILL'));
  return {
    ended,
    shown: () => shown,
    type: (keys: string) => terminal.write(keys),
    says: (wanted: string) => eventually(async () => shown.includes(wanted), { what: wanted }),
  };
}

test('Ctrl-C at the prompt cancels the call', async () => {
  const call = atTerminal();
  await call.says('Approve this call?');
  const { callId } = await pendingOne();
  call.type('\x03');
  await call.says('cancelled before it started');
  expect(await call.ended).toBe(1);
  expect(call.shown()).not.toContain('Aborted');
  expect((await place.run(['calls', 'show', callId])).stdout).toMatch(/state +cancelled/);
});

test('Ctrl-D at the prompt decides nothing', async () => {
  const call = atTerminal();
  await call.says('Approve this call?');
  const { id } = await pendingOne();
  call.type('\x04');
  await call.says(`not decided: pawl approvals show ${id}`);
  expect((await place.run(['approvals', 'approve', id])).code).toBe(0);
  expect(await call.ended).toBe(0);
});

test('the prompt is closed when the approval is decided elsewhere', async () => {
  const call = atTerminal();
  await call.says('Approve this call?');
  const { id } = await pendingOne();
  // So that the call does not end first.
  worker.pause();
  try {
    expect((await place.run(['approvals', 'approve', id])).code).toBe(0);
    await call.says('decided elsewhere: approved by cli:');
  } finally {
    worker.resume();
  }
  expect(await call.ended).toBe(0);
  expect(call.shown()).toContain('launched it');
});

test('the person who answers the prompt decides', async () => {
  const call = atTerminal();
  await call.says('Approve this call?');
  call.type('n not now\r');
  expect(await call.ended).toBe(5);
  expect(call.shown()).toContain('denied the call: not now');
});
