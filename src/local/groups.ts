/** Batches and plans of local runs: driven as in a fleet, but with records in memory. */
import type { ResultWaiters } from '../producer/calls/result-waiters.ts';
import type { CallSubmitter } from '../producer/calls/submit-call.ts';
import { BATCH_RULES, BatchService } from '../producer/groups/batches.ts';
import type { GroupCalls } from '../producer/groups/group-driver.ts';
import { GroupRunner } from '../producer/groups/group-runner.ts';
import { approvalOf } from '../producer/groups/plan-approvals.ts';
import { askReasonOf, planRules, type UndoneCall } from '../producer/groups/plan-rules.ts';
import { PlanService } from '../producer/groups/plans.ts';
import type { ToolCatalogue } from '../producer/tools/tool-catalogue.ts';
import { envelopeOf } from '../shared/calls/outcome.ts';
import { decodeMembers, type GroupFields, type GroupHead, type NextCall } from '../shared/groups/group.ts';
import type { Advance, GroupRecord, LeasedGroup } from '../shared/store/groups/groups.ts';
import type { CallLedger, GroupStore } from '../shared/store/ports.ts';
import type { Clock } from '../shared/util/time.ts';
import type { LocalPlanApprovals } from './plan-approvals.ts';

interface LocalGroupsDeps {
  readonly submitter: Pick<CallSubmitter, 'identify' | 'submit' | 'permit'>;
  readonly ledger: Pick<CallLedger, 'read' | 'outcome' | 'now'>;
  readonly catalogue: Pick<ToolCatalogue, 'find' | 'peek'>;
  readonly results: Pick<ResultWaiters, 'wait'>;
  readonly clock: Clock;
  readonly keptMs: number;
  /** Absent where the program decides on no calls: a plan that needs a decision is refused. */
  readonly approvals?: LocalPlanApprovals;
  cancel(callId: string): Promise<unknown>;
  onError(error: Error): void;
}

/** No other process could take a group. */
const LEASE_MS = 600_000;
/** The most finished groups in memory. */
const MAX_FINISHED = 1_000;

export class LocalGroups {
  readonly batches: Pick<BatchService, 'create' | 'results' | 'cancel'>;
  readonly plans: Pick<PlanService, 'check' | 'create' | 'read' | 'ended' | 'cancel'>;
  readonly #deps: LocalGroupsDeps;
  readonly #runner: GroupRunner;
  /** The calls of open groups, by call ID: the dedupe store has no parameters. */
  readonly #requests = new Map<string, Pick<NextCall, 'envelope' | 'planned'>>();

  constructor(deps: LocalGroupsDeps) {
    this.#deps = deps;
    const { submitter, ledger, clock, keptMs, catalogue, approvals, onError } = deps;
    const records = new LocalGroupRecords(clock);
    const calls = this.#calls();
    const now = () => ledger.now();
    const plan = planRules({
      clock,
      callOf: (callId) => this.callOf(callId),
      output: async (callId) => (await ledger.outcome(callId))?.output?.content,
    });
    const rules = { batch: BATCH_RULES, plan };
    const onEnded = ({ fields }: GroupRecord) => {
      approvals?.forget(approvalOf({ fields })?.id ?? '');
      for (const { callId = '' } of decodeMembers(fields).values()) this.#requests.delete(callId);
    };
    this.#runner = new GroupRunner({ records, rules, calls, keptMs, onEnded, now, onError });
    const shared = { records, runner: this.#runner, now, audit: () => {}, readBrief: async () => undefined };
    this.batches = new BatchService({ ...shared, calls });
    const askReason = askReasonOf(
      (...args) => submitter.permit(...args),
      async () => false,
      clock,
    );
    this.plans = new PlanService({
      ...shared,
      catalogue,
      approvals: approvals ?? NO_APPROVALS,
      askReason,
      // Each call is charged when it is made.
      budgetIssues: async () => [],
    });
  }

  #calls(): GroupCalls {
    const { submitter, ledger, results, approvals, cancel } = this.#deps;
    return {
      check: (envelope) => submitter.identify(envelope),
      submit: async (call, options) => {
        if (call.approval !== undefined) return (approvals ?? NO_APPROVALS).submit(call.approval);
        approvals?.cover(call);
        const submission = await submitter.submit(call.envelope, options);
        if (submission.callId !== undefined) this.#requests.set(submission.callId, call);
        return submission;
      },
      read: (callId) => ledger.read(callId),
      async result(callId) {
        const envelope = (await ledger.read(callId))?.request.envelope;
        const outcome = await results.wait(callId, undefined, { sinceClaim: true }).outcome;
        return envelopeOf(outcome, { requestId: envelope?.requestId ?? '', toolName: outcome.toolName, callId });
      },
      cancel: async (callId) => approvals?.cancel(callId) === true || cancel(callId),
    };
  }

