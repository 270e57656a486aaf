/** Completes pending calls: checks the completion of an outside system against the call's tool, and writes the outcome once. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { failedLifetime } from '../../shared/calls/call-state.ts';
import {
  type Completion,
  type CompletionResult,
  type CompletionTerms,
  type ParsedCompletion,
  parseCompletion,
  type ReportedOutcome,
  resultFromOutside,
  textFromOutside,
} from '../../shared/calls/completion.ts';
import { type Outcome, resultError, retriedBy } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { clip, failureOf, isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import { redact, secretsOfCall } from '../../shared/errors/redaction.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { CompletionEnd, CompletionEntry, CompletionRefusal } from '../../shared/store/completions/completions.ts';
import { resultMetadata } from '../../shared/tools/tool-result.ts';
import type { LargeText } from '../../shared/util/json/large-json.ts';

/** The answer to a completion. It only says whether the call is still pending. */
export type CompletionAnswer =
  | { readonly state: 'completed' }
  /** `expiresAtMs` is absent while the attempt that issued the token still runs. */
  | { readonly state: 'pending'; readonly expiresAtMs?: number };

/** The part of a call's record that completing it needs. */
export type CompletableCall = Pick<
  CallRecord,
  'callId' | 'request' | 'phase' | 'fence' | 'attempts' | 'createdAtMs' | 'startedAtMs' | 'readAtMs'
>;

/** The records of pending calls: in Redis, or in the process that runs them. */
interface CompletionRecords {
  find(token: string): Promise<CompletionEntry>;
  complete(entry: CompletionEntry, end: CompletionEnd): Promise<'settled' | CompletionRefusal>;
  report(entry: CompletionEntry, event: object): Promise<'reported' | CompletionRefusal>;
  extend(
    entry: CompletionEntry,
    extendMs: number,
  ): Promise<CompletionRefusal | { readonly expiresAtMs: number | undefined }>;
}

export interface CompletionServiceDeps {
  readonly records: CompletionRecords;
  readonly settings: Settings;
  /** The secrets of this process, which no message may quote. */
  readonly secrets: readonly string[];
  read(callId: string): Promise<CompletableCall | undefined>;
  /** Records that a session sees text from outside, before it can see it. */
  taint(sessionKey: string, source: string): Promise<void>;
  readonly audit: RecordAudit;
  onCompletion(result: CompletionResult): void;
}

export class CompletionService {
  readonly #deps: CompletionServiceDeps;

  constructor(deps: CompletionServiceDeps) {
    this.#deps = deps;
  }

  /**
   * Completes the call of a token: `complete(token, { status: 'success', output })`. Throws `CONTRACT_INVALID`, `UNKNOWN_COMPLETION`,
   * `COMPLETION_USED`, `COMPLETION_EXPIRED` and `COMPLETION_INVALID`. The token can be used again after the first and the last.
   */
  async complete(token: string, completion: Completion): Promise<CompletionAnswer> {
    try {
      const parsed = parseCompletion(completion);
      const entry = await this.#deps.records.find(token);
      const answer = await this.#apply(entry, parsed);
      this.#deps.onCompletion(resultOf(parsed));
      return answer;
    } catch (error) {
      if (isRefusalError(error)) this.#deps.onCompletion('refused');
      throw error;
    }
  }

