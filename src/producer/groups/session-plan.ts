/** `session.plan`: runs a graph of calls, and resolves with how each node ended. */
import type { NewPlan } from '../../shared/groups/plan.ts';
import { checkMembers } from '../../shared/schema/known-members.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { onAbort } from '../../shared/util/wait.ts';
import { checkSignal } from '../calls/call-envelope.ts';
import type { PlanView } from './plan-view.ts';
import type { AcceptedPlan, PlanService, SubmitPlan } from './plans.ts';

export interface PlanOptions {
  /** Aborting cancels the plan. */
  readonly signal?: AbortSignal;
}

/** The promise of the plan's end. */
export type RunningPlan = Promise<PlanView> & {
  readonly accepted: Promise<AcceptedPlan>;
  /** Begins no further call, and cancels those that have not ended. */
  cancel(): Promise<void>;
};

export function runPlan(
  plans: Pick<PlanService, 'create' | 'ended' | 'cancel'>,
  session: Pick<SubmitPlan, 'onApproval'> & { readonly record: SessionRecord },
  plan: NewPlan,
  options: PlanOptions,
): RunningPlan {
  // Untyped callers may pass null, which is refused below.
  const { signal } = options ?? {};
  const { record, onApproval } = session;
  const accept = async () => {
    checkMembers('options', options, ['signal']);
    checkSignal(signal);
    return plans.create({ session: record, plan, ...(onApproval !== undefined && { onApproval }) });
  };
  const accepted = accept();
  const cancel = async () => plans.cancel((await accepted).planId);
  const run = async () => {
    const { planId } = await accepted;
    const stopListening = onAbort(signal, () => void cancel().catch(() => {}));
    try {
      return await plans.ended(planId);
    } finally {
      stopListening();
    }
  };
  return Object.assign(run(), { accepted, cancel });
}
