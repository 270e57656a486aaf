/**
 * Code of a program that is told of its calls. Whatever it throws, or its promise rejects with, is its own: the call that it was
 * told of goes on, and ends as it ends.
 */
import { isPromise } from 'node:util/types';
import { stackOf } from '../../shared/errors/classify-error.ts';
import type { Logger } from '../../shared/telemetry/log.ts';

export function tell<Event>(
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

export function logListenerFailure(log: Pick<Logger, 'warn'>, listener: string, error: unknown): void {
  log.warn({ event: 'listener_failed', listener, error: stackOf(error) }, `a listener of ${listener} failed`);
}
