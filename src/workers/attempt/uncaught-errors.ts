/**
 * Errors that a tool throws outside of its promise: in a timer, or in a promise that is not awaited. They fail the call whose attempt
 * started the work, and the process lives on. Errors of no attempt are the program's own. They end it as they would without a
 * worker, unless it listens to them.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { stackOf } from '../../shared/errors/classify-error.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { RunningAttempt } from './running-attempts.ts';

const current = new AsyncLocalStorage<RunningAttempt>();
let users = 0;
let uninstall: (() => void) | undefined;

/** Runs a tool's code so that errors of its timers and promises can be traced to the attempt. */
export function inAttempt<T>(attempt: RunningAttempt, run: () => T): T {
  return current.run(attempt, run);
}

/** Handles uncaught errors while at least one worker of this process needs it. Returns the function that ends that. */
export function containUncaughtErrors(log: Logger): () => void {
  users += 1;
  uninstall ??= install(log);
  let released = false;
  return () => {
    if (released) return;
    released = true;
    users -= 1;
    if (users > 0) return;
    uninstall?.();
    uninstall = undefined;
  };
}

function install(log: Logger): () => void {
  const stops = (['uncaughtException', 'unhandledRejection'] as const).map((event) => {
    const contain = (error: unknown) => {
      const attempt = current.getStore();
      if (attempt === undefined && process.listenerCount(event) === 1) throw error;
      const message =
        attempt === undefined ? 'an error that belongs to no call' : 'a tool threw outside of its own promise';
      log.error({ event: 'stray_error', callId: attempt?.callId, stack: stackOf(error) }, message);
      attempt?.uncaught(error);
    };
    process.on(event, contain);
    return () => process.off(event, contain);
  });
  // A tool that calls process.exit ends its worker at once. Without this line the log would not say why.
  const logExit = (code: number) => {
    const attempt = current.getStore();
    if (attempt === undefined) return;
    const { stack } = new Error(`process.exit(${code})`);
    log.error({ event: 'tool_ended_process', callId: attempt.callId, stack }, 'a tool ended the process of its worker');
  };
  // This listener runs before the log is flushed for the last time.
  process.prependListener('exit', logExit);
  return () => {
    process.off('exit', logExit);
    for (const stopOne of stops) stopOne();
  };
}
