/** The audit records of the calls that a producer submits, and searches in the audit trail. */
import { z } from 'zod';
import type { AuditEvent, RecordAudit, SubmittedCall } from '../../shared/audit/audit-event.ts';
import { finishCall } from '../../shared/audit/audit-record.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import { type DedupeMode, type ToolCallEnvelope, turnOf } from '../../shared/calls/envelope.ts';
import { costUnitsOf } from '../../shared/limits/budget.ts';
import { checkMembers } from '../../shared/schema/known-members.ts';
import type { AuditEntry, AuditRecord, AuditTrail } from '../../shared/store/audit/audit-trail.ts';
import type { AuditWriter } from '../../shared/store/audit/audit-writer.ts';
import type { ClaimAnswer } from '../../shared/store/calls/claim/claim.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { backgroundSchedule, isoMoment, type Schedule } from '../../shared/util/time.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { DispatchEvent } from './submission.ts';

const MAX_SCANNED = 100_000;

type Refusal = Extract<DispatchEvent, { type: 'refused' }>;

interface CallAuditDeps {
  readonly record: RecordAudit;
  /** Builds the records of accepted calls; the claim writes them. */
  readonly writer: Pick<AuditWriter, 'add' | 'formatSubmitted'>;
  /** Receives every call, in addition to the trail. */
  readonly listener?: RecordAudit;
  publishedTool(namespace: string, name: string): ResolvedTool | undefined;
  readonly schedule?: Schedule;
}

/** The claim's answers that are recorded here. A refusal has its own record, with the reason. */
const ANSWERS = { claimed: 'claimed', inflight: 'merged', ended: 'replayed' } as const;

/** Refusals whose reason does not depend on the caller or the call. */
const SAME_FOR_ALL: ReadonlySet<string> = new Set(['CIRCUIT_OPEN', 'OVERLOADED', 'BACKEND_UNAVAILABLE']);
const COUNT_WINDOW_MS = 1_000;

interface RefusalCount {
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
  readonly #counted = new Map<string, RefusalCount>();
  /** The count of the last refusal: the same kind often follows. */
  #latest: RefusalCount | undefined;
  #stop = () => {};

  constructor(deps: CallAuditDeps) {
    this.#deps = deps;
  }

  /** The audit record of a call that is being submitted. */
  newRecord(
    envelope: ToolCallEnvelope,
    tool: ResolvedTool,
    submitter: Required<Pick<SubmittedCall, 'submittedBy' | 'sessionActorId'>> & { readonly paramsDigest: string },
  ): SubmittedRecord {
    return new SubmittedRecord(this.#deps, { ...submittedCall(envelope, tool), ...submitter });
  }

  observe(event: DispatchEvent): void {
    if (event.type === 'refused' && !this.#isCounted(event)) this.#record(event);
  }

  #record({ envelope, code, message }: Refusal, times?: number): void {
    if (envelope === undefined) return;
    const call = submittedCall(envelope, this.#deps.publishedTool(envelope.toolNamespace, envelope.toolName));
    const refused = { ...call, answer: 'refused', code, reason: message } as const;
    void this.#deps.record(times === undefined ? refused : { ...refused, times });
  }

  #isCounted(refusal: Refusal): boolean {
    const { envelope, code } = refusal;
    if (envelope === undefined || !SAME_FOR_ALL.has(code)) return false;
    const latest = this.#latest !== undefined && isSame(this.#latest.last, refusal) ? this.#latest : undefined;
    const count = latest ?? this.#counted.get(kindOf(envelope, code));
    if (count === undefined) {
      const { schedule = backgroundSchedule } = this.#deps;
      if (this.#counted.size === 0) this.#stop = schedule(() => this.flush(), COUNT_WINDOW_MS);
      this.#latest = { times: 0, last: refusal };
      this.#counted.set(kindOf(envelope, code), this.#latest);
      return false;
    }
    this.#latest = count;
    count.times += 1;
    count.last = refusal;
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

export class SubmittedRecord {
  readonly #deps: CallAuditDeps;
  readonly #call: SubmittedCall;
  readonly #text: string | undefined;

  constructor(deps: CallAuditDeps, call: SubmittedCall) {
    this.#deps = deps;
    this.#call = call;
    this.#text = deps.writer.formatSubmitted(call);
  }

  /** The record's text, which the claim of a new call writes. Undefined when the trail is off. */
  claimText(callId: string): string | undefined {
    return this.#text === undefined ? undefined : finishCall(this.#text, callId, 'claimed');
  }

  /** Records the claim's answer. A refusal that follows has its own record. */
  recordAnswer({ kind, callId }: Pick<ClaimAnswer, 'kind' | 'callId'>, mode: DedupeMode): void {
    if (!isRecorded(kind) || (kind === 'inflight' && mode !== 'enforced')) return;
    const answer = ANSWERS[kind];
    void this.#deps.listener?.({ ...this.#call, callId, answer });
    if (kind !== 'claimed' && this.#text !== undefined) this.#deps.writer.add(finishCall(this.#text, callId, answer));
  }
}

function isRecorded(kind: ClaimAnswer['kind']): kind is keyof typeof ANSWERS {
  return kind in ANSWERS;
}

function submittedCall(envelope: ToolCallEnvelope, tool: ResolvedTool | undefined): SubmittedCall {
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
    compensates: compensatedCallId(envelope),
    idempotencyKey: payload.idempotencyKey,
    params: payload.params,
    ...(tool !== undefined && {
      toolVersion: tool.version,
      tier: tool.tier,
      estimatedCostUnits: costUnitsOf(tool, payload.params),
    }),
  };
}

/** Milliseconds since the epoch, or an ISO 8601 time. */
export const sinceSchema = z.string().transform((text, context) => {
  const atMs = /^\d{1,16}$/.test(text) ? Number(text) : isoMoment(text);
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

/** The matching records that are still in Redis, the newest first. */
export async function findRecords(trail: AuditTrail, query: AuditQuery): Promise<readonly AuditEntry[]> {
  checkMembers('query', query, ['sessionKey', 'tool', 'callId', 'type', 'sinceMs', 'limit', 'seesTenant']);
  const { sessionKey, tool, callId, type, sinceMs, limit = 100, seesTenant = () => true } = query;
  const matches = (record: AuditRecord) =>
    (sessionKey === undefined || record['sessionKey'] === sessionKey) &&
    (callId === undefined || concerns(record, callId)) &&
    (type === undefined || record.type === type) &&
    (tool === undefined || isTool(record['tool'], tool)) &&
    seesTenant(record['tenantId'] as string | undefined);
  return trail.newest(matches, { limit, maxRead: MAX_SCANNED, ...(sinceMs !== undefined && { sinceMs }) });
}

/** A bulk action has one record per hundred calls. */
function concerns(record: AuditRecord, callId: string): boolean {
  const { callIds } = record as { readonly callIds?: unknown };
  return record['callId'] === callId || (Array.isArray(callIds) && callIds.includes(callId));
}

function isTool(recorded: unknown, tool: string): boolean {
  return recorded === tool || (typeof recorded === 'string' && recorded.endsWith(`.${tool}`));
}

type Override = Extract<AuditEvent, { type: 'override' }>;
type ActionSubject = Omit<Override, 'type' | 'what' | 'action' | 'by'>;

export interface OperatorAction extends ActionSubject {
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
