/** Composes what batches and plans need. */
import type { Settings } from '../../shared/config/config.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { spent } from '../../shared/store/limits/budgets.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { CallSubmitter } from '../calls/submit-call.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import { BATCH_RULES, BatchService } from './batches.ts';
import type { GroupCalls } from './group-driver.ts';
import { GroupRunner } from './group-runner.ts';
import { PlanApprovals } from './plan-approvals.ts';
import { askReasonOf, lackingIn, type PlanRulesDeps, planRules } from './plan-rules.ts';
import { PlanService } from './plans.ts';

export interface ComposeGroupsDeps {
  readonly backend: Pick<Backend, 'groups' | 'ledger'>;
  readonly settings: Pick<Settings, 'ttl'>;
  readonly clock: Clock;
  readonly catalogue: ToolCatalogue;
  readonly approvals: ApprovalService;
  /** Redis' clock. */
  now(): Promise<number>;
  onError(error: Error): void;
}

export function composeGroups(
  { backend, settings, clock, catalogue, approvals: people, now, onError }: ComposeGroupsDeps,
  submitter: Pick<CallSubmitter, 'identify' | 'submit' | 'permit'>,
  service: Pick<GroupCalls, 'read' | 'result' | 'cancel'> &
    Pick<PlanRulesDeps, 'output'> & { readAsItRan: PlanRulesDeps['callOf'] },
) {
  const records = backend.groups;
  const { ledger } = backend;
  const approvals = new PlanApprovals({ approvals: people, ledger, clock, result: (callId) => service.result(callId) });
  const calls: GroupCalls = {
    check: (envelope) => submitter.identify(envelope),
    submit: ({ envelope, planned, approval }, options) =>
      approval === undefined
        ? submitter.submit(envelope, planned === undefined ? options : { ...options, planned })
        : approvals.submit(approval, envelope.target),
    read: (callId) => service.read(callId),
    result: (callId) => service.result(callId),
    cancel: (callId, by) => service.cancel(callId, by),
  };
  const keptMs = settings.ttl.doneMs;
  const plan = planRules({
    clock,
    callOf: (callId) => service.readAsItRan(callId),
    output: (callId) => service.output(callId),
  });
  const rules = { batch: BATCH_RULES, plan };
  const runner = new GroupRunner({ records, rules, calls, keptMs, now, onError });
  const glance = (callId: string) => ledger.glance(callId);
  const plans = new PlanService({
    records,
    runner,
    catalogue,
    now,
    approvals,
    askReason: askReasonOf(
      (envelope, session) => submitter.permit(envelope, session),
      (...asked) => people.isGranted(...asked),
      clock,
    ),
    lacking: lackingIn((account) => spent(ledger.access, account)),
  });
  return { groups: runner, batches: new BatchService({ records, runner, calls, glance, now }), plans };
}
