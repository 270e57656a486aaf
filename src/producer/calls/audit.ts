/** The audit records of the calls that a producer submits, and how the trail is read. */
import { z } from 'zod';
import type { AuditEvent, RecordAudit, SubmittedCall } from '../../shared/audit/audit-event.ts';
import { finishCall } from '../../shared/audit/audit-record.ts';
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
  readonly record: RecordAudit;
  /** Records accepted calls: their records travel with the claim. */
  readonly writer: Pick<AuditWriter, 'asked' | 'add'>;
  /** Receives every call, beside the trail. */
  readonly listener?: RecordAudit;
  publishedTool(namespace: string, name: string): ResolvedTool | undefined;
  readonly schedule?: Schedule;
}

/** Answers that are recorded here. A refusal has its own record, with the reason. */
const ANSWERS = { claimed: 'claimed', inflight: 'merged', ended: 'replayed' } as const;

/** Refusals whose reason does not depend on the caller or the call. */
const SAME_FOR_ALL: ReadonlySet<string> = new Set(['CIRCUIT_OPEN', 'OVERLOADED', 'BACKEND_UNAVAILABLE']);
const COUNTED_MS = 1_000;

interface Counted {
  times: number;
  last: Refusal;
}

/**
 * Records the calls that a producer submits. An agent that keeps calling while a circuit is open is refused thousands of times a second,
 * and must not push other records out. The first refusal is recorded at once. Further refusals of the same session and tool within a second
 * share one record, the last one's; `times` is their count.
 */
export class CallAudit {
  readonly #deps: CallAuditDeps;
  readonly #counted = new Map<string, Counted>();
  /** The kind of the last refusal: it often comes again. */
  #latest: Counted | undefined;
  #stop = () => {};

  constructor(deps: CallAuditDeps) {
    this.#deps = deps;
  }

