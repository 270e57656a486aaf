/** The asking side of questions to people: asks, waits for the news of an answer, and looks by itself in case the news is missed. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { digest } from '../../shared/schema/canonical-json.ts';
import type { QuestionRequest, Questions } from '../../shared/store/approvals/questions.ts';
import type { Answer } from '../../shared/tools/tool.ts';

const LOOK_EVERY_MS = 2_000;
const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_TIMEOUT_MS = 7 * 24 * 3_600_000;

export class ElicitationState {
  readonly #questions: Questions;
  readonly #waiting = new Map<string, () => void>();

  readonly #audit: RecordAudit;

  constructor(questions: Questions, audit: RecordAudit) {
    this.#questions = questions;
    this.#audit = audit;
  }

  heard(id: string): void {
    this.#waiting.get(id)?.();
  }

  /**
   * Waits for the answer while `signal` lasts. `number` tells apart questions of the same words in one call. Throws the signal's
   * reason.
   */
  async ask(
    request: QuestionRequest,
    { number, timeoutMs, signal }: { number: number; timeoutMs: number | undefined; signal: AbortSignal | undefined },
  ): Promise<Answer> {
    const id = `${request.callId}.${number}.${digest(request.text).slice(0, 12)}`;
    let standing = await this.#questions.ask(id, request, wholeMs(timeoutMs ?? DEFAULT_TIMEOUT_MS));
    while (standing.state === 'waits') {
      await this.#broadcast(id, Math.min(standing.leftMs, LOOK_EVERY_MS), signal);
      if (signal?.aborted === true) {
        // Another worker has the call by now, and asks under the same ID: the question is not this one's to take back.
        if (!isLeaseLost(signal.reason)) await this.#questions.withdraw(id).catch(() => {});
        throw signal.reason instanceof Error ? signal.reason : new PawlError('CANCELLED');
      }
      const ended = await this.#questions.expire(id);
      if ('now' in ended) this.#expired(id, request);
      standing = 'now' in ended ? { state: 'expired' } : ended;
    }
    return standing;
  }

  #expired(questionId: string, { callId, session: sessionKey, tenantId, text: question }: QuestionRequest): void {
    void this.#audit({ type: 'question-ended', questionId, callId, sessionKey, tenantId, state: 'expired', question });
  }

  #broadcast(id: string, limitMs: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', end);
        this.#waiting.delete(id);
        resolve();
      };
      const timer = setTimeout(end, limitMs);
      signal?.addEventListener('abort', end, { once: true });
      this.#waiting.set(id, end);
      if (signal?.aborted === true) end();
    });
  }
}

/** Redis counts in whole milliseconds, and would keep a question without a sensible end for good. */
function wholeMs(timeoutMs: number): number {
  if (timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS) return Math.ceil(timeoutMs);
  throw new RangeError(`The timeoutMs of a question must be 0 to ${MAX_TIMEOUT_MS} milliseconds; got ${timeoutMs}.`);
}

function isLeaseLost(reason: unknown): boolean {
  return reason instanceof PawlError && reason.code === 'LEASE_LOST';
}
