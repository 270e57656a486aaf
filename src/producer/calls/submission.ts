/**
 * A call that was handed in, and what whoever does it may ask for.
 */
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { ProducerEvent } from '../../shared/telemetry/log-events.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { ProgressEvent } from './result-waiters.ts';

/** A call that was handed in. */
export type Submission<Output = unknown> =
  /** Refused or already known: the envelope is final. */
  | { readonly kind: 'answered'; readonly callId?: string; readonly result: ToolResultEnvelope<Output> }
  | PendingSubmission<Output>;

/** In the queue or running. `stop` ends the waiting, not the call. */
export interface PendingSubmission<Output = unknown> {
  readonly kind: 'pending';
  readonly callId: string;
  readonly requestId: string;
  readonly result: Promise<ToolResultEnvelope<Output>>;
  /** Another's call is waited for: no attempt runs for this one. */
  readonly merged?: boolean;
  stop(): void;
}

export interface SubmitOptions {
  readonly onProgress?: (event: ProgressEvent) => void;
  /** As it was opened: should Redis have lost the session, it is this one again, and not one that may do more. */
  readonly session?: SessionRecord;
  /** Who hands the call in, where the front door knows them: they cannot approve it. */
  readonly submittedBy?: string;
  /** Told when a person has to decide before the call can run. */
  readonly onApproval?: (request: ApprovalRequest) => void;
  /** Told as soon as the call has its ID. */
  readonly onAccepted?: (callId: string) => void;
}

/** What operators and metrics hear of (R27). */
export type DispatchEvent = ProducerEvent<ResolvedTool>;
