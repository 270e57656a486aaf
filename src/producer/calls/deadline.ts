/**
 * The time limit of a call, as its caller keeps it: whoever waits hears of the end in time, whatever became of the call.
 */
import { lifeOfFailure } from '../../shared/calls/call-state.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { doubtful, envelopeOf, type Outcome, resultError } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { FailureStatus } from '../../shared/errors/result-status.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import { backgroundSchedule } from '../../shared/util/time.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { Admitted } from './checked-call.ts';
import type { Submission } from './submission.ts';
import type { SubmitDeps } from './submit-deps.ts';

/** After the deadline of a call that no worker ended, its waiter ends the waiting. */
const DEADLINE_GRACE_MS = 250;
/** A running call's worker writes its outcome at the deadline. One that cannot write keeps its caller no longer than this. */
const OUTCOME_GRACE_MS = 1_500;
/** After the deadline of a call that Redis has not answered for, its caller hears of it. */
export const SILENCE_GRACE_MS = 1_000;

/**
 * A call that is still queued at its deadline never starts; a running one is ended by its worker. Who joined another's call
 * (`own` is false) only stops waiting: the call has its own deadline.
 */
export function withDeadline(
  parts: Pick<SubmitDeps, 'ledger' | 'approvals' | 'settings' | 'inboxId' | 'clock' | 'schedule'>,
  { envelope, published }: Pick<Admitted, 'envelope' | 'published'>,
  callId: string,
  settled: Promise<ToolResultEnvelope>,
  stop: () => void,
  own: boolean,
): Promise<ToolResultEnvelope> {
  const { requestId, toolName, control } = envelope;
  const { deadlineAtMs } = control;
  if (deadlineAtMs === undefined) return settled;
  const { promise, resolve, reject } = Promise.withResolvers<ToolResultEnvelope>();
  const late = deadlineOutcome(toolName);
  const giveUpNow = () => {
    stop();
    resolve(envelopeOf(goingOn(late, published), { requestId, toolName, callId }));
  };
  const expire = async () => {
    if (!own) return giveUpNow();
    stopGivingUp = schedule(giveUpNow, OUTCOME_GRACE_MS);
    const answer = await parts.ledger.cancel(callId, {
      state: 'failed',
      beforeStart: late,
      betweenAttempts: late,
      ...lifeOfFailure(parts.settings.ttl, toolPolicy(parts.settings, published).ttl),
      ...inDoubt(parts.settings, published),
      inboxId: parts.inboxId,
    });
    if (answer.kind === 'cancelled') await parts.approvals?.cancelled(callId);
    // Whatever is left of the attempt settles by itself; its outcome can be read by ID.
  };
  // Whoever waits is kept alive by the connections; a deadline alone keeps no process.
  const schedule = parts.schedule ?? backgroundSchedule;
  let stopGivingUp = () => {};
  const remainingMs = Math.max(0, deadlineAtMs - parts.clock.now());
  const stopTimer = schedule(() => void expire().catch(reject), remainingMs + DEADLINE_GRACE_MS);
  settled.then(resolve, reject).finally(() => {
    stopTimer();
    stopGivingUp();
  });
  return promise;
}

/** Who sets a time limit hears within it that Redis does not answer; whether it has taken the call is then not known. */
export async function heardWithin(submission: Promise<Submission>, limitMs: number): Promise<Submission> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const stopTimer = backgroundSchedule(() => {
    submission.then(
      (answered) => answered.kind === 'pending' && answered.stop(),
      () => {},
    );
    reject(
      new PawlError(
        'BACKEND_UNAVAILABLE',
        'Redis did not answer within the call’s time limit; ask again with the same key.',
      ),
    );
  }, limitMs);
  try {
    return await Promise.race([submission, late]);
  } finally {
    stopTimer();
  }
}

export function deadlineOutcome(toolName: string): Outcome {
  return lateOutcome(toolName, 'timeout', failureOf('DEADLINE_EXCEEDED'));
}

/** Nobody waits any longer, but the call may go on. */
function goingOn(late: Outcome, published: ResolvedTool): Outcome {
  const isHarmless = published.effects !== 'once' && published.effects !== 'probe';
  return isHarmless || late.error === undefined ? late : { ...late, error: doubtful(late.error) };
}

/** What no attempt may repeat unasked has no known end, when one of them may have had its effect. */
function inDoubt(settings: Settings, published: ResolvedTool): Pick<Parameters<CallLedger['cancel']>[1], 'inDoubt'> {
  if (published.effects !== 'once' && published.effects !== 'probe') return {};
  const outcome = lateOutcome(published.name, 'error', failureOf('OUTCOME_UNKNOWN'));
  return { inDoubt: { outcome, ttlMs: toolPolicy(settings, published).ttl?.doneMs ?? settings.ttl.doneMs } };
}

function lateOutcome(toolName: string, status: FailureStatus, failure: Failure): Outcome {
  return { status, toolName, durationMs: 0, attempts: 0, error: resultError(failure, status) };
}
