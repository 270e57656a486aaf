/** The attempts that run in this process. Cancellation, a drain or a lost lease ends one from outside. */
import { PawlError } from '../../shared/errors/failure.ts';
import type { Clock } from '../../shared/util/time.ts';

/** Share of the lease after which a worker that could not renew it fences its own attempt. */
const SELF_FENCE_SHARE = 2 / 3;
/** Share of the lease for which Redis has not answered a process that is cut off. A process that was blocked has just asked. */
const UNANSWERED_SHARE = 1 / 12;

/**
 * Whether this whole process stood still (SIGSTOP, a paused container) instead of only its event loop, which a tool may have blocked. A
 * process whose watchdog knows replaces the function.
 */
export const processPause = { stoodStill: (_silentMs: number): boolean => false };

/** The time for which attempts hold their jobs. It runs out unless it is renewed. */
interface Lease {
  readonly clock: Clock;
  readonly durationMs: number;
  /** Called when an attempt is cut off. Its worker lives, which other workers cannot know. */
  onCutOff?(attempt: RunningAttempt): void;
}

export class RunningAttempt {
  readonly callId: string;
  readonly jobId: string;
  /** Unique to this delivery of the job. */
  readonly token: string;
  readonly #lease: Lease | undefined;
  readonly #controller = new AbortController();
  #fence = 0;
  #renewedAtMs: number;
  #isCutOff = false;
  /** When this process asked Redis to renew leases; undefined once Redis has answered. */
  unansweredSinceMs: number | undefined;
  /** The digest of its result, for a tool that needs a consensus. */
  vote: string | undefined;
  /** The parameters that an approver or a hook rewrote. They run instead of the call's own. */
  params: Readonly<Record<string, unknown>> | undefined;
  sideEffects = 0;
  /** The attempt holds a resource lock, which has a lease of its own. */
  holdsLock = false;
  #uncaughtListener: ((error: unknown) => void) | undefined;
  #releaseListener: (() => void) | undefined;
  #isOver = false;
  #codeEnded = false;
  #isGivenUp = false;

  /** Without a lease no other worker can run the call. */
  constructor(callId: string, jobId: string, token: string, nowMonotonicMs: number, lease?: Lease) {
    this.callId = callId;
    this.jobId = jobId;
    this.token = token;
    this.#renewedAtMs = nowMonotonicMs;
    this.#lease = lease;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get leaseLost(): boolean {
    return this.signal.aborted && (this.signal.reason as PawlError).code === 'LEASE_LOST';
  }

  /** The attempt ended because Redis did not answer, or because its process stood still: neither it nor its process is to blame. */
  get isCutOff(): boolean {
    return this.#isCutOff;
  }

  /** 0 until the attempt has begun. */
  get fence(): number {
    return this.#fence;
  }

  began(fence: number): void {
    this.#fence = fence;
  }

