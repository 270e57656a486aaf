/**
 * The attempts that run in this process, and what ends one from outside: cancellation, drain, a lost lease (DESIGN, decision 4).
 */
import { PawlError } from '../shared/failure.ts';
import type { Clock } from '../shared/time.ts';

/** Share of the lease after which a worker that could not renew it gives up by itself. */
const SELF_FENCE_SHARE = 2 / 3;

export class RunningAttempt {
  readonly callId: string;
  readonly jobId: string;
  /** Unique to this delivery of the job. */
  readonly token: string;
  readonly #controller = new AbortController();
  #fence = 0;
  #renewedAtMs: number;
  /** Digest of what it found, where workers have to agree. */
  vote: string | undefined;
  /** It has a turn at a resource, with a lease of its own to renew. */
  hasTurn = false;
  #stray: ((error: unknown) => void) | undefined;

  constructor(callId: string, jobId: string, token: string, nowMonotonicMs: number) {
    this.callId = callId;
    this.jobId = jobId;
    this.token = token;
    this.#renewedAtMs = nowMonotonicMs;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get leaseLost(): boolean {
    return this.signal.aborted && (this.signal.reason as PawlError).code === 'LEASE_LOST';
  }

  /** 0 until the attempt has begun. */
  get fence(): number {
    return this.#fence;
  }

  began(fence: number): void {
    this.#fence = fence;
  }

  /** Ends the attempt; the first reason stays. */
  abort(reason: PawlError): void {
    if (!this.#controller.signal.aborted) this.#controller.abort(reason);
  }

  renewed(nowMonotonicMs: number): void {
    this.#renewedAtMs = nowMonotonicMs;
  }

  silentForMs(nowMonotonicMs: number): number {
    return nowMonotonicMs - this.#renewedAtMs;
  }

  /** Hears of errors that the tool threw outside of its own promise (D12). */
  onStray(listener: (error: unknown) => void): void {
    this.#stray = listener;
  }

  stray(error: unknown): void {
    this.#stray?.(error);
  }

  /**
   * Cuts the attempt off from its call. A map that lives long keeps what was deleted from it in dead tables of V8's old space,
   * where only a full collection looks: whatever the attempt still held would be copied by every collection until then.
   */
  release(): void {
    this.#stray = undefined;
  }
}

export class RunningAttempts {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  readonly #owner: string;
  #deliveries = 0;
  readonly #byJob = new Map<string, RunningAttempt>();
  readonly #timer: NodeJS.Timeout;

  /** `owner` is the worker's ID. */
  constructor(clock: Clock, leaseMs: number, owner: string) {
    this.#clock = clock;
    this.#owner = owner;
    this.#leaseMs = leaseMs;
    this.#timer = setInterval(() => this.fenceSilent(), leaseMs / 6);
    this.#timer.unref();
  }

  /** BullMQ's own token will not do: it serves one job after the other, also the same job twice. */
  nextToken(): string {
    this.#deliveries += 1;
    return `${this.#owner} ${this.#deliveries}`;
  }

  /**
   * `taken` is the attempt that was started when its job was taken: its lease runs since that was asked for. An answer that comes
   * late, because the process stood still, starts nothing: another worker may run the call by now.
   */
  add(callId: string, jobId: string, taken?: { readonly token: string; readonly askedAtMs: number }): RunningAttempt {
    const now = this.#clock.monotonic();
    const attempt = new RunningAttempt(callId, jobId, taken?.token ?? this.nextToken(), taken?.askedAtMs ?? now);
    this.#byJob.set(jobId, attempt);
    this.#fenceIfSilent(attempt, now);
    return attempt;
  }

  remove(attempt: RunningAttempt): void {
    // The job may have come back already, to an attempt that is still winding down.
    if (this.#byJob.get(attempt.jobId) === attempt) this.#byJob.delete(attempt.jobId);
    attempt.release();
  }

  get size(): number {
    return this.#byJob.size;
  }

  all(): IterableIterator<RunningAttempt> {
    return this.#byJob.values();
  }

  ofJob(jobId: string): RunningAttempt | undefined {
    return this.#byJob.get(jobId);
  }

  ofCall(callId: string): RunningAttempt | undefined {
    for (const attempt of this.#byJob.values()) if (attempt.callId === callId) return attempt;
    return undefined;
  }

  /** Ends the attempts whose lease nobody has renewed: by now another worker may be about to take them over. */
  fenceSilent(): void {
    const now = this.#clock.monotonic();
    for (const attempt of this.#byJob.values()) this.#fenceIfSilent(attempt, now);
  }

  #fenceIfSilent(attempt: RunningAttempt, nowMonotonicMs: number): void {
    const silentMs = attempt.silentForMs(nowMonotonicMs);
    if (silentMs > this.#leaseMs * SELF_FENCE_SHARE)
      attempt.abort(new PawlError('LEASE_LOST', `The lease could not be renewed for ${Math.round(silentMs)} ms.`));
  }

  abortAll(reason: PawlError): void {
    for (const attempt of this.#byJob.values()) attempt.abort(reason);
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
