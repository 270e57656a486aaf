/** Asks people questions: waits for the broadcast of an answer, and polls in case the broadcast is missed. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { digest } from '../../shared/schema/canonical-json.ts';
import type { QuestionRequest, Questions } from '../../shared/store/approvals/questions.ts';
import type { Answer } from '../../shared/tools/capabilities.ts';
import { NamedWaits } from '../../shared/util/named-waits.ts';

const POLL_MS = 2_000;
const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_TIMEOUT_MS = 7 * 24 * 3_600_000;

export class ElicitationState {
  readonly #questions: Questions;
  readonly #waits = new NamedWaits();
  readonly #audit: RecordAudit;

  constructor(questions: Questions, audit: RecordAudit) {
    this.#questions = questions;
    this.#audit = audit;
  }

  onEnded(id: string): void {
    this.#waits.notify(id);
  }

  /**
   * Waits for the answer until `signal` aborts. `number` distinguishes questions of the same text in one call. Throws the signal's
   * reason.
   */
  async ask(
    request: QuestionRequest,
    { number, timeoutMs, signal }: { number: number; timeoutMs: number | undefined; signal: AbortSignal | undefined },
  ): Promise<Answer> {
    const id = `${request.callId}.${number}.${digest(request.text).slice(0, 12)}`;
    let status = await this.#questions.ask(id, request, wholeMs(timeoutMs ?? DEFAULT_TIMEOUT_MS));
    while (status.state === 'waits') {
      const waiting = this.#waits.listen([id], signal);
      await waiting.within(Math.min(status.leftMs, POLL_MS));
      waiting.stop();
      if (signal?.aborted === true) {
        // After a lost lease another worker has the call, and asks under the same ID: this worker must not withdraw the question.
        if (!isLeaseLost(signal.reason)) await this.#questions.withdraw(id).catch(() => {});
        throw signal.reason instanceof Error ? signal.reason : new PawlError('CANCELLED');
      }
      const ended = await this.#questions.expire(id);
      if ('now' in ended) this.#expired(id, request);
      status = 'now' in ended ? { state: 'expired' } : ended;
    }
    return status;
  }

  #expired(questionId: string, { callId, session: sessionKey, tenantId, text: question }: QuestionRequest): void {
    void this.#audit({ type: 'question-ended', questionId, callId, sessionKey, tenantId, state: 'expired', question });
  }
}

/** Redis needs whole milliseconds, and would keep a question with an invalid timeout for ever. */
function wholeMs(timeoutMs: number): number {
  if (timeoutMs >= 0 && timeoutMs <= MAX_TIMEOUT_MS) return Math.ceil(timeoutMs);
  throw new RangeError(`The timeoutMs of a question must be 0 to ${MAX_TIMEOUT_MS} milliseconds; got ${timeoutMs}.`);
}

function isLeaseLost(reason: unknown): boolean {
  return reason instanceof PawlError && reason.code === 'LEASE_LOST';
}
