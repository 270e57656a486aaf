/**
 * Questions that tools ask people, in sessions whose channel is Pawl's own. A question outlives the process that asked it: a call that runs
 * again asks under the same ID, and finds the answer that came in the meantime.
 *
 *   pending    waits for a person until its time is over
 *   answered   a person answered, once     dismissed  a person will not answer
 *   expired    its time is over            withdrawn  the asking call ended first; asking again opens it again
 */
import type { Answer, Question } from '../../tools/capabilities.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import { uuidv7 } from '../../util/time.ts';
import { serverTimeMs } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

const askScript = new Script(new URL('./question-ask.lua', import.meta.url));
const endScript = new Script(new URL('./question-end.lua', import.meta.url));

/** How long an ended question is kept: longer than a call that runs again needs to find its answer. */
const ENDED_TTL_MS = 3_600_000;
/** Questions that are read together. */
const PAGE = 200;

/** The question as people see it. */
export interface QuestionRequest extends Pick<Question, 'text' | 'options'> {
  readonly freeText: boolean;
  readonly callId: string;
  readonly session: string;
  /** The session whose channel it is shown in. */
  readonly shownIn: string;
  readonly channel: string;
  readonly actorId: string;
  /** The session's actor, where the call names another one. */
  readonly sessionActorId?: string;
  readonly agentId?: string;
  readonly tenantId?: string;
}

export interface QuestionRecord extends QuestionRequest {
  readonly id: string;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

export type Given = Exclude<Answer, { readonly state: 'expired' }>;

/** `waits`: for `leftMs` at most. */
export type Standing = Answer | { readonly state: 'waits'; readonly leftMs: number };

export class Questions extends FleetRecords {
  #questionKeys(id: string): string[] {
    return [this.keys.question(id), this.keys.questions];
  }

  async ask(id: string, request: QuestionRequest, timeoutMs: number): Promise<Standing> {
    const args = [id, signedText(this.signatures, 'question', id, request), timeoutMs, ENDED_TTL_MS];
    const answered = await askScript.run(this.redis, this.#questionKeys(id), args);
    const [state, nowMs, expiresAtMs, answer, signature] = answered;
    if (state === 'pending') return { state: 'waits', leftMs: Math.max(0, Number(expiresAtMs) - Number(nowMs)) };
    return this.#verified(id, String(answer), String(signature));
  }

  /** Ends a question that has expired, and returns its state; `now`: this call has ended it. */
  async expire(id: string): Promise<Standing | { readonly state: 'expired'; readonly now: true }> {
    const [code, , detail, answer, signature] = await this.#end(id, 'expired');
    if (code === 'early') return { state: 'waits', leftMs: Number(detail) };
    if (code === 'ended') return { state: 'expired', now: true };
    return code === 'already' ? this.#verified(id, String(answer), String(signature)) : { state: 'expired' };
  }

  /** Ends a question whose call no longer waits. */
  async withdraw(id: string): Promise<void> {
    await this.#end(id, 'withdrawn');
  }

  /** Records a person's answer, once. `already`: another answer was faster, or the question ended otherwise. */
  async give(id: string, reply: Given): Promise<'ended' | 'already' | 'late' | 'gone'> {
    const [code] = await this.#end(id, reply.state, JSON.stringify(reply));
    return code as 'ended' | 'already' | 'late' | 'gone';
  }

  #end(id: string, state: string, answer = ''): Promise<unknown[]> {
    const signature = answer === '' ? '' : this.signatures.sign('answer', id, answer);
    const broadcast = JSON.stringify({ type: 'question', id });
    const args = [id, state, answer, signature, this.channel, broadcast, uuidv7()];
    return endScript.run(this.redis, this.#questionKeys(id), args);
  }

  /** An answer that no key of this fleet signed counts as none. */
  #verified(id: string, answer: string, signature: string): Answer {
    const holds = answer !== '' && this.signatures.verify('answer', id, answer, signature);
    const given = holds ? parseJson(answer) : undefined;
    return isObject(given) ? (given as unknown as Given) : { state: 'expired' };
  }

  /** A question that waits, as a worker with a key asked it; undefined for another one. */
  async read(id: string): Promise<QuestionRecord | undefined> {
    const { state, question, createdAtMs, expiresAtMs } = await this.redis.hgetall(this.keys.question(id));
    if (state !== 'pending' || question === undefined) return undefined;
    const request = verifiedText<QuestionRequest>(this.signatures, 'question', id, question);
    if (request === undefined) return undefined;
    return { id, ...request, createdAtMs: Number(createdAtMs), expiresAtMs: Number(expiresAtMs) };
  }

  /** The waiting questions that `isVisible` accepts, the most urgent first. */
  async pending(limit: number, isVisible: (record: QuestionRecord) => boolean = () => true): Promise<QuestionRecord[]> {
    const fromMs = await serverTimeMs(this.redis);
    const questions: QuestionRecord[] = [];
    for (let offset = 0; questions.length < limit; offset += PAGE) {
      const ids = await this.redis.zrangebyscore(this.keys.questions, fromMs, '+inf', 'LIMIT', offset, PAGE);
      const records = await Promise.all(ids.map((id) => this.read(id)));
      questions.push(...records.filter((record) => record !== undefined).filter(isVisible));
      if (ids.length < PAGE) break;
    }
    return questions.slice(0, limit);
  }
}