  /** The audit record of a call that is being submitted. */
  asked(
    envelope: ToolCallEnvelope,
    tool: ResolvedTool,
    known: Required<Pick<SubmittedCall, 'submittedBy' | 'sessionActorId'>> & { readonly paramsDigest: string },
  ): AskedRecord {
    return new AskedRecord(this.#deps, { ...askedCall(envelope, tool), ...known });
  }

  observe(event: DispatchEvent): void {
    if (event.type === 'refused' && !this.#isCounted(event)) this.#record(event);
  }

  #record({ envelope, code, message }: Refusal, times?: number): void {
    if (envelope === undefined) return;
    const asked = askedCall(envelope, this.#deps.publishedTool(envelope.toolNamespace, envelope.toolName));
    const refused = { ...asked, answer: 'refused', code, reason: message } as const;
    void this.#deps.record(times === undefined ? refused : { ...refused, times });
  }

  #isCounted(refusal: Refusal): boolean {
    const { envelope, code } = refusal;
    if (envelope === undefined || !SAME_FOR_ALL.has(code)) return false;
    const latest = this.#latest !== undefined && isSame(this.#latest.last, refusal) ? this.#latest : undefined;
    const counted = latest ?? this.#counted.get(kindOf(envelope, code));
    if (counted === undefined) {
      const { schedule = backgroundSchedule } = this.#deps;
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

  /** Records the refusals that were counted until now. */
  flush(): void {
    this.#stop();
    for (const { times, last } of this.#counted.values()) if (times > 0) this.#record(last, times);
    this.#counted.clear();
    this.#latest = undefined;
  }
}

function kindOf({ toolNamespace, toolName, target }: ToolCallEnvelope, code: string): string {
  return `${code} ${toolNamespace}.${toolName} ${target.sessionKey}`;
}

/** Whether two refusals are of one kind; comparing needs no key. */
function isSame(one: Refusal, other: Refusal): boolean {
  const [a, b] = [one.envelope, other.envelope];
  return (
    one.code === other.code &&
    a?.toolName === b?.toolName &&
    a?.toolNamespace === b?.toolNamespace &&
    a?.target.sessionKey === b?.target.sessionKey
  );
}

export class AskedRecord {
  readonly #deps: CallAuditDeps;
  readonly #call: SubmittedCall;
  readonly #text: string | undefined;

  constructor(deps: CallAuditDeps, call: SubmittedCall) {
    this.#deps = deps;
    this.#call = call;
    this.#text = deps.writer.asked(call);
  }

  /** The text that the claim of a new call writes. Undefined when the trail is off. */
  claimed(callId: string): string | undefined {
    return this.#text === undefined ? undefined : finishCall(this.#text, callId, 'claimed');
  }

  /** Records the claim's answer. A refusal that follows has its own record. */
  answered({ kind, callId }: ClaimAnswer, mode: DedupeMode): void {
    if (!isTold(kind) || (kind === 'inflight' && mode !== 'enforced')) return;
    const answer = ANSWERS[kind];
    void this.#deps.listener?.({ ...this.#call, callId, answer });
    if (kind !== 'claimed' && this.#text !== undefined) this.#deps.writer.add(finishCall(this.#text, callId, answer));
  }
}

function isTold(kind: ClaimAnswer['kind']): kind is keyof typeof ANSWERS {
  return kind in ANSWERS;
}

function askedCall(envelope: ToolCallEnvelope, tool: ResolvedTool | undefined): SubmittedCall {
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
    ...(tool === undefined
      ? {}
      : {
          toolVersion: tool.version,
          tier: tool.tier,
          estimatedCostUnits: costUnitsOf(tool, payload.params),
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

/** A search in the trail. A tool is given by its name, with or without its namespace. */
export interface AuditQuery {
  readonly sessionKey?: string | undefined;
  readonly tool?: string | undefined;
  readonly callId?: string | undefined;
  readonly type?: string | undefined;
  readonly sinceMs?: number | undefined;
  readonly limit?: number | undefined;
  /** Whether the reader may see a tenant's records; the argument is undefined for records without a tenant. */
  readonly seesTenant?: (tenantId: string | undefined) => boolean;
}

/** The newest first, as far as Redis keeps them. */
export function findRecords(trail: AuditTrail, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { sessionKey, tool, callId, type, sinceMs, limit = 100, seesTenant = () => true } = query;
  const wanted = (record: AuditRecord) =>
    (sessionKey === undefined || record['sessionKey'] === sessionKey) &&
    (callId === undefined || isAbout(record, callId)) &&
    (type === undefined || record.type === type) &&
    (tool === undefined || isOf(record['tool'], tool)) &&
    seesTenant(record['tenantId'] as string | undefined);
  return trail.newest(wanted, { limit, maxLooked: MAX_LOOKED, ...(sinceMs === undefined ? {} : { sinceMs }) });
}

/** An action on many calls has one record for a hundred of them. */
function isAbout(record: AuditRecord, callId: string): boolean {
  const { callIds } = record as { readonly callIds?: unknown };
  return record['callId'] === callId || (Array.isArray(callIds) && callIds.includes(callId));
}

function isOf(recorded: unknown, tool: string): boolean {
  return recorded === tool || (typeof recorded === 'string' && recorded.endsWith(`.${tool}`));
}

type Override = Extract<AuditEvent, { type: 'override' }>;
type About = Omit<Override, 'type' | 'what' | 'action' | 'by'>;

export interface OperatorAction extends About {
  readonly what: Override['what'];
  /** Such as `force_open` or `retry`. */
  readonly action: string;
  /** Default: the operator that this producer was opened for. */
  readonly by?: string | undefined;
}

/** Writes an operator's action into the audit trail. */
export type RecordOverride = (action: OperatorAction) => Promise<void>;

export function overrideRecorder(audit: RecordAudit, operator: string): RecordOverride {
  return async ({ by = operator, ...action }) => {
    await audit({ type: 'override', by, ...action });
  };
}
