/**
 * Back-pressure: what one token may ask for at a time and in a second, and how much the fleet may have before it. Beyond that the
 * answer is 429 and when to come back, so that a client's flood stays with the client.
 */
import type { RequestHandler, Response } from 'express';
import type { Settings } from '../../../shared/config/config.ts';
import { type Clock, systemClock } from '../../../shared/util/time.ts';
import { HttpError } from './errors.ts';
import { callerOf } from './route.ts';

/** A backlog that was counted serves the calls of this long. */
const BACKLOG_AGE_MS = 500;
const BACKLOG_RETRY_MS = 2_000;

interface Budget {
  /** Requests that are being answered, streams included. */
  running: number;
  /** Requests that may come at once. */
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

  /** Counts a request of a token until the answer is called. Throws `RATE_LIMITED`. */
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
    const most = Math.max(1, requestsPerSecond);
    let budget = this.#budgets.get(callerId);
    if (budget === undefined) {
      budget = { running: 0, tokens: most, filledAtMs: nowMs };
      this.#budgets.set(callerId, budget);
    }
    budget.tokens = Math.min(most, budget.tokens + ((nowMs - budget.filledAtMs) / 1_000) * requestsPerSecond);
    budget.filledAtMs = nowMs;
    return budget;
  }
}

/** Holds every request against its token's limits. */
export function limitRequests(limits: RateLimiter): RequestHandler {
  return (_request, response, next) => {
    const leave: (() => void)[] = [];
    const enter = () => void leave.push(limits.enter(callerOf(response).id));
    response.once('close', () => {
      for (const each of leave) each();
    });
    enter();
    response.locals['enter'] = enter;
    next();
  };
}

/** For what is several requests in one. Throws `RATE_LIMITED`. */
export function enterAgain(response: Response): void {
  (response.locals as { readonly enter: () => void }).enter();
}

/** Knows how many calls wait or run in the whole fleet, a moment ago. */
export class Backlog {
  readonly #count: () => Promise<number>;
  readonly #max: number;
  readonly #clock: Pick<Clock, 'monotonic'>;
  #counted = 0;
  #countedAtMs = Number.NEGATIVE_INFINITY;

  constructor(max: number, count: () => Promise<number>, clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#max = max;
    this.#count = count;
    this.#clock = clock;
  }

  /** Throws `RATE_LIMITED` while there is no room for a further call. */
  async check(): Promise<void> {
    const nowMs = this.#clock.monotonic();
    if (nowMs - this.#countedAtMs > BACKLOG_AGE_MS) {
      this.#countedAtMs = nowMs;
      this.#counted = await this.#count();
    }
    if (this.#counted >= this.#max)
      throw rateLimited(`The fleet has ${this.#counted} calls before it, and takes no more for now.`, BACKLOG_RETRY_MS);
  }
}

function rateLimited(message: string, retryAfterMs: number): HttpError {
  return new HttpError('RATE_LIMITED', message, {
    headers: { 'Retry-After': String(Math.max(1, Math.ceil(retryAfterMs / 1_000))) },
  });
}
