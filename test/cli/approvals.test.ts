import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestProcess } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { openPlace, type Place } from './pawl.ts';

let place: Place;
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

test('A6: denied is exit code 5, with the reason', async () => {
  const call = place.start(['call', 'launch', '--params', '{"what":"it"}']);
  const { callId } = await pendingOne();
  expect((await place.run(['approvals', 'deny', callId, '--reason', 'not today'])).code).toBe(0);
  expect((await call.ended).code).toBe(5);
  expect(call.stderr()).toContain('denied the call: not today');
  expect((await place.run(['approvals'])).stderr).toContain('no approval is pending');
});
