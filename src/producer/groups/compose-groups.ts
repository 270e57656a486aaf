/** Composes the services of batches and plans. */
import type { Settings } from '../../shared/config/config.ts';
import type { GroupKind } from '../../shared/groups/group.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { GroupRecord } from '../../shared/store/groups/groups.ts';
import { spent } from '../../shared/store/limits/budgets.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { CallSubmitter } from '../calls/submit-call.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import { BATCH_RULES, BatchService, batchState } from './batches.ts';
import { aboutGroup } from './group-access.ts';
import type { GroupCalls } from './group-driver.ts';
import { GroupRunner } from './group-runner.ts';
import { PlanApprovals } from './plan-approvals.ts';
import { askReasonOf, budgetChecker, type PlanRulesDeps, planRules } from './plan-rules.ts';
import { type Plan, planFrom } from './plan-state.ts';
import { PlanService } from './plans.ts';

interface ComposeGroupsDeps {
  readonly backend: Pick<Backend, 'groups' | 'ledger' | 'audit'>;
  readonly metrics: { group(kind: GroupKind, state: string): void };
  readonly settings: Pick<Settings, 'ttl'>;
  readonly clock: Clock;
  readonly catalogue: ToolCatalogue;
  readonly approvals: ApprovalService;
  /** Redis' clock. */
  now(): Promise<number>;
  onError(error: Error): void;
}

export function composeGroups(
  { backend, settings, metrics, clock, catalogue, approvals: approvalService, now, onError }: ComposeGroupsDeps,
  submitter: Pick<CallSubmitter, 'identify' | 'submit' | 'permit'>,
  service: Pick<GroupCalls, 'read' | 'result' | 'cancel'> &
    Pick<PlanRulesDeps, 'output'> & { readAsItRan: PlanRulesDeps['callOf'] },
) {
  const records = backend.groups;
  const { ledger } = backend;
  const approvals = new PlanApprovals({
    approvals: approvalService,
    ledger,
    clock,
    result: (callId) => service.result(callId),
  });
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
  const { audit } = backend;
  const onEnded = (record: GroupRecord) => {
    const { kind } = record.head;
    const end = kind === 'plan' ? planEnd(planFrom(record)) : { state: batchState(record) };
    metrics.group(kind, end.state);
    void audit({ ...aboutGroup(record.head), action: 'ended', ...end });
  };
  const runner = new GroupRunner({ records, rules, calls, keptMs, onEnded, now, onError });
  const readBrief = (callId: string) => ledger.readBrief(callId);
  const plans = new PlanService({
    records,
    runner,
    catalogue,
    readBrief,
    now,
    audit,
    approvals,
    askReason: askReasonOf(
      (envelope, session, isDraft) => submitter.permit(envelope, session, isDraft),
      (...args) => approvalService.isGranted(...args),
      clock,
    ),
    budgetIssues: budgetChecker((account) => spent(ledger.access, account)),
  });
  return { groups: runner, batches: new BatchService({ records, runner, calls, audit, readBrief, now }), plans };
}

function planEnd({ state, because, definition }: Plan) {
  return { state, because, sessionKey: definition.target.sessionKey };
}