  /** A call of an open plan, for the call that undoes it. */
  async callOf(callId: string): Promise<UndoneCall | undefined> {
    const request = this.#requests.get(callId);
    const outcome = await this.#deps.ledger.outcome(callId);
    if (request === undefined || outcome === undefined) return undefined;
    const state = outcome.status === 'success' ? 'done' : 'failed';
    return { callId, generation: '0', state, outcome, request };
  }

  close(): Promise<void> {
    return this.#runner.close();
  }
}

function noApproval(): never {
  throw new Error('A plan that needs a decision was not refused.');
}

const NO_APPROVALS = {
  whyUnreachable: async () => 'this runner has no `approve`',
  create: noApproval,
  open: noApproval,
  submit: noApproval,
};

interface LocalGroup extends Omit<LeasedGroup, 'fields'> {
  readonly fields: Record<string, object>;
  expiresAtMs?: number;
}

/** The records of batches and plans, in memory: the part of `GroupRecords` that a local run needs. */
class LocalGroupRecords implements GroupStore {
  readonly leaseMs = LEASE_MS;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #groups = new Map<string, LocalGroup>();

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  async create(head: GroupHead, definition: object, fields: GroupFields = new Map()): Promise<LeasedGroup | undefined> {
    this.#prune();
    if (this.#groups.has(head.id)) return undefined;
    return this.#put({ head, definition, fields: Object.fromEntries(fields), steps: 0, fence: 1 });
  }

  async due(): Promise<string[]> {
    return [];
  }

  async take(id: string): Promise<LeasedGroup | undefined> {
    const group = this.#groups.get(id);
    if (group === undefined || group.endedAtMs !== undefined) return undefined;
    return this.#put({ ...group, fence: group.fence + 1 });
  }

  async advance({ head: { id }, fence }: LeasedGroup, { step, end }: Advance) {
    const group = this.#groups.get(id);
    if (group === undefined || group.endedAtMs !== undefined || group.fence !== fence) return 'lost' as const;
    const nowMs = this.#clock.now();
    Object.assign(group.fields, Object.fromEntries(step?.changes ?? []));
    const ended = end === undefined ? {} : { endedAtMs: nowMs, expiresAtMs: nowMs + end.keptMs };
    this.#put({ ...group, steps: step?.number ?? group.steps, ...ended });
    return { nowMs, ...(group.cancelledBy !== undefined && { cancelledBy: group.cancelledBy }) };
  }

  stepOf(): undefined {}

  async cancel(id: string, by: string) {
    const group = this.#groups.get(id);
    if (group === undefined || group.endedAtMs !== undefined) return 'over' as const;
    if (group.cancelledBy !== undefined) return 'kept' as const;
    this.#put({ ...group, cancelledBy: by });
    return 'written' as const;
  }

  async read(id: string): Promise<GroupRecord | undefined> {
    return this.#groups.get(id);
  }

  async list(): Promise<string[]> {
    return [...this.#groups.keys()].reverse();
  }

  #put(group: LocalGroup): LocalGroup {
    this.#groups.set(group.head.id, group);
    return group;
  }

  /** Removes expired groups, and the oldest finished ones above the limit. */
  #prune(): void {
    const ended = [...this.#groups.values()].filter(({ endedAtMs }) => endedAtMs !== undefined);
    const nowMs = this.#clock.now();
    for (const [index, { head, expiresAtMs = 0 }] of ended.entries())
      if (expiresAtMs <= nowMs || index < ended.length - MAX_FINISHED) this.#groups.delete(head.id);
  }
}
