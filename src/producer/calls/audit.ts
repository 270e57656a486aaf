/** What a producer tells the audit trail of the calls that are handed in (I4), and how the trail is read. */
import { z } from 'zod';
import type { AskedCall, RecordAudit } from '../../shared/audit/audit-event.ts';
import { answeredText } from '../../shared/audit/audit-record.ts';
import { compensated } from '../../shared/calls/compensation.ts';
import { type DedupeMode, type ToolCallEnvelope, turnOf } from '../../shared/calls/envelope.ts';
import { costUnitsOf } from '../../shared/limits/budget.ts';
import type { AuditEntry, AuditRecord, AuditTrail } from '../../shared/store/audit/audit-trail.ts';
import type { AuditWriter } from '../../shared/store/audit/audit-writer.ts';
import type { ClaimAnswer } from '../../shared/store/calls/claim.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { backgroundSchedule, type Schedule } from '../../shared/util/time.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { DispatchEvent } from './submission.ts';

const MAX_LOOKED = 100_000;

type Refusal = Extract<DispatchEvent, { type: 'refused' }>;

export interface CallAuditDeps {
  /** Of refusals. */
  readonly record: RecordAudit;
  /** Of calls that are taken: their records travel with the claim. */
  readonly writer: Pick<AuditWriter, 'asked' | 'add'>;
  /** Told of every call, beside the trail. */
  readonly listener?: RecordAudit;
  publishedTool(namespace: string, name: string): ResolvedTool | undefined;
  readonly schedule?: Schedule;
}

/** Answers that are told of here; a refusal follows the others, and says why. */
const ANSWERS = { claimed: 'claimed', inflight: 'merged', ended: 'replayed' } as const;

/** Refusals that say nothing of who asked, or for what. */
const SAME_FOR_ALL: ReadonlySet<string> = new Set(['CIRCUIT_OPEN', 'OVERLOADED', 'BACKEND_UNAVAILABLE']);
const COUNTED_MS = 1_000;

interface Counted {
  times: number;
  last: Refusal;
}

/**
 * Tells the trail of the calls that a producer hands in. An agent that goes on asking while a circuit is open is refused many thousand
 * times a second, and must not push other records out: of its refusals the first is told at once, and those that follow within a
 * second by one record, the last one's, that says how many they were (`times`).
 */
export class CallAudit {
  readonly #parts: CallAuditDeps;
  readonly #counted = new Map<string, Counted>();
  /** The one that came last: it often comes again. */
  #latest: Counted | undefined;
  #stop = () => {};

  constructor(parts: CallAuditDeps) {
    this.#parts = parts;
  }

