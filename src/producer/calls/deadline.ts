/** Enforces a call's time limit for its caller: the caller gets an answer in time, in any case. */
import { failedLifetime } from '../../shared/calls/call-state.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { envelopeOf, markInDoubt, type Outcome, outcomeWithoutRun } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { CancelAnswer } from '../../shared/store/calls/cancel-call.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import { backgroundSchedule, type Clock, type Schedule } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { Submission } from './submission.ts';

/** The caller waits this long beyond the deadline for a worker to end the call. */
const DEADLINE_GRACE_MS = 250;
/** A running call's worker writes its outcome at the deadline. The caller waits at most this long for a worker that cannot write. */
const OUTCOME_GRACE_MS = 1_500;
/** The caller gets an error this long after the deadline, if Redis has not answered its call. */
const SILENCE_GRACE_MS = 1_000;

export interface DeadlineDeps {
  readonly ledger: Pick<CallLedger, 'cancel'>;
  readonly settings: Settings;
  readonly inboxId: string;
  readonly approvals?: Pick<ApprovalService, 'cancelled'>;
  readonly clock: Clock;
  /** Default: the system's timers. */
  readonly schedule?: Schedule;
}

interface WaitingCall {
  readonly envelope: ToolCallEnvelope;
  readonly tool: ResolvedTool;
  readonly callId: string;
  readonly settled: Promise<ToolResultEnvelope>;
  stopWaiting(): void;
  /** False for a caller that joined another's call, which has its own deadline. */
  readonly isOwn: boolean;
}

/**
 * Ends the wait at the call's deadline. A call that is still queued then never starts; its worker ends a running one. A caller that
 * joined another's call only stops waiting.
 */
export function withDeadline(deps: DeadlineDeps, call: WaitingCall): Promise<ToolResultEnvelope> {
  const { envelope, callId, settled } = call;
  const { requestId, toolName, control } = envelope;
  const { deadlineAtMs } = control;
  if (deadlineAtMs === undefined) return settled;
  const { promise, resolve, reject } = Promise.withResolvers<ToolResultEnvelope>();
  const giveUp = () => {
    call.stopWaiting();
    resolve(envelopeOf(unansweredOutcome(call), { requestId, toolName, callId }));
  };
  // The connections keep a waiting process alive; a deadline alone does not.
  const schedule = deps.schedule ?? backgroundSchedule;
  let stopGivingUp = () => {};
  const expire = async () => {
    if (!call.isOwn) return giveUp();
    stopGivingUp = schedule(giveUp, OUTCOME_GRACE_MS);
    // A pending call has an expiry instead of its deadline.
    if ((await cancelLate(deps, call)) === 'pending') stopGivingUp();
  };
  const remainingMs = Math.max(0, deadlineAtMs - deps.clock.now());
  const stopTimer = schedule(() => void expire().catch(reject), remainingMs + DEADLINE_GRACE_MS);
  settled.then(resolve, reject).finally(() => {
    stopTimer();
    stopGivingUp();
  });
  return promise;
}

/** Cancels a call at its deadline. An attempt that still runs settles by itself; its outcome can be read by the call's ID. */
async function cancelLate(deps: DeadlineDeps, { envelope, tool, callId }: WaitingCall): Promise<CancelAnswer['kind']> {
  const { ledger, settings, inboxId, approvals } = deps;
  const timeoutOutcome = deadlineOutcome(envelope);
  const answer = await ledger.cancel(callId, {
    state: 'failed',
    beforeStart: timeoutOutcome,
    betweenAttempts: timeoutOutcome,
    ...failedLifetime(ttlsOf(settings, tool)),
    ...inDoubt(settings, tool),
    inboxId,
  });
  if (answer.kind === 'cancelled') await approvals?.cancelled(callId);
  return answer.kind;
}

/**
 * Bounds a submission by its call's deadline: the caller gets an error in time if Redis does not answer. It is unknown then whether Redis
 * has claimed the call.
 */
export async function withinTimeLimit(
  { control: { deadlineAtMs } }: ToolCallEnvelope,
  clock: Pick<Clock, 'now'>,
  submission: Promise<Submission>,
): Promise<Submission> {
  if (deadlineAtMs === undefined) return submission;
  const { promise: timeout, reject } = Promise.withResolvers<never>();
  const stopTimer = backgroundSchedule(
    () => {
      submission.then(
        (submitted) => submitted.kind === 'pending' && submitted.stop(),
        () => {},
      );
      reject(
        new PawlError(
          'BACKEND_UNAVAILABLE',
          'Redis, or the store of a local run, did not answer within the call’s time limit; ask again with the same key.',
        ),
      );
    },
    Math.max(0, deadlineAtMs - clock.now()) + SILENCE_GRACE_MS,
  );
  try {
    return await Promise.race([submission, timeout]);
  } finally {
    stopTimer();
  }
}

function deadlineOutcome({ toolName }: ToolCallEnvelope): Outcome {
  return outcomeWithoutRun(toolName, failureOf('DEADLINE_EXCEEDED'), { status: 'timeout' });
}

/** The outcome for a caller that stopped waiting: the call may still run. */
function unansweredOutcome({ envelope, tool }: WaitingCall): Outcome {
  const outcome = deadlineOutcome(envelope);
  const { error } = outcome;
  return leavesDoubt(tool) && error !== undefined ? { ...outcome, error: markInDoubt(error) } : outcome;
}

/** If an attempt of a `once` or `probe` call may have had its effect, the outcome is unknown. */
function inDoubt(settings: Settings, tool: ResolvedTool): Pick<Parameters<CallLedger['cancel']>[1], 'inDoubt'> {
  if (!leavesDoubt(tool)) return {};
  const outcome = outcomeWithoutRun(tool.name, failureOf('OUTCOME_UNKNOWN'));
  return { inDoubt: { outcome, ttlMs: ttlsOf(settings, tool).doneMs } };
}

/** Whether an attempt of the tool may have had an effect that a second run would repeat. */
function leavesDoubt({ effects }: ResolvedTool): boolean {
  return effects === 'once' || effects === 'probe';
}
