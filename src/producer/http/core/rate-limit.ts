/**
 * Back-pressure: limits the requests of one token at a time and per second, and the backlog of the fleet. Above these limits the
 * response is 429 with `Retry-After`, so that a flood stays with its client.
 */
import type { RequestHandler, Response } from 'express';
import type { Settings } from '../../../shared/config/config.ts';
import { getOrInsert } from '../../../shared/util/get-or-insert.ts';
import { type Clock, systemClock } from '../../../shared/util/time.ts';
import { HttpError } from './errors.ts';
import { callerOf } from './route.ts';

/** The backlog's count is cached for this long. */
const BACKLOG_MAX_AGE_MS = 500;
const BACKLOG_RETRY_MS = 2_000;

/** Above this number of callers, idle ones are dropped. */
const MAX_CALLERS = 10_000;
/** A caller that was idle for this long has its full budget again. */
const IDLE_MS = 1_000;

interface Budget {
  /** Requests in progress, streams included. */
  running: number;
  /** Requests that may start now. */
  tokens: number;
  filledAtMs: number;
}

export class RateLimiter {
  readonly #settings: Settings['http'];
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #budgets = new Map<string, Budget>();

  constructor(settings: Settings['http'], clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#settings = settings;
    this.#clock = clock;
  }

  /** Counts a request of a token until the returned function is called. Throws `RATE_LIMITED`. */
  enter(callerId: string): () => void {
    const { requestsPerSecond, maxRequests } = this.#settings;
    const budget = this.#budgetOf(callerId, requestsPerSecond);
    if (budget.running >= maxRequests)
      throw rateLimited(`At most ${maxRequests} requests of one token are answered at a time.`, 1_000);
    if (requestsPerSecond !== undefined) {
      if (budget.tokens < 1)
        throw rateLimited(
          `At most ${requestsPerSecond} requests of one token are taken in a second.`,
          ((1 - budget.tokens) / requestsPerSecond) * 1_000,
        );
      budget.tokens -= 1;
    }
    budget.running += 1;
    return () => {
      budget.running -= 1;
    };
  }

  #budgetOf(callerId: string, requestsPerSecond = 0): Budget {
    const nowMs = this.#clock.monotonic();
    const capacity = Math.max(1, requestsPerSecond);
    const budget = getOrInsert(this.#budgets, callerId, () => {
      this.#removeIdle(nowMs);
      return { running: 0, tokens: capacity, filledAtMs: nowMs };
    });
    budget.tokens = Math.min(capacity, budget.tokens + ((nowMs - budget.filledAtMs) / 1_000) * requestsPerSecond);
    budget.filledAtMs = nowMs;
    return budget;
  }

  /** Without this, the map would grow without bound: callers without a token are counted by their addresses. */
  #removeIdle(nowMs: number): void {
    if (this.#budgets.size <= MAX_CALLERS) return;
    for (const [callerId, { running, filledAtMs }] of this.#budgets)
      if (running === 0 && nowMs - filledAtMs > IDLE_MS) this.#budgets.delete(callerId);
  }
}

/** Applies its token's limits to every request. */
export function limitRequests(limits: RateLimiter): RequestHandler {
  return (_request, response, next) => {
    const releases: (() => void)[] = [];
    const enter = () => void releases.push(limits.enter(callerOf(response).id));
    response.once('close', () => {
      for (const release of releases) release();
    });
    enter();
    response.locals['enter'] = enter;
    next();
  };
}

/** Counts one more request, for a batch of several. Throws `RATE_LIMITED`. */
export function countAnotherRequest(response: Response): void {
  (response.locals as { readonly enter: () => void }).enter();
}

/** The number of calls that wait or run in the whole fleet; cached for a moment. */
export class Backlog {
  readonly #count: () => Promise<number>;
  readonly #limit: number;
  #cachedCount = 0;
  #countedAtMs = Number.NEGATIVE_INFINITY;

  constructor(limit: number, count: () => Promise<number>) {
    this.#limit = limit;
    this.#count = count;
  }

  /** Throws `RATE_LIMITED` while the fleet has no capacity for a further call. */
  async check(): Promise<void> {
    const nowMs = systemClock.monotonic();
    if (nowMs - this.#countedAtMs > BACKLOG_MAX_AGE_MS) {
      this.#countedAtMs = nowMs;
      this.#cachedCount = await this.#count();
    }
    if (this.#cachedCount >= this.#limit)
      throw rateLimited(
        `The fleet has ${this.#cachedCount} calls before it, and takes no more for now.`,
        BACKLOG_RETRY_MS,
      );
  }
}

function rateLimited(message: string, retryAfterMs: number): HttpError {
  return new HttpError('RATE_LIMITED', message, {
    headers: { 'Retry-After': String(Math.max(1, Math.ceil(retryAfterMs / 1_000))) },
  });
}
