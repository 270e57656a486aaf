/**
 * An event as it is kept (I4): one line of JSON, bounded, with the seeds' names for times and costs, and without secrets: values
 * that stand under names of secrets, values that this process knows to be secret, and what looks like a token (R31).
 */

import { REDACTED, redact, secretsIn } from '../errors/redaction.ts';
import { digest } from '../schema/canonical-json.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { AskedCall, AuditEvent } from './audit-event.ts';

const MAX_SUMMARY = 1_000;
const MAX_TEXT = 256;
const MAX_MEMBERS = 32;
const MAX_ITEMS = 16;
const MAX_DEPTH = 5;
/** Of all other texts. */
const MAX_FIELD = 1_024;

/** What is remembered of short texts: the same few actors, agents and answers come with every call. */
const MAX_KNOWN_WORDS = 1_000;
const MAX_KNOWN_LENGTH = 64;

/** Makes records of events, without the values that a process knows to be secret. */
export class AuditTexts {
  readonly #secrets: readonly string[];
  readonly #words = new Map<string, string>();

  constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
  }

  /** A record as JSON. `id` names it, so that one that was written twice, because an answer was lost, is known. */
  of(event: AuditEvent, atMs: number, id: string): string {
    return JSON.stringify(this.#record(event, atMs, id));
  }

  /** The record of a call but for its end, which `answeredText` adds. */
  asked(call: AskedCall, atMs: number, id: string): string {
    return JSON.stringify(this.#record(call, atMs, id)).slice(0, -1);
  }

  #record(event: AuditEvent | AskedCall, atMs: number, id: string): object {
    // Every call has two of these: one object each, changed in place. JSON leaves out what is undefined.
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
    }
    for (const name of WORDS) {
      const text = record[name];
      if (typeof text === 'string') record[name] = this.#clean(text);
    }
    // Why a call failed or was refused may quote what it was given.
    if ('reason' in event && event.reason !== undefined && 'params' in event)
      record['reason'] = words(event.reason, [...secretsIn(event.params), ...this.#secrets]);
    return record;
  }

  #summary(value: unknown, params: unknown): string | undefined {
    if (value === undefined) return undefined;
    const text = summaryText(value);
    const clean = redact(text, [...secretsIn(params), ...this.#secrets]);
    return clean.length > MAX_SUMMARY ? `${startOf(clean, MAX_SUMMARY)}…` : clean;
  }

  #clean(text: string): string {
    if (text.length > MAX_KNOWN_LENGTH) return words(text, this.#secrets);
    let clean = this.#words.get(text);
    if (clean === undefined) {
      clean = words(text, this.#secrets);
      if (this.#words.size >= MAX_KNOWN_WORDS) this.#words.clear();
      this.#words.set(text, clean);
    }
    return clean;
  }
}

export function answeredText(asked: string, callId: string, answer: 'claimed' | 'merged' | 'replayed'): string {
  return `${asked},"callId":${JSON.stringify(callId)},"answer":"${answer}"}`;
}

/** Beyond what JSON's numbers can say, so text. */
function nanoseconds(ms: number): string {
  return `${Math.round(ms)}000000`;
}

/** Not the parameters, and of the caller's key, which is for whoever has it, the digest: enough to see that two records have the same. */
function withoutSecrets(record: Record<string, unknown>, idempotencyKey: string | undefined): void {
  record['params'] = undefined;
  record['idempotencyKey'] = undefined;
  if (idempotencyKey !== undefined) record['idempotencyKeyHash'] = digest(idempotencyKey);
}

/** Never throws: a value may have getters and a `toJSON` of its own, and a record without a summary is better than none. */
function summaryText(value: unknown): string {
  try {
    return JSON.stringify(shortened(value, 0)) ?? '';
  } catch {
    return '(cannot be said in JSON)';
  }
}

/** A part of the value. A text is shown whole or not at all: a part of a secret could not be recognised. */
function shortened(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return value.length > MAX_TEXT ? `(${value.length} characters)` : value;
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return '(…)';
  if (ArrayBuffer.isView(value)) return `(${value.byteLength} bytes)`;
  // A date, or a row of a database: as its caller gets it.
  if ('toJSON' in value && typeof value.toJSON === 'function') return shortened(value.toJSON(), depth + 1);
  if (Array.isArray(value)) {
    const items = value.slice(0, MAX_ITEMS).map((item) => shortened(item, depth + 1));
    return value.length > MAX_ITEMS ? [...items, `(${value.length - MAX_ITEMS} more)`] : items;
  }
  const shown: Record<string, unknown> = {};
  let members = 0;
  for (const [key, member] of Object.entries(value)) {
    members += 1;
    if (members > MAX_MEMBERS) break;
    shown[startOf(key, MAX_TEXT)] = shortened(member, depth + 1);
  }
  if (members > MAX_MEMBERS) shown['…'] = `(${Object.keys(value).length - MAX_MEMBERS} more)`;
  return shown;
}

/** Fields with words of people and tools in them. The others are names and digests of ours. */
const WORDS = [
  'reason',
  'question',
  'answer',
  'by',
  'action',
  'actorId',
  'sessionActorId',
  'agentId',
  'correlationId',
  'turnId',
];

function words(text: string, known: readonly string[]): string {
  if (text.length > 16 * MAX_FIELD) return REDACTED;
  const clean = redact(text, known);
  return clean.length > MAX_FIELD ? `${startOf(clean, MAX_FIELD)}…` : clean;
}