  #apply(entry: CompletionEntry, parsed: ParsedCompletion): Promise<CompletionAnswer> {
    switch (parsed.kind) {
      case 'end':
        return this.#end(entry, parsed.end);
      case 'progress':
        return this.#report(entry, parsed.report);
      case 'extend':
        return this.#extend(entry, parsed.extendMs);
    }
  }

  async #report(
    entry: CompletionEntry,
    { progress, total, message }: Extract<ParsedCompletion, { kind: 'progress' }>['report'],
  ): Promise<CompletionAnswer> {
    const event = {
      type: 'progress',
      callId: entry.callId,
      progress,
      ...(total !== undefined && { total }),
      ...(message !== undefined && { message: clip(redact(message, this.#deps.secrets)) }),
    };
    const answer = await this.#deps.records.report(entry, event);
    if (answer !== 'reported') throw refusalError(answer);
    return { state: 'pending' };
  }

  async #extend(entry: CompletionEntry, extendMs: number): Promise<CompletionAnswer> {
    const answer = await this.#deps.records.extend(entry, extendMs);
    if (typeof answer === 'string') throw refusalError(answer);
    return { state: 'pending', ...(answer.expiresAtMs !== undefined && { expiresAtMs: answer.expiresAtMs }) };
  }

  async #end(entry: CompletionEntry, end: ReportedOutcome): Promise<CompletionAnswer> {
    const { records, read } = this.#deps;
    const call = await read(entry.callId);
    if (call === undefined) throw refusalError('over');
    const { outcome, text } = await this.#outcome(call, entry.terms, end);
    if (outcome.status === 'success' && call.phase !== undefined) await this.#taint(call);
    const answer = await records.complete(entry, this.#ending(call, outcome, text));
    if (answer !== 'settled') throw refusalError(answer);
    this.#record(call, outcome);
    return { state: 'completed' };
  }

  /** An expired session needs no taint. */
  async #taint({ request: { envelope } }: CompletableCall): Promise<void> {
    try {
      await this.#deps.taint(envelope.target.sessionKey, `${envelope.toolNamespace}.${envelope.toolName}`);
    } catch (error) {
      if (!isRefusalError(error)) throw error;
    }
  }

  #ending(call: CompletableCall, outcome: Outcome, outcomeJson: string | LargeText): CompletionEnd {
    const { settings } = this.#deps;
    const { envelope } = call.request;
    const ttls = ttlsOf(settings, { namespace: envelope.toolNamespace, name: envelope.toolName });
    const { callId, fence, attempts } = call;
    const { error, status, attempts: number, durationMs } = outcome;
    const life = error === undefined ? { ttlMs: ttls.doneMs } : failedLifetime(ttls);
    const state = error === undefined ? 'done' : 'failed';
    const value =
      error === undefined
        ? JSON.stringify({ status, attempts: number, durationMs })
        : `${error.code}: ${error.message}`;
    return {
      settle: { callId, fence, state, outcome, outcomeJson, attempts, ...life },
      job: { ended: error === undefined ? 'completed' : 'failed', value },
      attempt: error === undefined ? { status: 'success' } : { status: 'error', errorCode: error.code },
    };
  }

  /** Throws `COMPLETION_INVALID`. */
  async #outcome(
    call: CompletableCall,
    terms: CompletionTerms,
    end: ReportedOutcome,
  ): Promise<{ readonly outcome: Outcome; readonly text: string | LargeText }> {
    const { envelope } = call.request;
    const { attempts } = call;
    // A running attempt is not in the record yet.
    const number = attempts.length + (call.phase === 'pending' ? 0 : 1);
    const base = {
      toolName: envelope.toolName,
      durationMs: call.readAtMs - (attempts[0]?.startedAtMs ?? call.startedAtMs ?? call.createdAtMs),
      attempts: number,
      ...retriedBy(attempts.slice(0, number - 1)),
    };
    if (end.status === 'error') {
      const secrets = secretsOfCall(envelope.payload.params, this.#deps.secrets);
      const failure = { ...failureOf('TOOL_FAILED', redact(end.error.message, secrets)), code: end.error.code };
      const outcome: Outcome = { ...base, status: 'error', error: resultError(failure, 'error') };
      return { outcome, text: JSON.stringify(outcome) };
    }
    const result = await resultFromOutside(envelope.toolName, terms, { output: null, ...end });
    const { shownBytes, maxResultBytes } = terms;
    const outcome: Outcome = {
      ...base,
      status: 'success',
      output: { content: result.output, metadata: resultMetadata(result, { outside: true, diff: '' }) },
      ...(shownBytes !== undefined && { shownBytes }),
    };
    return { outcome, text: await textFromOutside(outcome, maxResultBytes) };
  }

  #record({ callId, request: { envelope } }: CompletableCall, outcome: Outcome): void {
    const { sessionKey, tenantId } = envelope.target;
    const { status, attempts, error, output } = outcome;
    void this.#deps.audit({
      type: 'call-ended',
      callId,
      tool: `${envelope.toolNamespace}.${envelope.toolName}`,
      sessionKey,
      tenantId,
      status,
      attempts,
      ...(error === undefined ? { result: output?.content } : { code: error.code, reason: error.message }),
    });
  }
}

function resultOf(parsed: ParsedCompletion): CompletionResult {
  if (parsed.kind === 'end') return parsed.end.status;
  return parsed.kind === 'progress' ? 'progress' : 'extended';
}

function refusalError(answer: CompletionRefusal): PawlError {
  switch (answer) {
    case 'unknown':
      return new PawlError('UNKNOWN_COMPLETION');
    case 'used':
      return new PawlError('COMPLETION_USED');
    case 'expired':
      return new PawlError('COMPLETION_EXPIRED');
    case 'over':
      return new PawlError(
        'COMPLETION_EXPIRED',
        'The call no longer waits for this token: it has ended, or the attempt that issued the token has.',
      );
    case 'toolong':
      return new PawlError('CONTRACT_INVALID', 'The call would wait for more than a year from now.', {
        issues: [{ path: 'extendMs', message: 'makes the call wait for more than a year from now' }],
      });
  }
}
