/** Waits that end early: at a time limit, or when a signal is aborted. */
import { type Schedule, systemSchedule } from './time.ts';

/** The promise's value, or undefined when it takes longer than `waitMs`. Without a limit, it waits as long as the promise. */
export async function withinMs<T>(
  promise: Promise<T>,
  waitMs: number | undefined,
  schedule: Schedule = systemSchedule,
): Promise<T | undefined> {
  if (waitMs === undefined) return promise;
  const { promise: limit, resolve } = Promise.withResolvers<undefined>();
  const stopTimer = schedule(() => resolve(undefined), waitMs);
  try {
    return await Promise.race([promise, limit]);
  } finally {
    stopTimer();
  }
}

/** Calls the listener once when the signal is aborted; at once where it is already. The returned function removes the listener. */
export function onAbort(signal: AbortSignal | null | undefined, listener: () => void): () => void {
  if (signal?.aborted === true) listener();
  else signal?.addEventListener('abort', listener, { once: true });
  return () => signal?.removeEventListener('abort', listener);
}

/** Resolves with the value, or rejects with the signal's reason when it is aborted first. */
export async function unlessAborted<T>(value: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  signal?.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const removeListener = onAbort(signal, () => reject(signal?.reason));
  try {
    return await Promise.race([value, promise]);
  } finally {
    removeListener();
  }
}
