/**
 * Renews the queue's locks on the jobs that run here. BullMQ's own renewal compares the time at which Redis handed a job out with
 * this machine's clock; this one looks at the monotonic clock alone.
 */
import type { Clock } from '../../shared/util/time.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';

/** Share of the lease after which a lock is renewed: early enough to be tried again before the attempt gives itself up. */
const RENEW_SHARE = 1 / 4;

export interface LockRenewalOptions {
  readonly running: RunningAttempts;
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Extends locks in Redis; the answer names the jobs whose lock another worker holds. */
  extend(jobIds: string[], lockTokens: string[], leaseMs: number): Promise<readonly string[]>;
  onRenewed(attempt: RunningAttempt): void;
  onLost(attempt: RunningAttempt): void;
  onError(error: Error): void;
}

export class LockRenewal {
  readonly #options: LockRenewalOptions;
  readonly #held = new Map<string, string>();
  readonly #timer: NodeJS.Timeout;
  #renewing = false;

  constructor(options: LockRenewalOptions) {
    this.#options = options;
    const renew = () => void this.renew().catch((error: Error) => options.onError(error));
    this.#timer = setInterval(renew, options.leaseMs * RENEW_SHARE);
    this.#timer.unref();
  }

  /** A job runs here under this lock until it is released. */
  hold(jobId: string, lockToken: string): void {
    this.#held.set(jobId, lockToken);
  }

  release(jobId: string, lockToken: string): void {
    // The job may have come back already, under another lock.
    if (this.#held.get(jobId) === lockToken) this.#held.delete(jobId);
  }

  async renew(): Promise<void> {
    const { running, clock, leaseMs, extend, onRenewed, onLost } = this.#options;
    if (this.#renewing) return;
    const sentAtMs = clock.monotonic();
    const due = [...this.#held].flatMap(([jobId, lockToken]) => {
      const attempt = running.ofJob(jobId);
      const isDue = attempt !== undefined && attempt.silentForMs(sentAtMs) >= leaseMs * RENEW_SHARE;
      return isDue ? [{ jobId, lockToken, attempt }] : [];
    });
    if (due.length === 0) return;
    this.#renewing = true;
    try {
      const lost = await extend(
        due.map(({ jobId }) => jobId),
        due.map(({ lockToken }) => lockToken),
        leaseMs,
      );
      for (const { jobId, attempt } of due) {
        if (lost.includes(jobId)) onLost(attempt);
        else {
          // The lock lives from when Redis extended it, which was not before it was asked to.
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
