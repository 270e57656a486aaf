/** Questions of tools to people. The producer lists and answers them; the worker waits. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { invalidPart, PawlError } from '../../shared/errors/failure.ts';
import type { Given, QuestionRecord, Questions } from '../../shared/store/approvals/questions.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';

export type Reply = { readonly answer: string } | { readonly dismiss: true };

export class QuestionService {
  readonly #questions: Questions;

  readonly #audit: RecordAudit;

  constructor(questions: Questions, audit: RecordAudit) {
    this.#questions = questions;
    this.#audit = audit;
  }

  /** Waiting questions that `isSeen` accepts, the most urgent first. */
  list(limit = 100, isSeen?: (record: QuestionRecord) => boolean): Promise<QuestionRecord[]> {
    return this.#questions.pending(limit, isSeen);
  }

  /** Throws `NOT_FOUND` when no such question waits. */
  async show(id: string): Promise<QuestionRecord> {
    const record = await this.#questions.read(id);
    if (record === undefined) throw new PawlError('NOT_FOUND', `No question ${quoteValue(id)} waits for an answer.`);
    return record;
  }

  /**
   * Answers a question, once. Throws `NOT_FOUND`, `CONTRACT_INVALID` for an answer that is not an option, and `APPROVAL_STALE` when it is
   * too late.
   */
  async reply(id: string, reply: Reply, by: string): Promise<void> {
    const record = await this.show(id);
    const given: Given =
      'answer' in reply
        ? { state: 'answered', value: checkedAnswer(record, reply.answer), by }
        : { state: 'dismissed', by };
    const code = await this.#questions.give(id, given);
    if (code !== 'ended')
      throw new PawlError('APPROVAL_STALE', 'The question was answered already, or its time is over.');
    const { text: question, callId, session: sessionKey, tenantId } = record;
    const { state } = given;
    const answer = given.state === 'answered' ? { answer: given.value } : {};
    const subject = { questionId: id, callId, sessionKey, tenantId };
    await this.#audit({ type: 'question-ended', ...subject, state, question, ...answer, by });
  }
}

function checkedAnswer({ options = [], freeText }: QuestionRecord, answer: string): string {
  if (freeText || options.some(({ value }) => value === answer)) return answer;
  const allowed = options.map(({ value }) => JSON.stringify(value)).join(', ');
  throw invalidPart('The answer', 'answer', `must be one of ${allowed}; got ${JSON.stringify(startOf(answer, 80))}`);
}
