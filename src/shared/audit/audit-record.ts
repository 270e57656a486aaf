/**
 * Turns an event (`audit-event.ts`) into a record: one line of JSON of bounded size. Secrets are left out: values under names of secrets,
 * values that this process knows to be secret, and text that looks like a token.
 */
import { redact, secretsOfCall } from '../errors/redaction.ts';
import { REDACTED } from '../errors/secret-patterns.ts';
import { digest } from '../schema/canonical-json.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { startOf, withEllipsis } from '../util/text/text-cut.ts';
import type { AuditEvent, SubmittedCall } from './audit-event.ts';

const MAX_SUMMARY = 1_000;
const MAX_TEXT = 256;
const MAX_MEMBERS = 32;
const MAX_ITEMS = 16;
const MAX_DEPTH = 5;
/** The longest text of all other fields. */
const MAX_FIELD = 1_024;

/** Cleaned short texts are cached, because the same few actors, agents and answers are in every call's records. */
const MAX_CACHED_TEXTS = 1_000;
const MAX_CACHED_LENGTH = 64;

/** Makes records of events, without the values that the process knows to be secret. */
export class AuditFormatter {
  readonly #secrets: readonly string[];
  readonly #cleanedTexts = new Map<string, string>();

  constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
  }

  /** The text of a record. `id` identifies it, so that a record that is written twice, because an answer was lost, is recognised. */
  format(event: AuditEvent, atMs: number, id: string): string {
    return JSON.stringify(this.#record(event, atMs, id));
  }

  /**
   * The text of a submitted call's record, without its end, which `finishCall` appends. The call's answer is known only later, and may be
   * written twice, so appending text saves a second `JSON.stringify` of each call.
   */
  startCall(call: SubmittedCall, atMs: number, id: string): string {
    return JSON.stringify(this.#record(call, atMs, id)).slice(0, -1);
  }

  #record(event: AuditEvent | SubmittedCall, atMs: number, id: string): Readonly<Record<string, unknown>> {
    // Each call has two records, so each is one object, changed in place. JSON leaves out what is undefined.
    const record: Record<string, unknown> = { ...event, id, atMs };
    if (event.type === 'call') {
      const { params } = event;
      withoutSecrets(record, event.idempotencyKey);
      record['request'] = this.#summary(params, params);
    } else if (event.type === 'approval-decided') {
      const { params } = event;
      record['params'] = undefined;
      record['request'] = this.#summary(params, params);
    } else if (event.type === 'attempt') {
      const { params, result, startedAtMs, finishedAtMs, latencyMs } = event;
      withoutSecrets(record, event.idempotencyKey);
      record['startedAtMs'] = undefined;
      record['finishedAtMs'] = undefined;
      record['startedAtNs'] = nanoseconds(startedAtMs);
      record['finishedAtNs'] = nanoseconds(finishedAtMs);
      record['latencyMs'] = Math.round(latencyMs * 1_000) / 1_000;
      record['result'] = this.#summary(result, params);
    } else if (event.type === 'call-ended') {
      record['result'] = this.#summary(event.result, undefined);
    }
    for (const name of FREE_TEXT_FIELDS) {
      const text = record[name];
      if (typeof text === 'string') record[name] = this.#clean(text);
    }
    // The reason of a failure or a refusal may quote the parameters.
    if ('reason' in event && event.reason !== undefined && 'params' in event)
      record['reason'] = cleanText(event.reason, secretsOfCall(event.params, this.#secrets));
    return record;
  }

  #summary(value: unknown, params: unknown): string | undefined {
    if (value === undefined) return undefined;
    return withEllipsis(redact(summaryText(value), secretsOfCall(params, this.#secrets)), MAX_SUMMARY);
  }

  #clean(text: string): string {
    if (text.length > MAX_CACHED_LENGTH) return cleanText(text, this.#secrets);
    let clean = this.#cleanedTexts.get(text);
    if (clean === undefined) {
      clean = cleanText(text, this.#secrets);
      if (this.#cleanedTexts.size >= MAX_CACHED_TEXTS) this.#cleanedTexts.clear();
      this.#cleanedTexts.set(text, clean);
    }
    return clean;
  }
}

/** Appends the answer to the record of a submitted call that `startCall` began. */
export function finishCall(startedRecord: string, callId: string, answer: 'claimed' | 'merged' | 'replayed'): string {
  return `${startedRecord},"callId":${JSON.stringify(callId)},"answer":"${answer}"}`;
}

/** Nanoseconds exceed the range of a JSON number, so they are text. */
function nanoseconds(ms: number): string {
  return `${Math.round(ms)}000000`;
}

/** Removes the parameters and replaces the caller's key by its digest, which is enough to see that two records share a key. */
function withoutSecrets(record: Record<string, unknown>, idempotencyKey: string | undefined): void {
  record['params'] = undefined;
  record['idempotencyKey'] = undefined;
  if (idempotencyKey !== undefined) record['idempotencyKeyHash'] = digest(idempotencyKey);
}

/** Never throws: a value may have getters and a `toJSON` of its own, and a record without a summary is better than none. */
function summaryText(value: unknown): string {
  return orUndefined(() => JSON.stringify(summarize(value, 0)) ?? '') ?? '(not JSON-serializable)';
}

/** A bounded part of the value. A text is kept whole or replaced by its length, because part of a secret would not be recognised. */
function summarize(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return value.length > MAX_TEXT ? `(${value.length} characters)` : value;
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return '(…)';
  if (ArrayBuffer.isView(value)) return `(${value.byteLength} bytes)`;
  // A date or a database row, for example: summarised as its caller gets it.
  if ('toJSON' in value && typeof value.toJSON === 'function') return summarize(value.toJSON(), depth + 1);
  if (Array.isArray(value)) {
    const items = value.slice(0, MAX_ITEMS).map((item) => summarize(item, depth + 1));
    return value.length > MAX_ITEMS ? [...items, `(${value.length - MAX_ITEMS} more)`] : items;
  }
  const summary: Record<string, unknown> = {};
  let members = 0;
  for (const [key, member] of Object.entries(value)) {
    members += 1;
    if (members > MAX_MEMBERS) break;
    summary[startOf(key, MAX_TEXT)] = summarize(member, depth + 1);
  }
  if (members > MAX_MEMBERS) summary['…'] = `(${Object.keys(value).length - MAX_MEMBERS} more)`;
  return summary;
}

/** The names of the fields that take any text. Parameters and results are summarised instead. */
type TextField<Event> = Event extends unknown
  ? {
      [Name in keyof Event]-?: unknown extends Event[Name]
        ? never
        : string extends NonNullable<Event[Name]>
          ? Name
          : never;
    }[keyof Event]
  : never;

/** Whether a field may contain text of people and tools; the others are names that Pawl or its settings gave. A new field must be added. */
const IS_FREE_TEXT: Readonly<Record<TextField<AuditEvent>, boolean>> = {
  action: true,
  actorId: true,
  agentId: true,
  answer: true,
  because: true,
  by: true,
  correlationId: true,
  question: true,
  reason: true,
  sessionActorId: true,
  submittedBy: true,
  turnId: true,
  approvalId: false,
  callId: false,
  code: false,
  compensates: false,
  definition: false,
  digest: false,
  groupId: false,
  idempotencyKey: false,
  kind: false,
  paramsDigest: false,
  questionId: false,
  redriveId: false,
  requestId: false,
  rule: false,
  scheduleId: false,
  sessionKey: false,
  state: false,
  status: false,
  tenantId: false,
  tool: false,
  toolVersion: false,
  trustClass: false,
  worker: false,
};
const FREE_TEXT_FIELDS = Object.entries(IS_FREE_TEXT)
  .filter(([, isFreeText]) => isFreeText)
  .map(([name]) => name);

function cleanText(text: string, secrets: readonly string[]): string {
  if (text.length > 16 * MAX_FIELD) return REDACTED;
  const clean = redact(text, secrets);
  return withEllipsis(clean, MAX_FIELD);
}
