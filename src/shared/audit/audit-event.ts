/**
 * What must be found again later (I4): who asked for what, who decided, what ran and how it ended, what operators overrode, and what
 * was refused because somebody tried to get around that. One narrow seam: every part of Pawl tells its events to one `RecordAudit`;
 * `audit-record.ts` makes them records without secrets, `store/audit.ts` keeps those.
 */
import type { Tier } from '../tools/tool.ts';

/** Whose call it is, in every record about one. */
export interface AuditedCall {
  readonly callId: string;
  /** `namespace.name`. */
  readonly tool: string;
  readonly sessionKey: string;
  readonly tenantId?: string | undefined;
}

export type AuditEvent =
  /** A session asked for a call. What was refused before it had an identity has no call ID. */
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
      /** Of a refusal. */
      readonly code?: string;
      readonly reason?: string;
      /** So many refusals like this one, which followed another within a second. */
      readonly times?: number;
      /** The front door's caller. */
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
      /** `lost`: the attempt began on another worker and left no record of its own. */
      readonly status: 'success' | 'error' | 'aborted' | 'lost';
      readonly startedAtMs: number;
      readonly finishedAtMs: number;
      /** Finer than the two times. */
      readonly latencyMs: number;
      readonly estimatedCostUnits: number;
      readonly trustClass: string;
      /** The call that this one undoes. */
      readonly compensates?: string | undefined;
      readonly idempotencyKey: string;
      /** Of the call, and those that ran: what is secret in them may stand in the result, too. */
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
      readonly worker: string;
    })
  /** Somebody put their own word in place of the system's. */
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
        | 'shards';
      /** Such as `force_open` or `retry`. */
      readonly action: string;
      readonly by: string;
      readonly callId?: string | undefined;
      readonly tool?: string | undefined;
      readonly sessionKey?: string | undefined;
      readonly tenantId?: string | undefined;
      /** The circuits that were changed. */
      readonly circuits?: readonly string[];
      readonly reason?: string | undefined;
    }
  | {
      readonly type: 'approval-requested';
      readonly approvalId: string;
      readonly callId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly sessionActorId: string;
      readonly actorId: string;
      readonly digest: string;
      readonly rule: string;
      readonly tenantId?: string | undefined;
    }
  | {
      readonly type: 'approval-decided';
      readonly approvalId: string;
      readonly callId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly state: 'approved' | 'denied' | 'expired';
      readonly digest: string;
      readonly by?: string;
      readonly reason?: string;
      /** The approver has changed the parameters: to `params`, which are recorded as those of a call are. */
      readonly edited: boolean;
      readonly params?: Readonly<Record<string, unknown>> | undefined;
      readonly tenantId?: string | undefined;
    }
  /** The tool is about to run under an approval. */
  | {
      readonly type: 'approval-used';
      readonly approvalId: string;
      readonly callId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly by: string;
      readonly fence: number;
      readonly worker: string;
      readonly tenantId?: string | undefined;
    }
  /** A person has taken back that calls like one need no further decision (C24). */
  | {
      readonly type: 'approval-forgotten';
      readonly approvalId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly by: string;
      readonly tenantId?: string | undefined;
    }
  /** A person has answered what a tool asked, or nobody did in time (C19). */
  | {
      readonly type: 'question-ended';
      readonly questionId: string;
      readonly callId: string;
      readonly sessionKey: string;
      readonly state: 'answered' | 'dismissed' | 'expired';
      readonly question: string;
      readonly answer?: string;
      readonly by?: string;
      readonly tenantId?: string | undefined;
    }
  | RegistryChange
  /** Something that nobody with a key wrote, or that was used already: it had no effect. */
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
        | 'tool'
        | 'message'
        | 'question'
        | 'answer';
      readonly callId?: string;
      readonly sessionKey?: string;
      readonly reason: string;
    };

/** A call that is handed in, before it is known what becomes of it. */
export type AskedCall = Omit<Extract<AuditEvent, { type: 'call' }>, 'callId' | 'answer' | 'code' | 'reason' | 'times'>;

/** A tool was declared, changed, switched or removed (I7), or a worker came with another definition of the same version. */
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
  /** Of the registry; a worker's own tool has none. */
  readonly revision?: number;
  readonly definition?: string;
  readonly by: string;
}

export type AuditType = AuditEvent['type'];

/** By their names, so that none is forgotten. */
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
  refused: true,
};
export const AUDIT_TYPES: readonly string[] = Object.keys(TYPES);

/**
 * Never throws. What comes back is to be awaited where the record must be there before it goes on: for what must be written
 * (`mustBeWritten`), where it rejects with `AUDIT_UNAVAILABLE` when the record cannot be written, and for what people say or are asked
 * (`isWord`), where it never rejects.
 */
export type RecordAudit = (event: AuditEvent) => void | Promise<void>;

/** What must be written before it may go on: whoever cannot write that down must not run the tool. */
export function mustBeWritten(event: AuditEvent): boolean {
  return event.type === 'approval-used' || (event.type === 'attempt' && event.tier === 'elevated');
}

const WORDS: ReadonlySet<AuditType> = new Set([
  'approval-requested',
  'approval-decided',
  'approval-forgotten',
  'override',
  'registry-changed',
  'question-ended',
]);

/** What people say, and that their word is asked for: written before anybody hears of it. All else is written a moment later. */
export function isWord({ type }: AuditEvent): boolean {
  return WORDS.has(type);
}