  /**
   * Ends the attempt; the first reason stays. A lease protects the running code alone. The outcome of code that has ended may be written
   * until another attempt begins, which the fence decides.
   */
  abort(reason: PawlError): void {
    if (this.#codeEnded && reason.code === 'LEASE_LOST') return;
    if (!this.#controller.signal.aborted) this.#controller.abort(reason);
  }

  /** The tool's code has ended: from here on, its outcome is written. */
  codeEnded(): void {
    this.#codeEnded = true;
  }

  /** Its writes are not repeated any more. */
  get isGivenUp(): boolean {
    return this.#isGivenUp || this.leaseLost;
  }

  giveUp(): void {
    this.#isGivenUp = true;
  }

  renewed(nowMonotonicMs: number): void {
    this.#renewedAtMs = nowMonotonicMs;
  }

  sinceRenewalMs(nowMonotonicMs: number): number {
    return nowMonotonicMs - this.#renewedAtMs;
  }

  /** Ends the attempt when its lease was not renewed: another worker may be about to recover it. */
  fenceIfUnrenewed(): void {
    if (this.#lease === undefined || this.signal.aborted || this.#isCutOff) return;
    const { clock, durationMs, onCutOff } = this.#lease;
    const nowMs = clock.monotonic();
    const silentMs = this.sinceRenewalMs(nowMs);
    if (silentMs <= durationMs * SELF_FENCE_SHARE) return;
    const unansweredMs = nowMs - (this.unansweredSinceMs ?? nowMs);
    const isUnanswered = silentMs <= durationMs && unansweredMs >= durationMs * UNANSWERED_SHARE;
    this.#isCutOff = isUnanswered || processPause.stoodStill(silentMs);
    this.abort(new PawlError('LEASE_LOST', `The lease could not be renewed for ${Math.round(silentMs)} ms.`));
    if (this.#isCutOff && this.#fence > 0) onCutOff?.(this);
  }

  /** Calls the listener with errors that the tool threw outside of its own promise. */
  onUncaught(listener: (error: unknown) => void): void {
    this.#uncaughtListener = listener;
  }

  uncaught(error: unknown): void {
    this.#uncaughtListener?.(error);
  }

  /** Calls the listener when the attempt is over and all of it is written. */
  onRelease(listener: () => void): void {
    this.#releaseListener = listener;
  }

  /** The attempt has ended, and all of it is written. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * Drops the attempt's references to its call. A long-lived map keeps deleted entries in dead tables of V8's old space, which only a
   * full collection frees. Until then, every collection would copy whatever the attempt still references.
   */
  release(): void {
    this.#isOver = true;
    this.#uncaughtListener = undefined;
    this.#releaseListener?.();
    this.#releaseListener = undefined;
  }
}

export class RunningAttempts {
  readonly #lease: Lease;
  readonly #owner: string;
  #deliveries = 0;
  readonly #byJob = new Map<string, RunningAttempt>();
  readonly #timer: NodeJS.Timeout;
  readonly #removalListeners = new Set<() => void>();

  /** `owner` is the worker's ID. */
  constructor(clock: Clock, leaseMs: number, owner: string, onCutOff?: Lease['onCutOff']) {
    this.#lease = { clock, durationMs: leaseMs, ...(onCutOff !== undefined && { onCutOff }) };
    this.#owner = owner;
    this.#timer = setInterval(() => this.fenceUnrenewed(), leaseMs / 6).unref();
  }

  /** BullMQ's own token is not unique: it serves several jobs, and the same job twice. */
  nextToken(): string {
    this.#deliveries += 1;
    return `${this.#owner} ${this.#deliveries}`;
  }

  /**
   * `fetched` is the attempt that the fetch of its job started: its lease runs from the request. An answer that comes late, because the
   * process was suspended, starts nothing: another worker may run the call by now.
   */
  add(
    callId: string,
    jobId: string,
    fetched?: { readonly token: string; readonly requestedAtMs: number },
  ): RunningAttempt {
    const leasedAtMs = fetched?.requestedAtMs ?? this.#lease.clock.monotonic();
    const attempt = new RunningAttempt(callId, jobId, fetched?.token ?? this.nextToken(), leasedAtMs, this.#lease);
    this.#byJob.set(jobId, attempt);
    attempt.fenceIfUnrenewed();
    return attempt;
  }

  remove(attempt: RunningAttempt): void {
    // The job may have come back already, to an attempt that is still winding down.
    if (this.#byJob.get(attempt.jobId) === attempt) this.#byJob.delete(attempt.jobId);
    attempt.release();
    for (const listener of this.#removalListeners) listener();
  }

  /** Calls the listener after each attempt that ends. Returns the function that removes the listener. */
  onRemoved(listener: () => void): () => void {
    this.#removalListeners.add(listener);
    return () => this.#removalListeners.delete(listener);
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

  fenceUnrenewed(): void {
    for (const attempt of this.#byJob.values()) attempt.fenceIfUnrenewed();
  }

  abortAll(reason: PawlError): void {
    for (const attempt of this.#byJob.values()) attempt.abort(reason);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const attempt of this.#byJob.values()) attempt.giveUp();
  }
}