  /** The record of a call that is handed in. */
  asked(
    envelope: ToolCallEnvelope,
    published: ResolvedTool,
    known: Required<Pick<AskedCall, 'submittedBy' | 'sessionActorId'>> & { readonly paramsDigest: string },
  ): AskedRecord {
    return new AskedRecord(this.#parts, { ...askedCall(envelope, published), ...known });
  }

  observe(event: DispatchEvent): void {
    if (event.type === 'refused' && !this.#isCounted(event)) this.#tell(event);
  }

  #tell({ envelope, code, message }: Refusal, times?: number): void {
    if (envelope === undefined) return;
    const asked = askedCall(envelope, this.#parts.publishedTool(envelope.toolNamespace, envelope.toolName));
    const refused = { ...asked, answer: 'refused', code, reason: message } as const;
    void this.#parts.record(times === undefined ? refused : { ...refused, times });
  }

  #isCounted(refusal: Refusal): boolean {
    const { envelope, code } = refusal;
    if (envelope === undefined || !SAME_FOR_ALL.has(code)) return false;
    const latest = this.#latest !== undefined && isSame(this.#latest.last, refusal) ? this.#latest : undefined;
    const counted = latest ?? this.#counted.get(kindOf(envelope, code));
    if (counted === undefined) {
      const { schedule = backgroundSchedule } = this.#parts;
      if (this.#counted.size === 0) this.#stop = schedule(() => this.flush(), COUNTED_MS);
      this.#latest = { times: 0, last: refusal };
      this.#counted.set(kindOf(envelope, code), this.#latest);
      return false;
    }
    this.#latest = counted;
    counted.times += 1;
    counted.last = refusal;
    return true;
  }

  /** Tells what was counted until now. */
  flush(): void {
    this.#stop();
    for (const { times, last } of this.#counted.values()) if (times > 0) this.#tell(last, times);
    this.#counted.clear();
    this.#latest = undefined;
  }
}

function kindOf({ toolNamespace, toolName, target }: ToolCallEnvelope, code: string): string {
  return `${code} ${toolNamespace}.${toolName} ${target.sessionKey}`;
}

/** Of one kind, without making its name. */
function isSame(one: Refusal, other: Refusal): boolean {
  const [a, b] = [one.envelope, other.envelope];
  return (
    one.code === other.code &&
    a?.toolName === b?.toolName &&
    a?.toolNamespace === b?.toolNamespace &&
    a?.target.sessionKey === b?.target.sessionKey
  );
}

/** What is recorded of one call. */
export class AskedRecord {
  readonly #parts: CallAuditDeps;
  readonly #call: AskedCall;
  readonly #text: string | undefined;

  constructor(parts: CallAuditDeps, call: AskedCall) {
    this.#parts = parts;
    this.#call = call;
    this.#text = parts.writer.asked(call);
  }

  /** Written by the claim of a call that is new. Undefined when nothing is written of it. */
  claimed(callId: string): string | undefined {
    return this.#text === undefined ? undefined : answeredText(this.#text, callId, 'claimed');
  }

  /** Once the claim was answered; a refusal that follows tells its own. */
  answered({ kind, callId }: ClaimAnswer, mode: DedupeMode): void {
    if (!isTold(kind) || (kind === 'inflight' && mode !== 'enforced')) return;
    const answer = ANSWERS[kind];
    void this.#parts.listener?.({ ...this.#call, callId, answer });
    if (kind !== 'claimed' && this.#text !== undefined)
      this.#parts.writer.add(answeredText(this.#text, callId, answer));
  }
}

function isTold(kind: ClaimAnswer['kind']): kind is keyof typeof ANSWERS {
  return kind in ANSWERS;
}

function askedCall(envelope: ToolCallEnvelope, published: ResolvedTool | undefined): AskedCall {
  const { target, payload, toolNamespace: namespace, toolName: name } = envelope;
  return {
    type: 'call',
    tool: qualifiedName({ namespace, name }),
    sessionKey: target.sessionKey,
    tenantId: target.tenantId,
    requestId: envelope.requestId,
    actorId: target.actorId,
    agentId: target.agentId,
    turnId: turnOf(envelope),
    correlationId: target.correlationId,
    compensates: compensated(envelope),
    idempotencyKey: payload.idempotencyKey,
    params: payload.params,
    ...(published === undefined
      ? {}
      : {
          toolVersion: published.version,
          tier: published.tier,
          estimatedCostUnits: costUnitsOf(published, payload.params),
        }),
  };
}

/** Milliseconds since the epoch, or a moment as ISO 8601 writes it. */
export const sinceSchema = z.string().transform((text, context) => {
  const atMs = /^\d{1,16}$/.test(text) ? Number(text) : Date.parse(text);
  if (!Number.isNaN(atMs)) return atMs;
  context.addIssue({
    code: 'custom',
    message: 'must be milliseconds since the epoch, or a moment such as 2026-11-22T10:00:00Z',
  });
  return z.NEVER;
});

/** What is looked for in the trail. A tool by its name, with or without its namespace. */
export interface AuditQuery {
  readonly sessionKey?: string | undefined;
  readonly tool?: string | undefined;
  readonly callId?: string | undefined;
  readonly type?: string | undefined;
  readonly sinceMs?: number | undefined;
  readonly limit?: number | undefined;
  /** Whether the one who asks may see a tenant's records; those that name no tenant have `undefined`. */
  readonly seesTenant?: (tenantId: string | undefined) => boolean;
}

/** The newest first, as far as Redis keeps them. */
export function findRecords(trail: AuditTrail, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { sessionKey, tool, callId, type, sinceMs, limit = 100, seesTenant = () => true } = query;
  const wanted = (record: AuditRecord) =>
    (sessionKey === undefined || record['sessionKey'] === sessionKey) &&
    (callId === undefined || record['callId'] === callId) &&
    (type === undefined || record.type === type) &&
    (tool === undefined || isOf(record['tool'], tool)) &&
    seesTenant(record['tenantId'] as string | undefined);
  return trail.newest(wanted, { limit, maxLooked: MAX_LOOKED, ...(sinceMs === undefined ? {} : { sinceMs }) });
}

function isOf(recorded: unknown, tool: string): boolean {
  return recorded === tool || (typeof recorded === 'string' && recorded.endsWith(`.${tool}`));
}
