/**
 * An event as it is kept (I4): one line of JSON, bounded, with the seeds' names for times and costs, and without secrets: values
 * that stand under names of secrets, values that this process knows to be secret, and what looks like a token (R31).
 */
import type { AskedCall, AuditEvent } from './audit.ts';
import { digest } from './fingerprint.ts';
import { REDACTED, redact, secretsIn } from './redaction.ts';

const MAX_SUMMARY = 1_000;
const MAX_TEXT = 256;
const MAX_MEMBERS = 32;
const MAX_ITEMS = 16;
const MAX_DEPTH = 5;
/** Of all other texts. */
const MAX_FIELD = 1_024;

/** A record as JSON. `id` names it, so that one that was written twice, because an answer was lost, is known. */
export function auditText(event: AuditEvent, atMs: number, id: string, known: readonly string[]): string {
  return JSON.stringify(cleaned({ id, atMs, ...shaped(event, known) }, known));
}

/** The record of a call but for its end, which `answeredText` adds. */
export function askedText(call: AskedCall, atMs: number, id: string, known: readonly string[]): string {
  return JSON.stringify(cleaned({ id, atMs, ...shaped(call, known) }, known)).slice(0, -1);
}

export function answeredText(asked: string, callId: string, answer: 'claimed' | 'merged' | 'replayed'): string {
  return `${asked},"callId":${JSON.stringify(callId)},"answer":"${answer}"}`;
}

function cleaned(record: Record<string, unknown>, known: readonly string[]): object {
  for (const name of WORDS) {
    const text = record[name];
    if (typeof text === 'string') record[name] = words(text, known);
  }
  return record;
}

function shaped(event: AuditEvent | AskedCall, known: readonly string[]): object {
  switch (event.type) {
    case 'call': {
      const { params, idempotencyKey, ...rest } = event;
      return { ...rest, ...hashed(idempotencyKey), ...summary('request', params, params, known) };
    }
    case 'attempt': {
      const { params, result, startedAtMs, finishedAtMs, latencyMs, idempotencyKey, ...rest } = event;
      return {
        ...rest,
        ...hashed(idempotencyKey),
        startedAtNs: nanoseconds(startedAtMs),
        finishedAtNs: nanoseconds(finishedAtMs),
        latencyMs: Math.round(latencyMs * 1_000) / 1_000,
        ...summary('result', result, params, known),
      };
    }
    default:
      return event;
  }
}

/** Beyond what JSON's numbers can say, so text. */
function nanoseconds(ms: number): string {
  return `${Math.round(ms)}000000`;
}

/** The caller's key is for whoever has it: to see that two records have the same one, its digest is enough. */
function hashed(idempotencyKey: string | undefined): object {
  return idempotencyKey === undefined ? {} : { idempotencyKeyHash: digest(idempotencyKey) };
}

function summary(name: 'request' | 'result', value: unknown, params: unknown, known: readonly string[]): object {
  if (value === undefined) return {};
  const text = JSON.stringify(shortened(value, 0)) ?? '';
  const clean = redact(text, [...secretsIn(params), ...known]);
  return { [name]: clean.length > MAX_SUMMARY ? `${clean.slice(0, MAX_SUMMARY)}…` : clean };
}

/** A part of the value. A text is shown whole or not at all: a part of a secret could not be recognised. */
function shortened(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return value.length > MAX_TEXT ? `(${value.length} characters)` : value;
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return '(…)';
  if (ArrayBuffer.isView(value)) return `(${value.byteLength} bytes)`;
  if (Array.isArray(value)) {
    const items = value.slice(0, MAX_ITEMS).map((item) => shortened(item, depth + 1));
    return value.length > MAX_ITEMS ? [...items, `(${value.length - MAX_ITEMS} more)`] : items;
  }
  const shown: Record<string, unknown> = {};
  let members = 0;
  for (const [key, member] of Object.entries(value)) {
    members += 1;
    if (members > MAX_MEMBERS) break;
    shown[key.slice(0, MAX_TEXT)] = shortened(member, depth + 1);
  }
  if (members > MAX_MEMBERS) shown['…'] = `(${Object.keys(value).length - MAX_MEMBERS} more)`;
  return shown;
}

/** Fields with words of people and tools in them. The others are names and digests of ours. */
const WORDS = ['reason', 'question', 'answer', 'by', 'action', 'actorId', 'agentId', 'correlationId', 'turnId'];

function words(text: string, known: readonly string[]): string {
  if (text.length > 16 * MAX_FIELD) return REDACTED;
  const clean = redact(text, known);
  return clean.length > MAX_FIELD ? `${clean.slice(0, MAX_FIELD)}…` : clean;
}
