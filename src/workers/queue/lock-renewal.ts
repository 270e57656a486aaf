/**
 * Renews the queue's locks on the jobs that run here. BullMQ's own renewal compares Redis' time of a fetch with this machine's clock.
 * This one uses the monotonic clock alone.
 */
import type { Clock } from '../../shared/util/time.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';

/** Share of the lease after which a lock is renewed: early enough to try again before the attempt fences itself. */
const RENEW_SHARE = 1 / 4;

interface LockRenewalOptions {
  readonly running: RunningAttempts;
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Extends locks in Redis. Returns the jobs whose lock another worker holds. */
  extend(jobIds: string[], lockTokens: string[], leaseMs: number): Promise<readonly string[]>;
  onRenewed(attempt: RunningAttempt): void;
  onLost(attempt: RunningAttempt): void;
  onError(error: Error): void;
}

export class LockRenewal {
  readonly #options: LockRenewalOptions;
  readonly #lockTokens = new Map<string, string>();
  readonly #timer: NodeJS.Timeout;
  #renewing = false;

  constructor(options: LockRenewalOptions) {
    this.#options = options;
    const renew = () => void this.renew().catch((error: Error) => options.onError(error));
    this.#timer = setInterval(renew, options.leaseMs * RENEW_SHARE).unref();
  }

  /** Renews this lock of a job until `release()`. */
  hold(jobId: string, lockToken: string): void {
    this.#lockTokens.set(jobId, lockToken);
  }

  release(jobId: string, lockToken: string): void {
    // The job may have come back already, under another lock.
    if (this.#lockTokens.get(jobId) === lockToken) this.#lockTokens.delete(jobId);
  }

  async renew(): Promise<void> {
    const { running, clock, leaseMs, extend, onRenewed, onLost } = this.#options;
    if (this.#renewing) return;
    const sentAtMs = clock.monotonic();
    const held = [...this.#lockTokens].flatMap(([jobId, lockToken]) => {
      const attempt = running.ofJob(jobId);
      return attempt === undefined ? [] : [{ jobId, lockToken, attempt }];
    });
    const due = held.filter(({ attempt }) => attempt.sinceRenewalMs(sentAtMs) >= leaseMs * RENEW_SHARE);
    if (due.length === 0) return;
    for (const { attempt } of held) attempt.unansweredSinceMs ??= sentAtMs;
    this.#renewing = true;
    try {
      const lost = await extend(
        due.map(({ jobId }) => jobId),
        due.map(({ lockToken }) => lockToken),
        leaseMs,
      );
      for (const { attempt } of held) attempt.unansweredSinceMs = undefined;
      for (const { jobId, attempt } of due) {
        if (lost.includes(jobId)) onLost(attempt);
        else {
          // Redis extended the lock at this time or later.
          attempt.renewed(sentAtMs);
          onRenewed(attempt);
        }
      }
    } finally {
      this.#renewing = false;
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
