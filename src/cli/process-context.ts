/** The context of commands, from this process. */
import { writeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { removeWorkspaceFolders } from '../search-path.ts';
import type { CliContext } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';

const LAUNCHER = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));

export function processContext(): CliContext {
  removeWorkspaceFolders(process.env, process.cwd());
  return {
    json: false,
    out: process.stdout,
    err: process.stderr,
    input: process.stdin as CliContext['input'],
    environment: process.env,
    cwd: process.cwd(),
    launcher: LAUNCHER,
    onInterrupt,
    supervisor: supervisor(),
    outliveErrors,
    endNow: (code) => process.exit(code),
  };
}

/** Asks the command that runs until it is interrupted to end. Undefined while there is none. */
let endInterruptible: (() => void) | undefined;

const onInterrupt: CliContext['onInterrupt'] = (listener, { hangUp = false } = {}) => {
  let times = 0;
  let isEndedByOutput = false;
  const onSignal = (signal: NodeJS.Signals) => {
    // A closed terminal may send SIGHUP twice, through the launcher as well; the second one is not a second request.
    if (signal === 'SIGHUP' && times > 0) return;
    // The Ctrl-C that ended the reader of the output comes to this process as well.
    if (isEndedByOutput) {
      isEndedByOutput = false;
      return;
    }
    times += 1;
    listener(times, signal);
  };
  endInterruptible = () => {
    if (times > 0) return;
    onSignal('SIGPIPE');
    isEndedByOutput = true;
  };
  const signals: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', ...(hangUp ? (['SIGHUP'] as const) : [])];
  for (const signal of signals) process.on(signal, onSignal);
  return () => {
    endInterruptible = undefined;
    for (const signal of signals) process.off(signal, onSignal);
  };
};

function outliveErrors(): () => void {
  const events = ['uncaughtException', 'unhandledRejection'];
  const ignoreError = () => {};
  for (const event of events) process.on(event, ignoreError);
  return () => {
    for (const event of events) process.off(event, ignoreError);
  };
}

/** The supervisor is the process at the other end of the channel, if this process was started with one. */
function supervisor(): CliContext['supervisor'] {
  if (process.send === undefined) return undefined;
  return {
    // The supervisor may have ended meanwhile; then `disconnect` reports it.
    send: (message) => process.send?.(message, () => {}),
    onOrder: (listener) => {
      process.on('message', (message) => {
        if (message === 'drain' || message === 'hurry') listener(message);
      });
      // The channel must not keep the process alive.
      process.channel?.unref();
      if (process.connected) process.once('disconnect', () => listener('gone'));
      else listener('gone');
    },
  };
}

/** Resolves when the readers have taken all output, however slow they are. */
export async function outputFlushed({ out, err }: CliContext): Promise<void> {
  const flushed = (stream: NodeJS.WriteStream) => new Promise<void>((resolve) => stream.write('', () => resolve()));
  await Promise.all([flushed(out), flushed(err)]);
}

/** How long a command whose reader has ended may take to end with its own exit code. */
const CLOSED_OUTPUT_MS = 500;

/** `pawl calls ls | head -1` closes our output early, which is no error; a full disk is one. */
export function endOnClosedOutput(context: CliContext): void {
  context.out.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') {
      // A command that would go on until Ctrl-C has things to clean up.
      if (endInterruptible !== undefined) endInterruptible();
      else setTimeout(() => process.exit(process.exitCode ?? EXIT_CODES.success.code), CLOSED_OUTPUT_MS);
      return;
    }
    tryToPrint(`The output cannot be written: ${error.message}.`);
    process.exit(EXIT_CODES.failed.code);
  });
  // Messages may get lost: the same Ctrl-C ends a `tee` behind `2>&1`, and the calls must still be drained.
  context.err.on('error', () => {});
}

/** Writes synchronously, because the process ends. If standard error fails as well, only the exit code reports the failure. */
function tryToPrint(line: string): void {
  try {
    writeSync(process.stderr.fd, `pawl: ${line}\n`);
  } catch {}
}
