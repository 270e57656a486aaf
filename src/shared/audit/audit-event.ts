/**
 * The events of the audit trail: requests, decisions, attempts and their ends, overrides by operators, and refused attempts to bypass the
 * rules. Every part of Pawl reports to one `RecordAudit`; `audit-record.ts` turns events into records without secrets, and `store/audit`
 * stores them.
 */
import type { Tier } from '../tools/tool.ts';

/** The call, and its tenant, in every record about a call. */
interface AuditedCall {
  readonly callId: string;
  /** `namespace.name`. */
  readonly tool: string;
  readonly sessionKey: string;
  readonly tenantId?: string | undefined;
}

export type AuditEvent =
  /** A session submitted a call. A call that was refused before it was identified has no ID. */
  | (Omit<AuditedCall, 'callId'> & {
      readonly type: 'call';
      readonly callId?: string;
      readonly answer: 'claimed' | 'merged' | 'replayed' | 'refused';
      readonly requestId: string;
      readonly actorId: string;
      /** The session's actor, where the call names another one. */
      readonly sessionActorId?: string | undefined;
      readonly agentId?: string | undefined;
      readonly turnId?: string | undefined;
      readonly correlationId?: string | undefined;
      /** The call that this one undoes. */
      readonly compensates?: string | undefined;
      readonly toolVersion?: string;
      readonly tier?: Tier;
      readonly idempotencyKey?: string | undefined;
      readonly paramsDigest?: string;
      readonly params?: unknown;
      readonly estimatedCostUnits?: number;
      readonly code?: string;
      readonly reason?: string;
      /** The number of refusals like this one that followed another within a second. */
      readonly times?: number;
      /** The caller of the front door that submitted it. */
      readonly submittedBy?: string | undefined;
    })
  /** The tool's code ran for a call, or may have. */
  | (AuditedCall & {
      readonly type: 'attempt';
      readonly actorId: string;
      readonly toolVersion: string;
      readonly tier: Tier;
      readonly attempt: number;
      readonly fence: number;
      readonly worker: string;
      /** `lost`: the attempt started on another worker and left no record of its own. */
      /** `pending`: the tool left the call to an outside system. */
      readonly status: 'success' | 'error' | 'aborted' | 'lost' | 'pending';
      readonly startedAtMs: number;
      readonly finishedAtMs: number;
      /** More precise than the difference of the two times. */
      readonly latencyMs: number;
      readonly estimatedCostUnits: number;
      readonly trustClass: string;
      /** The call that this one undoes. */
      readonly compensates?: string | undefined;
      readonly idempotencyKey: string;
      /** The parameters of the call, and those that ran. Their secrets are removed from the result, too. */
      readonly params: unknown;
      readonly result?: unknown;
      readonly code?: string;
      readonly reason?: string;
    })
  /** A call ended without another run of its tool. */
  | (AuditedCall & {
      readonly type: 'call-ended';
      readonly status: string;
      readonly code?: string | undefined;
      readonly reason?: string | undefined;
      readonly attempts: number;
      /** Absent where an outside system completed the call. */
      readonly worker?: string;
      /** The output from outside, where an outside system completed the call. */
      readonly result?: unknown;
    })
  /** An operator or another person overrode what the system would have done. */
  | {
      readonly type: 'override';
      readonly what:
        | 'circuit'
        | 'reliability'
        | 'flush'
        | 'resolution'
        | 'cancellation'
        | 'session-closed'
        | 'session-state'
        | 'worker'
        | 'shards'
        | 'dead-letters'
        | 'callback';
      /** Such as `force_open` or `retry`. */
      readonly action: string;
      readonly by: string;
      readonly callId?: string | undefined;
      readonly tool?: string | undefined;
      readonly sessionKey?: string | undefined;
      readonly tenantId?: string | undefined;
      readonly circuits?: readonly string[];
      readonly reason?: string | undefined;
      /** An action on many calls: how they were chosen, how many there were, and, in records of their own, which. */
      readonly filter?: object | undefined;
      readonly counts?: Readonly<Record<string, number>>;
      readonly callIds?: readonly string[];
      readonly redriveId?: string;
    }
  | (AuditedCall & {
      readonly type: 'approval-requested';
      readonly approvalId: string;
      readonly sessionActorId: string;
      readonly actorId: string;
      readonly digest: string;
      readonly rule: string;
    })
  | (AuditedCall & {
      readonly type: 'approval-decided';
      readonly approvalId: string;
      readonly state: 'approved' | 'denied' | 'expired';
      readonly digest: string;
      readonly by?: string;
      readonly reason?: string;
      /** Whether the approver changed the parameters, to `params`. They are recorded like those of a call. */
      readonly edited: boolean;
      readonly params?: Readonly<Record<string, unknown>> | undefined;
    })
  /** The tool is about to run under an approval. */
  | (AuditedCall & {
      readonly type: 'approval-used';
      readonly approvalId: string;
      readonly by: string;
      readonly fence: number;
      readonly worker: string;
    })
  /** A person revoked a standing approval. */
  | (Omit<AuditedCall, 'callId'> & {
      readonly type: 'approval-forgotten';
      readonly approvalId: string;
      readonly by: string;
    })
  /** A person answered what a tool asked, or no answer came in time. */
  | (Omit<AuditedCall, 'tool'> & {
      readonly type: 'question-ended';
      readonly questionId: string;
      readonly state: 'answered' | 'dismissed' | 'expired';
      readonly question: string;
      readonly answer?: string;
      readonly by?: string;
    })
  | RegistryChange
  /** A schedule was written, paused, resumed or removed, or let run by hand; or it paused itself. */
  | {
      readonly type: 'schedule-changed';
      readonly scheduleId: string;
      readonly action: 'created' | 'replaced' | 'paused' | 'resumed' | 'run' | 'removed';
      /** `namespace.name`. */
      readonly tool: string;
      readonly sessionKey: string;
      readonly tenantId?: string | undefined;
      readonly by: string;
      readonly reason?: string | undefined;
      /** The call of `run`. */
      readonly callId?: string | undefined;
    }
  /** A batch or a plan began, was cancelled, or is over. */
  | {
      readonly type: 'group-changed';
      readonly kind: 'batch' | 'plan';
      readonly groupId: string;
      readonly action: 'begun' | 'cancelled' | 'ended';
      /** The session of a plan. The calls of a batch may have several. */
      readonly sessionKey?: string | undefined;
      readonly tenantId?: string | undefined;
      readonly by?: string | undefined;
      /** How many calls, or nodes, it has. */
      readonly size?: number;
      /** The approval that a plan waits for. */
      readonly approvalId?: string | undefined;
      /** How it ended, and the node whose failure ended it. */
      readonly state?: string;
      readonly because?: string | undefined;
    }
  /** A record or request was refused, because it was not signed or was used before. */
  | {
      readonly type: 'refused';
      readonly what:
        | 'request'
        | 'outcome'
        | 'approval'
        | 'decision'
        | 'session'
        | 'grant'
        | 'replay'
        | 'job'
        | 'spec'
        | 'schedule'
        | 'group'
        | 'tool'
        | 'message'
        | 'question'
        | 'answer';
      readonly callId?: string;
      readonly sessionKey?: string;
      readonly reason: string;
    };

