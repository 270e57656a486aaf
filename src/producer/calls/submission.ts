/** A submitted call, and the options of a submission. */
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { StartOptions, StartTime } from '../../shared/calls/start-time.ts';
import type { DriverStep, PlannedCall } from '../../shared/groups/group.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { ProducerEvent } from '../../shared/telemetry/call-events.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { AuthorizedCall, IdentifiedCall } from './checked-call.ts';
import type { ProgressEvent } from './result-waiters.ts';

export type Submission<Output = unknown> = AnsweredSubmission<Output> | PendingSubmission<Output>;

/** Refused or finished already: the envelope is final. */
export interface AnsweredSubmission<Output = unknown> {
  readonly kind: 'answered';
  readonly callId?: string;
  readonly result: ToolResultEnvelope<Output>;
}

/** In the queue or running. `stop` ends the waiting, not the call. */
export interface PendingSubmission<Output = unknown> {
  readonly kind: 'pending';
  readonly callId: string;
  readonly requestId: string;
  readonly result: Promise<ToolResultEnvelope<Output>>;
  /** The caller waits for another caller's call: no attempt runs for this one. */
  readonly merged?: boolean;
  stop(): void;
}

export interface SubmitOptions extends StartOptions {
  /** The start, if the front door has computed it already: the delay begins when the request arrives. */
  readonly start?: StartTime | undefined;
  readonly onProgress?: (event: ProgressEvent) => void;
  /** The session as it was opened. If Redis has lost it, this record is written again, so that it gets no further permissions. */
  readonly session?: SessionRecord;
  /** The submitter, if the front door knows it. A submitter cannot approve its own call. */
  readonly submittedBy?: string;
  /** The end of the call is posted there, instead of to the URL of its session. */
  readonly callbackUrl?: string;
  readonly planned?: PlannedCall;
  /** The step of a batch's or plan's driver that began the call. */
  readonly step?: DriverStep;
  /** The same call, identified before: it is not checked again. */
  readonly identified?: IdentifiedSubmission;
  /** Called when a person has to decide before the call can run. */
  readonly onApproval?: (request: ApprovalRequest) => void;
  /** Called as soon as the call has its ID. */
  readonly onAccepted?: (callId: string) => void;
}

export interface IdentifiedSubmission extends IdentifiedCall {
  readonly submitted: ToolCallEnvelope;
  readonly authorized: AuthorizedCall;
}

/** An event of a producer, for operators and metrics. */
export type DispatchEvent = ProducerEvent<ResolvedTool>;
