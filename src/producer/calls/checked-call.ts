/** A call on its way into the queue, after each of its checks. */
import type { Identity } from '../../shared/calls/call-id.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Claim } from '../../shared/store/calls/claim.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { Admission } from './budgets.ts';

export type LoopGuard = Settings['reliability']['loopGuard'];

/** A call that its session may make. */
export interface Permitted {
  readonly envelope: ToolCallEnvelope;
  readonly published: ResolvedTool;
  readonly circuit: string;
  /** The tool's own one, which most calls go through. */
  readonly ownCircuit: string;
  readonly modes: ReliabilityModes;
  readonly session: SessionRecord;
  readonly verdict: PolicyResult;
  readonly channel: string | undefined;
}

/** A call whose every part has been checked. */
export interface Admitted extends Pick<Permitted, 'envelope' | 'published' | 'circuit' | 'modes' | 'channel'> {
  readonly paramsDigest: string;
  readonly identity: Identity;
  readonly admission: Admission;
  /** When the session's agent is to be warned, or stopped. */
  readonly loop?: { readonly loopId: string; readonly guard: LoopGuard };
  /** In shadow mode: the slot in which the call would have met its duplicates. */
  readonly shadow?: Claim['shadow'];
  /** The session's actor, where the call names another one. */
  readonly sessionActorId: string | undefined;
  /** A person has to decide: what policy says, and for which session. */
  readonly asks: Pick<Permitted, 'verdict' | 'session'> | undefined;
}
