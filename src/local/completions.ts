/** Pending calls of local runs: they wait in the process that runs them, and end with it. */
import { type CompletionTerms, tokenName } from '../shared/calls/completion.ts';
import { PawlError } from '../shared/errors/failure.ts';
import type {
  CompletionEnd,
  CompletionEntry,
  CompletionRefusal,
  IssuedToken,
  Pend,
  PendAnswer,
} from '../shared/store/completions/completions.ts';
import type { PendingRecords } from '../shared/store/ports.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import { MAX_PENDING_MS } from '../shared/tools/pending.ts';
import { LimitedMap } from '../shared/util/limited-map.ts';
import { executionOf, withLease } from './call-record.ts';
import type { KeyedQueue } from './keyed-queue.ts';
import type { OwnCall, OwnCalls } from './own-calls.ts';

interface Token {
  readonly callId: string;
  readonly fence: number;
  readonly terms: CompletionTerms;
  extendMs: number;
  used: boolean;
}

interface LocalCompletionsDeps {
  readonly ownCalls: OwnCalls;
  readonly locks: KeyedQueue;
  now(): Promise<number>;
  onEvent(event: InboxEvent): void;
}

/** The most tokens in memory, including used ones. */
const MAX_TOKENS = 10_000;

export class LocalCompletions implements PendingRecords {
  readonly #deps: LocalCompletionsDeps;
  readonly #tokens = new LimitedMap<string, Token>(MAX_TOKENS);

  constructor(deps: LocalCompletionsDeps) {
    this.#deps = deps;
  }

  async issue({ callId, fence, token, terms }: IssuedToken): Promise<'issued' | 'fenced'> {
    if (this.#deps.ownCalls.get(callId)?.fence !== fence) return 'fenced';
    const name = tokenName(token);
    if (!this.#tokens.has(name)) this.#tokens.set(name, { callId, fence, terms, extendMs: 0, used: false });
    return 'issued';
  }

  async pend(pend: Pend): Promise<PendAnswer> {
    const { ownCalls, locks, now } = this.#deps;
    const { callId, fence, attempts, expiresInMs, onExpiry } = pend;
    await this.issue(pend);
    return locks.run(callId, async () => {
      const call = ownCalls.get(callId);
      if (call === undefined) return { kind: 'ended' };
      if (call.fence !== fence) return { kind: 'fenced' };
      if (call.cancelRequested) return { kind: 'cancelled' };
      const nowMs = await now();
      // To another process that recovers the call, this attempt left no record, so the tool's effects decide.
      const execution = executionOf(attempts.slice(0, -1), attempts.length);
      if (!(await ownCalls.write(call, { ...withLease(call.record, nowMs), execution }))) return { kind: 'fenced' };
      const untilMs = nowMs + expiresInMs + (this.#tokens.get(tokenName(pend.token))?.extendMs ?? 0);
      call.phase = 'pending';
      call.attempts = attempts;
      call.pending = { untilMs, onExpiry };
      this.#deps.onEvent({ type: 'pending', callId, expiresAtMs: untilMs });
      return { kind: 'pending', expiresAtMs: untilMs };
    });
  }

  expire({ callId, fence, ttlMs, freeAfterMs = ttlMs, ...end }: Parameters<PendingRecords['expire']>[0]) {
    return this.#afterExpiry(callId, fence, async (call) => {
      const ended = await this.#deps.ownCalls.end(call, { ...end, ttlMs: freeAfterMs });
      return ended ? 'settled' : 'fenced';
    });
  }

  resume(callId: string, fence: number, attempts: Parameters<PendingRecords['resume']>[2]) {
    return this.#afterExpiry(callId, fence, async (call, nowMs) => {
      const execution = executionOf(attempts, attempts.length);
      const resumed = { ...withLease(call.record, nowMs), execution };
      if (!(await this.#deps.ownCalls.write(call, resumed))) return 'ended';
      call.phase = 'waiting-retry';
      call.attempts = attempts;
      call.pending = undefined;
      return 'postponed';
    });
  }

  /** Takes a step of a call whose pending time is over. */
  #afterExpiry<Answer>(
    callId: string,
    fence: number,
    step: (call: OwnCall, nowMs: number) => Promise<Answer>,
  ): Promise<Answer | 'ended' | 'early'> {
    return this.#deps.ownCalls.change<Answer | 'ended' | 'early'>(callId, fence, 'ended', async (call) => {
      if (call.pending === undefined) return 'ended';
      const nowMs = await this.#deps.now();
      return call.pending.untilMs > nowMs ? 'early' : step(call, nowMs);
    });
  }

  // The outside system's side

  async find(token: string): Promise<CompletionEntry> {
    const name = tokenName(token);
    const entry = this.#tokens.get(name);
    if (entry === undefined) throw new PawlError('UNKNOWN_COMPLETION');
    if (entry.used) throw new PawlError('COMPLETION_USED');
    return { name, callId: entry.callId, terms: entry.terms };
  }

  complete(
    { name, callId }: CompletionEntry,
    { settle, attempt }: CompletionEnd,
  ): Promise<'settled' | CompletionRefusal> {
    return this.#apply(name, callId, async (call, token) => {
      const { state, outcome, ttlMs, freeAfterMs = ttlMs } = settle;
      const attempts = call.attempts.map((each) => (each.status === 'pending' ? { ...each, ...attempt } : each));
      if (!(await this.#deps.ownCalls.end(call, { state, outcome, attempts, ttlMs: freeAfterMs }))) return 'over';
      token.used = true;
      return 'settled';
    });
  }

  report({ name, callId }: CompletionEntry, event: object): Promise<'reported' | CompletionRefusal> {
    return this.#apply(name, callId, async () => {
      this.#deps.onEvent(event as InboxEvent);
      return 'reported';
    });
  }

  extend(
    { name, callId }: CompletionEntry,
    extendMs: number,
  ): Promise<CompletionRefusal | { readonly expiresAtMs: number | undefined }> {
    return this.#apply(name, callId, async (call, token) => {
      if (call.pending === undefined) {
        token.extendMs += extendMs;
        return { expiresAtMs: undefined };
      }
      const untilMs = call.pending.untilMs + extendMs;
      if (untilMs > (await this.#deps.now()) + MAX_PENDING_MS) return 'toolong';
      call.pending.untilMs = untilMs;
      return { expiresAtMs: untilMs };
    });
  }

  #apply<Answer>(
    name: string,
    callId: string,
    apply: (call: OwnCall, token: Token) => Promise<Answer | CompletionRefusal>,
  ): Promise<Answer | CompletionRefusal> {
    const { ownCalls, locks, now } = this.#deps;
    return locks.run(callId, async () => {
      const token = this.#tokens.get(name);
      if (token === undefined) return 'unknown';
      if (token.used) return 'used';
      const call = ownCalls.get(callId);
      if (call?.fence !== token.fence) return 'over';
      if (call.phase !== 'pending' && call.phase !== 'running') return 'over';
      if (call.pending !== undefined && call.pending.untilMs <= (await now())) return 'expired';
      return apply(call, token);
    });
  }
}
