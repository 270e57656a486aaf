/** The types of a call that is being submitted: each step returns a narrower one. */
import type { Identity } from '../../shared/calls/call-id.ts';
import type { StartTime } from '../../shared/calls/start-time.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { Claim } from '../../shared/store/calls/claim/claim.ts';
import type { CallToApprove } from '../approvals/approval-requests.ts';
import type { CallCircuit } from '../circuits/circuit-check.ts';
import type { CallAdmission } from './budgets.ts';

export type LoopGuard = Settings['reliability']['loopGuard'];

/** A call that its session may make, with parameters that fit the tool's schema. */
export interface AuthorizedCall extends Pick<CallToApprove, 'envelope' | 'tool' | 'session' | 'policyResult'> {
  /** The kind of channel through which the session reaches a person, where policy has rules for channels. */
  readonly channel: string | undefined;
}

export interface PassedCall extends AuthorizedCall {
  readonly circuit: CallCircuit;
  /** Absent for a call that starts at once. */
  readonly start?: StartTime | undefined;
}

/** A call with its identity and its charges to budgets: all that a claim needs. */
export interface IdentifiedCall extends Pick<PassedCall, 'envelope' | 'tool' | 'circuit' | 'channel' | 'start'> {
  readonly paramsDigest: string;
  /** The end of each call of its session is posted there. */
  readonly callbackUrl?: string;
  readonly identity: Identity;
  readonly admission: CallAdmission;
  /** The loop guard, which warns or refuses an agent that repeats its calls. */
  readonly loop?: { readonly loopId: string; readonly guard: LoopGuard };
  /** In shadow mode: the deduplication slot that the call would have used. */
  readonly shadow?: Claim['shadow'];
  readonly sessionActorId: string | undefined;
  /** Policy's decision to ask a person, and the session; undefined when no person has to decide. */
  readonly approvalNeed: Pick<PassedCall, 'policyResult' | 'session'> | undefined;
}