/** A call that was submitted, before its answer is known. */
export type SubmittedCall = Omit<
  Extract<AuditEvent, { type: 'call' }>,
  'callId' | 'answer' | 'code' | 'reason' | 'times'
>;

/** A tool was declared, changed, switched or removed, or a worker came with another definition of the same version. */
export interface RegistryChange {
  readonly type: 'registry-changed';
  /** `namespace.name`. */
  readonly tool: string;
  readonly kind: string;
  readonly action:
    | 'declared'
    | 'changed'
    | 'enabled'
    | 'disabled'
    | 'removed'
    | 'rolled-back'
    | 'redefined'
    | 'served'
    | 'left';
  /** The revision of the registry; a worker's own tool has none. */
  readonly revision?: number;
  readonly definition?: string;
  readonly by: string;
}

export type AuditType = AuditEvent['type'];

/** The types are keys of a record, so that the compiler reports a missing one. */
const TYPES: Readonly<Record<AuditType, true>> = {
  call: true,
  attempt: true,
  'call-ended': true,
  override: true,
  'approval-requested': true,
  'approval-decided': true,
  'approval-used': true,
  'approval-forgotten': true,
  'question-ended': true,
  'registry-changed': true,
  'schedule-changed': true,
  'group-changed': true,
  refused: true,
};
export const AUDIT_TYPES: readonly string[] = Object.keys(TYPES);

/**
 * Records an event and never throws. Await the result where the record must exist before the next step. It rejects with `AUDIT_UNAVAILABLE`
 * for an event that must be written (`mustBeWritten`) and cannot be. It never rejects for the other events that are awaited
 * (`isHumanAction`).
 */
export type RecordAudit = (event: AuditEvent) => void | Promise<void>;

/** Whether the event must be written before its effect: a worker that cannot record it must not run the tool. */
export function mustBeWritten(event: AuditEvent): boolean {
  return event.type === 'approval-used' || (event.type === 'attempt' && event.tier === 'elevated');
}

const HUMAN_ACTIONS: ReadonlySet<AuditType> = new Set([
  'approval-requested',
  'approval-decided',
  'approval-forgotten',
  'override',
  'registry-changed',
  'schedule-changed',
  'question-ended',
]);

/**
 * Whether the event is an action of a person, or a request for one. Its record is written before the action is visible to others; all other
 * records follow a moment later.
 */
export function isHumanAction({ type }: AuditEvent): boolean {
  return HUMAN_ACTIONS.has(type);
}
