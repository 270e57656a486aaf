/** Waiting for what happens, never for time to pass. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export interface EventuallyOptions {
  /** Default 30 s. */
  readonly deadlineMs?: number;
  /** Between two looks; default 10 ms. */
  readonly everyMs?: number;
  /** Named in the error. */
  readonly what?: string;
}

type Falsy = false | 0 | '' | null | undefined;

/**
 * Looks again and again until `condition` answers something truthy, and returns that. An exception counts as "not yet",
 * so an assertion can stand in it.
 *
 * @throws Error after the deadline, with the last exception as its cause
 */
export async function eventually<T>(
  condition: () => T | Promise<T>,
  options: EventuallyOptions = {},
): Promise<Exclude<T, Falsy>> {
  const deadlineMs = performance.now() + (options.deadlineMs ?? 60_000);
  let cause: unknown;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value as Exclude<T, Falsy>;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    if (performance.now() > deadlineMs) break;
    await sleep(options.everyMs ?? 10);
  }
  const last = cause instanceof Error ? `: ${cause.message}` : '';
  throw new Error(`no sign of ${options.what ?? condition} within ${options.deadlineMs ?? 60_000} ms${last}`, {
    cause,
  });
}

/** A promise with its ends in hand. */
export interface Signal<T = void> {
  readonly promise: Promise<T>;
  readonly fire: (value: T) => void;
  readonly fail: (error: Error) => void;
}

export function signal<T = void>(): Signal<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  return { promise, fire: resolve, fail: reject };
}

/** `promise`, or an error naming `what` after the deadline. */
export async function within<T>(promise: Promise<T>, deadlineMs: number, what: string | (() => string)): Promise<T> {
  const late = new AbortController();
  const timeout = sleep(deadlineMs, undefined, { signal: late.signal }).then(() => {
    throw new Error(`within ${deadlineMs} ms no sign of ${typeof what === 'string' ? what : what()}`);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    timeout.catch(() => {});
    late.abort();
  }
}

/**
 * Runs cases that mostly wait at the same time, each to its end.
 *
 * @throws AggregateError that says which of them failed, and of what
 */
export async function atOnce<Case>(
  cases: Readonly<Record<string, Case>>,
  run: (value: Case, name: string) => Promise<void>,
): Promise<void> {
  const names = Object.keys(cases);
  const ends = await Promise.allSettled(names.map((name) => run(cases[name] as Case, name)));
  const failed = ends.flatMap((end, index) =>
    end.status === 'rejected' ? [new Error(`${names[index]}: ${end.reason}`, { cause: end.reason })] : [],
  );
  if (failed.length > 0) throw new AggregateError(failed, failed.map(({ message }) => message).join('\n'));
}

/** Ended, reaped or not: a zombie still answers signal 0. */
export function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return true;
  }
  try {
    return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return process.platform === 'linux';
  }
}
