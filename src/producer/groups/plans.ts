/** `pawl.plans`: graphs of calls that use each other's results. They are checked before anything runs, and survive any process. */
import type { z } from 'zod';
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import type { Outcome } from '../../shared/calls/outcome.ts';
import { type Issue, PawlError } from '../../shared/errors/failure.ts';
import { redact } from '../../shared/errors/redaction.ts';
import { checkPlan } from '../../shared/groups/check-plan.ts';
import { type GroupHead, type Member, memberField } from '../../shared/groups/group.ts';
import { identifyGroup } from '../../shared/groups/group-key.ts';
import { APPROVAL_KEY } from '../../shared/groups/node-state.ts';
import {
  type AcceptedNode,
  type ApprovalReason,
  DEFAULT_PLAN_CONCURRENCY,
  type PlanDefinition,
  type PlanNodes,
  planSchema,
  withToolNames,
} from '../../shared/groups/plan.ts';
import { checkLimit, checkMembers, checkObject } from '../../shared/schema/known-members.ts';
import { WITH_RECEIVED, zodIssues } from '../../shared/schema/zod-issues.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { GroupRecord } from '../../shared/store/groups/groups.ts';
import { qualifiedName, splitName } from '../../shared/tools/tool.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { startOf, withEllipsis } from '../../shared/util/text/text-cut.ts';
import { truncateJson } from '../../shared/util/text/truncate-json.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import { callTargetOf } from '../calls/call-envelope.ts';
import { type ResolvedTool, resolveName, type ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { BatchServiceDeps } from './batches.ts';
import { aboutGroup, cancelGroup, createdElsewhere, type GroupAccess, groupOf, groupWithKey } from './group-access.ts';
import { APPROVAL_FIELD, approvalOf, type PlanApprovals, storedApproval } from './plan-approvals.ts';
import { type PlanCall, type PlanNodeView, planFrom } from './plan-state.ts';
import { type PlanOrder, type PlanSummary, type PlanView, planOrder, planSummary, planView } from './plan-view.ts';

export interface SubmitPlan {
  /** The session that makes the calls of the nodes. */
  readonly session: SessionRecord;
  /** The session was not opened yet: the plan can be checked, and not begun. */
  readonly isDraft?: boolean;
  /** `{ nodes, concurrency? }`, unchecked. */
  readonly plan: unknown;
  readonly submittedBy?: string | undefined;
  /** Called when a person is asked about the plan. */
  readonly onApproval?: (request: ApprovalRequest) => void;
}

export interface AcceptedPlan {
  readonly planId: string;
  /** The names of the nodes in topological order. */
  readonly order: readonly string[];
  /** The nodes whose calls could not be undone, if the plan undoes calls. */
  readonly irreversible?: readonly string[];
  /** The approval that the plan waits for, if a node needs one. */
  readonly approvalId?: string;
}

export interface PlanServiceDeps extends Omit<BatchServiceDeps, 'calls'> {
  readonly catalogue: Pick<ToolCatalogue, 'find' | 'peek'>;
  readonly approvals: Pick<PlanApprovals, 'whyUnreachable' | 'create'> & {
    open(request: ApprovalRequest, target: PlanDefinition['target']): Promise<unknown>;
  };
  /**
   * Policy's reason to ask a person about a call, whose parameters may have references; undefined when it needs no approval. Throws when
   * the call is denied.
   */
  askReason(
    submitted: Pick<SubmitPlan, 'session' | 'isDraft'>,
    tool: ResolvedTool,
    params: Readonly<Record<string, unknown>>,
  ): Promise<ApprovalReason | undefined>;
  /** An issue for each budget of the session that all nodes together exceed. */
  budgetIssues(
    session: SessionRecord,
    nodes: readonly { readonly tool: ResolvedTool; readonly params: object }[],
  ): Promise<readonly Issue[]>;
}

/** The number of calls of a `forEach` that are shown with their outputs. */
const SHOWN_OUTPUTS = 5;

/** Failures that concern more than one node. */
const NOT_OF_A_NODE: ReadonlySet<string> = new Set(['BACKEND_UNAVAILABLE', 'SESSION_CLOSED']);

export class PlanService {
  readonly #deps: PlanServiceDeps;

  constructor(deps: PlanServiceDeps) {
    this.#deps = deps;
  }

  /** Checks a plan, and runs nothing: the order of its nodes. Throws `PLAN_INVALID` with all issues, each with its path. */
  async check(submitted: SubmitPlan): Promise<PlanOrder> {
    checkObject('submitted', submitted);
    return planOrder(await this.#check(submitted, parsePlan(submitted.plan)));
  }

  async #check(
    submitted: SubmitPlan,
    { nodes, concurrency = DEFAULT_PLAN_CONCURRENCY }: ParsedPlan,
  ): Promise<PlanDefinition> {
    const { session } = submitted;
    const tools = new Map<string, ResolvedTool>();
    const unknown: Issue[] = [];
    for (const [name, { tool }] of Object.entries(nodes)) {
      const resolved = await this.#tool(tool);
      if (resolved instanceof PawlError) unknown.push({ path: `nodes.${name}.tool`, message: resolved.message });
      else tools.set(name, resolved);
    }
    const { issues, order } = await checkPlan(nodes, tools);
    const policy = await this.#askPolicy(submitted, nodes, tools);
    const allIssues = [...unknown, ...issues, ...policy.issues];
    const costs = [...tools].map(([name, tool]) => ({ tool, params: nodes[name]?.params ?? {} }));
    if (allIssues.length === 0) allIssues.push(...(await this.#deps.budgetIssues(session, costs)));
    if (allIssues.length > 0) throw invalidPlan(allIssues);
    const accepted = Object.fromEntries(
      Object.entries(nodes).map(([name, node]) => {
        const tool = tools.get(name) as ResolvedTool;
        const { namespace, name: toolName, version, tier, definition, effects } = tool;
        const asks = policy.reasons.get(name);
        const compensates = tool.compensates || undefined;
        const ofTool = { namespace, name: toolName, version, tier, definition, effects };
        return [name, { ...node, ...ofTool, ...defined({ compensates, asks }) } as AcceptedNode];
      }),
    );
    return { target: callTargetOf(session), nodes: accepted, order, concurrency };
  }

  async #tool(tool: string): Promise<ResolvedTool | PawlError> {
    const { catalogue } = this.#deps;
    const { namespace, name } = splitName(tool);
    try {
      return await catalogue.find(namespace, resolveName(namespace, name, catalogue));
    } catch (error) {
      if (error instanceof PawlError && error.code === 'UNKNOWN_TOOL') return error;
      throw error;
    }
  }

  /** Evaluates policy for each node: some need an approval, others are denied. */
  async #askPolicy(submitted: SubmitPlan, nodes: PlanNodes, tools: ReadonlyMap<string, ResolvedTool>) {
    const reasons = new Map<string, ApprovalReason>();
    const issues: Issue[] = [];
    const whyUnreachable = once(() => this.#deps.approvals.whyUnreachable(submitted.session));
    for (const [name, tool] of tools) {
      const path = `nodes.${name}.tool`;
      try {
        const reason = await this.#deps.askReason(submitted, tool, nodes[name]?.params ?? {});
        if (reason === undefined) continue;
        reasons.set(name, reason);
        const obstacle = await whyUnreachable();
        if (obstacle !== undefined) issues.push({ path, message: `${reason.reason}, and ${obstacle}` });
      } catch (error) {
        if (!(error instanceof PawlError) || NOT_OF_A_NODE.has(error.code)) throw error;
        issues.push({ path, message: error.message });
      }
    }
    return { reasons, issues };
  }

  /**
   * Checks a plan and starts it, or requests its approval if a node needs one. From then on every front door can drive it. With an
   * idempotency key that the session has used, it returns the existing plan. Throws `PLAN_INVALID`, `IDEMPOTENCY_CONFLICT` for a
   * key that was used with other nodes, and `PERMISSION_DENIED` or `HOOK_FAILED` from a hook.
   */
  async create(submitted: SubmitPlan): Promise<AcceptedPlan> {
    checkObject('submitted', submitted);
    const parsed = parsePlan(submitted.plan);
    const { session, submittedBy } = submitted;
    const { tenantId, sessionKey, actorId } = session;
    const owner = [tenantId, sessionKey, actorId];
    const identity = identifyGroup({ kind: 'plan', owner, key: parsed.idempotencyKey, content: parsed.nodes });
    const existing = await groupWithKey(this.#deps.records, identity);
    if (existing !== undefined) return existingPlan(existing);
    const plan = await this.#check(submitted, parsed);
    const about = defined({ tenantId, submittedBy, digest: identity?.digest });
    const createdAtMs = await this.#deps.now();
    const head: GroupHead = { id: identity?.id ?? uuidv7(), kind: 'plan', ...about, createdAtMs };
    const begun = await this.#begin(head, plan, submitted);
    return begun ?? existingPlan(await createdElsewhere(this.#deps.records, head, identity));
  }

  /** Undefined when the plan's ID exists already. */
  async #begin(head: GroupHead, plan: PlanDefinition, submitted: SubmitPlan): Promise<AcceptedPlan | undefined> {
    const { approvals, runner, audit } = this.#deps;
    const approval = await this.#approvalFor(head.id, plan, submitted);
    const fields = new Map<string, object>();
    if (approval !== undefined) {
      fields.set(APPROVAL_FIELD, storedApproval(approval));
      fields.set(memberField(APPROVAL_KEY), { callId: approval.callId });
    }
    const open = async () => approval && approvals.open(approval, plan.target);
    if (!(await runner.create(head, plan, { fields, open }))) return undefined;
    const approvalId = approval?.id;
    const event = {
      action: 'begun',
      by: head.submittedBy,
      size: plan.order.length,
      ...defined({ approvalId }),
    } as const;
    void audit({ ...aboutGroup(head, plan.target.sessionKey), ...event });
    if (approval !== undefined) submitted.onApproval?.(approval);
    return acceptedPlan(head.id, plan, approvalId);
  }

  #recordOf(planId: string, access?: GroupAccess): Promise<GroupRecord> {
    return groupOf(this.#deps.records, 'plan', planId, access);
  }

  async #approvalFor(
    planId: string,
    plan: PlanDefinition,
    { session, submittedBy }: SubmitPlan,
  ): Promise<ApprovalRequest | undefined> {
    const nodes = Object.values(plan.nodes);
    if (nodes.every(({ asks }) => asks === undefined)) return undefined;
    const outside = new Set<string>();
    for (const { namespace, name } of nodes) {
      const tool = await this.#deps.catalogue.find(namespace, name);
      if (tool.annotations.openWorldHint === true) outside.add(qualifiedName(tool));
    }
    return this.#deps.approvals.create({ planId, plan, session, submittedBy, outside: [...outside] });
  }

  /** The current state of a plan. Throws `NOT_FOUND`. */
  async read(planId: string, access?: GroupAccess): Promise<PlanView> {
    return planView(planFrom(await this.#recordOf(planId, access)));
  }

  /**
   * A plan for display, with the beginning of its calls' outputs; of a `forEach`, the first ones. Large outputs, which are stored outside
   * of the records, are left out. Calls that ended in doubt are shown as they are now. Throws `NOT_FOUND`.
   */
  async show(planId: string, access?: GroupAccess): Promise<PlanView> {
    const plan = planFrom(await this.#recordOf(planId, access));
    const nodes = plan.nodes.map(async (view): Promise<PlanNodeView> => {
      const shown = view.calls.map((call, index) => this.#asItIs(call, index < SHOWN_OUTPUTS));
      return { ...view, calls: await Promise.all(shown) };
    });
    return planView({ ...plan, nodes: await Promise.all(nodes) });
  }

  async #asItIs(call: PlanCall, withSummary: boolean): Promise<PlanCall> {
    const { member, undo } = call;
    const hasSummary = withSummary && member?.end?.status === 'success';
    const { outcome } = (hasSummary && (await this.#read(member))) || {};
    const resolved = await this.#readInDoubt(member);
    const resolvedUndo = await this.#readInDoubt(undo);
    return { ...call, ...defined({ summary: outcome && outputSummary(outcome), resolved, resolvedUndo }) };
  }

  async #readInDoubt(member: Member | undefined): Promise<CallRecord | undefined> {
    return member?.end?.mayHaveHappened === true ? this.#read(member) : undefined;
  }

  async #read({ callId }: Member): Promise<CallRecord | undefined> {
    return callId === undefined ? undefined : this.#deps.readBrief(callId);
  }

  /** Plans without their nodes, the newest first. */
  async list(filter: GroupAccess & { readonly limit?: number } = {}): Promise<PlanSummary[]> {
    checkMembers('filter', filter, ['limit', 'tenantId']);
    const { limit = 50, tenantId } = filter;
    checkLimit(limit);
    const ids = await this.#deps.records.list('plan', limit, tenantId);
    const records = await Promise.all(ids.map((id) => this.#deps.records.read(id)));
    return records.filter((record) => record !== undefined).map((record) => planSummary(planFrom(record)));
  }

  /** Resolves with the plan when it has ended. Throws `NOT_FOUND`. */
  async ended(planId: string): Promise<PlanView> {
    return planView(planFrom(await this.#deps.runner.ended('plan', planId)));
  }

  /** Starts no further call, and cancels those that have not ended. Effects are not undone. Throws `NOT_FOUND`. */
  async cancel(planId: string, by = 'library'): Promise<void> {
    const record = await this.#recordOf(planId);
    await cancelGroup(this.#deps, record, by, (record.definition as PlanDefinition).target.sessionKey);
  }
}

type ParsedPlan = z.output<typeof planSchema>;

function parsePlan(plan: unknown): ParsedPlan {
  const { nodes } = (plan ?? {}) as { readonly nodes?: unknown };
  // The schema would leave out this member without a word.
  if (isObject(nodes) && Object.hasOwn(nodes, '__proto__'))
    throw invalidPlan([{ path: 'nodes.__proto__', message: 'is a reserved name' }]);
  const parsed = planSchema.safeParse(withToolNames(plan), WITH_RECEIVED);
  if (!parsed.success) throw invalidPlan(zodIssues(parsed.error));
  return parsed.data;
}

function existingPlan({ head, definition, fields }: GroupRecord): AcceptedPlan {
  return acceptedPlan(head.id, definition as PlanDefinition, approvalOf({ fields })?.id);
}

function acceptedPlan(planId: string, plan: PlanDefinition, approvalId: string | undefined): AcceptedPlan {
  const { order, irreversible } = planOrder(plan);
  return { planId, order, ...defined({ irreversible, approvalId }) };
}

/** Loads a value at the first use, and caches it. */
function once<T>(load: () => Promise<T>): () => Promise<T> {
  let value: Promise<T> | undefined;
  return () => (value ??= load());
}

function invalidPlan(issues: readonly Issue[]): PawlError {
  const listed = issues
    .slice(0, 10)
    .map(({ path, message }) => `${path === '' ? 'the plan' : path}: ${message.replace(/\.$/, '')}`);
  const rest = issues.length > 10 ? `; and ${issues.length - 10} more` : '';
  return new PawlError('PLAN_INVALID', `The plan cannot run: ${listed.join('; ')}${rest}.`, { issues });
}

/** Characters of a summary. */
const SUMMARY_LENGTH = 200;
/** So much of an output is looked at: secrets are removed before it is cut. */
const READ_LENGTH = 2_000;

/** The tool's own text, or else the output as JSON; without secrets, and cut. Undefined for a call without an output. */
function outputSummary({ output }: Pick<Outcome, 'output'>): string | undefined {
  if (output === undefined) return undefined;
  const { content, metadata } = output;
  const display = metadata?.['display'];
  const text = display ?? content;
  const fullText = typeof text === 'string' ? text : (JSON.stringify(truncateJson(text, READ_LENGTH)) ?? '');
  return withEllipsis(redact(startOf(fullText, READ_LENGTH)), SUMMARY_LENGTH);
}
