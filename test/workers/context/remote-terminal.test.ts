/** The effect of typing is reported correctly when Redis fails on the way to another worker's terminal (C16). */
import { expect, onTestFinished, test, vi } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import type { WorkerMailbox } from '../../../src/shared/store/fleet/worker-mailbox.ts';
import { systemClock } from '../../../src/shared/util/time.ts';
import { TerminalLink, type TerminalLinkOptions } from '../../../src/workers/context/remote-terminal.ts';

const refused = async (): Promise<never> => {
  throw new PawlError('BACKEND_UNAVAILABLE', 'READONLY You can’t write against a read only replica.');
};

/** A link to a terminal of another worker, which does not answer. */
function linkWith(send: WorkerMailbox['send']): TerminalLink {
  const backend = {
    clock: systemClock,
    terminals: { find: async () => ({ workerId: 'other', sessionKey: 'mine' }) },
    mailboxOf: () => ({ open: () => undefined, send, close: async () => undefined }),
  };
  const link = new TerminalLink({
    backend: backend as unknown as TerminalLinkOptions['backend'],
    workerId: 'asker',
    onError: () => undefined,
  });
  onTestFinished(() => link.close());
  return link;
}

const typing = { sessionKey: 'mine', terminalId: 'terminal', chars: 'x', waitMs: 0 };

test.each<[string, WorkerMailbox['send']]>([
  ['to send it', refused],
  ['to take it back', async () => refused],
])('the input may have been typed when Redis refuses %s', async (_what, send) => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const written = linkWith(send).write({ ...typing, signal: new AbortController().signal });
  const failed = expect(written).rejects.toMatchObject({
    code: 'TERMINAL_UNREACHABLE',
    retriable: false,
    nothingHappened: false,
    message: expect.stringContaining('may or may not have been typed'),
  });
  await vi.advanceTimersByTimeAsync(2_000);
  await failed;
});

test('an input that was withdrawn unread was not typed', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const written = linkWith(async () => async () => true).write({ ...typing, signal: new AbortController().signal });
  const failed = expect(written).rejects.toMatchObject({ code: 'TERMINAL_UNREACHABLE', nothingHappened: true });
  await vi.advanceTimersByTimeAsync(2_000);
  await failed;
});

test('a call that is cancelled while its message is sent ends with the reason', async () => {
  const cancel = new AbortController();
  const link = linkWith(async () => {
    cancel.abort(new Error('enough'));
    await new Promise(setImmediate);
    return async () => true;
  });
  await expect(link.write({ ...typing, signal: cancel.signal })).rejects.toThrow('enough');
});
