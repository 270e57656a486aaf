/** Calls listeners of the program. An error or a rejection of a listener is logged, and does not affect the call. */
import { isPromise } from 'node:util/types';
import { stackOf } from '../errors/classify-error.ts';
import type { Logger } from './log.ts';

export function notify<Event>(
  listener: ((event: Event) => unknown) | undefined,
  event: Event,
  onFailed: (error: unknown) => void,
): void {
  if (listener === undefined) return;
  try {
    const answer = listener(event);
    if (isPromise(answer)) answer.catch(onFailed);
  } catch (error) {
    onFailed(error);
  }
}

/** A program's own logger. What it throws does not end the call that a line is about. */
export function guardedLogger(log: Logger): Logger {
  const guard = (level: keyof Logger) => (fields: object, message: string) =>
    notify(
      (line) => log[level](line, message),
      fields,
      () => {},
    );
  return { debug: guard('debug'), info: guard('info'), warn: guard('warn'), error: guard('error') };
}

export function logListenerFailure(log: Pick<Logger, 'warn'>, listener: string, error: unknown): void {
  log.warn({ event: 'listener_failed', listener, error: stackOf(error) }, `a listener of ${listener} failed`);
}
