/** The producer's side of approvals: it requests, lists and decides them. `workers/approvals/approval-gate.ts` is the worker's side. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ApprovalRequest,
  type ApprovalRoute,
  type ApprovalState,
  approvedOutcome,
  buildDecision,
  type Decision,
  decidedEvent,
  deniedOutcome,
  digestOf,
  expiredOutcome,
} from '../../shared/approvals/approval.ts';
import type { ApprovalHooks } from '../../shared/approvals/approval-hooks.ts';
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { invalidInput, PawlError } from '../../shared/errors/failure.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { checkMembers } from '../../shared/schema/known-members.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { ApprovalRecord, BriefApproval, ReadApproval } from '../../shared/store/approvals/approvals.ts';
import type { StandingApproval, StandingApprovals } from '../../shared/store/approvals/standing-approvals.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { ApprovalRecords } from '../../shared/store/ports.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import { routeOf } from '../../shared/store/sessions/sessions.ts';
import { qualifiedName, type Tier } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import type { ResolvedTool, ToolCatalogue } from '../tools/tool-catalogue.ts';
import { ApprovalRequests, type CallToApprove } from './approval-requests.ts';
import { EditedParams, type Params } from './edited-params.ts';
import type { PlanToRequest } from './plan-requests.ts';

export interface DecideOptions {
  readonly decision: 'approve' | 'deny';
  /** The digest of the approval that was shown: a different one is refused as stale. */
  readonly digest: string;
  /** The person who decides. The call's submitter cannot approve it. */
  readonly by: string;
  readonly reason?: string;
  /** Parameters that replace the call's own. */
  readonly params?: Params;
  /** Also approves later, similar calls of this session. */
  readonly remember?: boolean;
}

export interface ApprovalQuery {
  readonly state?: ApprovalState;
  /** Default 100. */
  readonly limit?: number;
  /** Whether the caller may see an approval. */
  readonly isSeen?: (record: ApprovalRecord) => boolean;
}

export interface ApprovalListing<Approval extends ApprovalRecord = ApprovalRecord> {
  readonly record: Approval;
  readonly digest: string;
}

interface ApprovalServiceDeps {
  readonly settings: Settings;
  readonly approvals: ApprovalRecords;
  readonly standingApprovals: Pick<StandingApprovals, 'find' | 'add' | 'list' | 'remove'>;
  readonly catalogue: Pick<ToolCatalogue, 'peek' | 'find'> & Partial<Pick<ToolCatalogue, 'toolPolicyFor'>>;
  partitions(tiers?: readonly Tier[]): readonly Partition[];
  readonly audit: RecordAudit;
  readonly hooks: ApprovalHooks;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** The channel of a session that has none; undefined where no front door offers one. */
  defaultChannel?(session: SessionRecord): Promise<SessionRecord['channel']>;
  /** Redis' clock. */
  now(): Promise<number>;
}

/** A worker adds the tool's preview to a new approval. Lists wait for it until the request has this age. */
const PREVIEW_WAIT_MS = 1_000;
const PREVIEW_POLL_MS = 20;
const MAX_SIMILAR = 5;
/** The newest approvals of each partition that are compared. */
const MAX_COMPARED = 100;

export class ApprovalService {
  readonly #deps: ApprovalServiceDeps;
  readonly #requests: ApprovalRequests;
  readonly #edits: EditedParams;

  constructor(deps: ApprovalServiceDeps) {
    this.#deps = deps;
    this.#edits = new EditedParams({ ...deps, routeOf: (session) => this.routeOf(session) });
    this.#requests = new ApprovalRequests({ ...deps, routeOf: (session) => this.routeOf(session) });
  }

  /** The route to a person: the first session with a channel, from this one upwards, or the channel that a front door offers. */
  routeOf(session: SessionRecord): Promise<ApprovalRoute | undefined> {
    const { sessionOf, defaultChannel } = this.#deps;
    return routeOf(session, sessionOf, defaultChannel);
  }

  /** Whether a standing approval covers the call. */
  async isGranted(
    { sessionKey }: SessionRecord,
    tool: ResolvedTool,
    envelope: ToolCallEnvelope,
    { askedForTaint, unconfined }: Pick<PolicyResult, 'askedForTaint' | 'unconfined'>,
  ): Promise<boolean> {
    const { standingApprovals, now } = this.#deps;
    return (
      (await standingApprovals.find({ sessionKey, tool, envelope, askedForTaint, unconfined, nowMs: await now() })) !==
      undefined
    );
  }

  /** The approval request of a call: see `ApprovalRequests`. */
  requestFor(call: CallToApprove): Promise<ApprovalRequest> {
    return this.#requests.create(call);
  }

  /**
   * The approval request of a plan. Throws `PERMISSION_DENIED` when the session has no route to a person, or a hook denies the plan, and
   * `HOOK_FAILED`.
   */
  requestForPlan(plan: Omit<PlanToRequest, 'route' | 'createdAtMs' | 'limitMs'>): Promise<ApprovalRequest> {
    return this.#requests.createForPlan(plan);
  }

  /** The approval request of a call that is to run again: see `ApprovalRequests`. */
  requestAgain(
    record: CallRecord,
    approvalId: string,
    purpose: 'retry' | 'redrive' = 'retry',
  ): Promise<ApprovalRequest> {
    return this.#requests.createAgain(record, approvalId, purpose);
  }

  requested(request: ApprovalRequest): void | Promise<void> {
    const { id, callId, tool, session, actorId, rule, tenantId } = request;
    return this.#deps.audit({
      type: 'approval-requested',
      approvalId: id,
      callId,
      tool: qualifiedName(tool),
      sessionKey: session.key,
      sessionActorId: session.actorId,
      actorId,
      digest: digestOf(request),
      rule,
      tenantId,
    });
  }

  /** Approvals that `isSeen` accepts, the newest first. Expired ones are ended. */
  list(options: ApprovalQuery = {}): Promise<ApprovalListing[]> {
    return this.#list(options, (id) => this.#deps.approvals.read(id));
  }

  /** Like `list`, with large values truncated, so that parameters do not determine the size of a list. */
  listBrief(options: ApprovalQuery = {}): Promise<ApprovalListing<BriefApproval>[]> {
    return this.#list(options, (id) => this.#deps.approvals.readBrief(id));
  }

  async #list<Approval extends ApprovalRecord>(
    options: ApprovalQuery,
    read: ReadApproval<Approval>,
  ): Promise<ApprovalListing<Approval>[]> {
    checkMembers('options', options, ['state', 'limit', 'isSeen']);
    const { state, limit = 100, isSeen = () => true } = options;
    const pending = state === 'pending';
    const nowMs = await this.#deps.now();
    // An approval may have expired although it is stored as pending.
    const mayMatch = (record: ApprovalRecord) => state === undefined || [state, 'pending'].includes(record.state);
    const isWanted = (record: ApprovalRecord) => isSeen(record) && mayMatch(record);
    const listed: Approval[] = [];
    for (const partition of this.#deps.partitions())
      listed.push(...(await this.#deps.approvals.list(partition, { pending, limit, isWanted }, read)));
    const previewed = pending
      ? await Promise.all(listed.map((record) => this.#awaitPreview(record, nowMs, read)))
      : listed;
    const records: Approval[] = [];
    for (const record of previewed) records.push(await this.#expireIfDue(record, nowMs, read));
    return records
      .filter((record) => state === undefined || record.state === state)
      .sort((a, b) => b.request.createdAtMs - a.request.createdAtMs)
      .slice(0, limit)
      .map((record) => ({ record, digest: digestOf(record.request) }));
  }

  async #awaitPreview<Approval extends ApprovalRecord>(
    record: Approval,
    nowMs: number,
    read: ReadApproval<Approval>,
  ): Promise<Approval> {
    let current = record;
    let leftMs = record.request.createdAtMs + PREVIEW_WAIT_MS - nowMs;
    while (leftMs > 0 && current.state === 'pending' && current.preview === undefined) {
      await sleep(PREVIEW_POLL_MS);
      leftMs -= PREVIEW_POLL_MS;
      current = (await read(record.request.id)) ?? record;
    }
    return current;
  }

  /** Throws `UNKNOWN_APPROVAL`. `id` may be the call's. */
  async show(id: string): Promise<ApprovalListing> {
    const { approvals, now } = this.#deps;
    const record = await this.#expireIfDue(await this.#find(id), await now(), (found) => approvals.read(found));
    return { record, digest: digestOf(record.request) };
  }

  async #find(id: string): Promise<ApprovalRecord> {
    const { approvals } = this.#deps;
    const record = typeof id === 'string' ? await approvals.read((await approvals.idOfCall(id)) ?? id) : undefined;
    if (record === undefined)
      throw new PawlError('UNKNOWN_APPROVAL', `There is no approval ${quoteValue(id)}, or its record has expired.`);
    return record;
  }

  /** Earlier decisions on the same tool, the newest first, with large values truncated. */
  async similarTo({ request }: ApprovalRecord): Promise<ApprovalRecord[]> {
    const { approvals, partitions } = this.#deps;
    const isWanted = ({ state, request: other }: ApprovalRecord) =>
      (state === 'approved' || state === 'denied') &&
      other.id !== request.id &&
      other.tenantId === request.tenantId &&
      qualifiedName(other.tool) === qualifiedName(request.tool);
    const search = { pending: false, limit: MAX_SIMILAR, among: MAX_COMPARED, isWanted };
    const similar: ApprovalRecord[] = [];
    for (const partition of partitions([request.tool.tier]))
      similar.push(...(await approvals.list(partition, search, (id) => approvals.readBrief(id))));
    return similar.sort((one, next) => next.request.createdAtMs - one.request.createdAtMs).slice(0, MAX_SIMILAR);
  }

  /** The valid standing approvals of a session, the newest first. */
  async remembered(sessionKey: string): Promise<StandingApproval[]> {
    return this.#deps.standingApprovals.list(sessionKey, await this.#deps.now());
  }

  /**
   * Removes a standing approval: the next call like it needs a decision again. A call that a worker has started goes on. Throws
   * `UNKNOWN_APPROVAL` when the session has none with this ID.
   */
  async forget(sessionKey: string, approvalId: string, by: string): Promise<StandingApproval> {
    const { standingApprovals, audit, sessionOf, now } = this.#deps;
    const grant = await standingApprovals.remove(sessionKey, approvalId, await now());
    if (grant === undefined)
      throw new PawlError(
        'UNKNOWN_APPROVAL',
        `The session ${JSON.stringify(sessionKey)} remembers no approval ${JSON.stringify(approvalId)}.`,
      );
    await audit({
      type: 'approval-forgotten',
      approvalId,
      tool: qualifiedName(grant.tool),
      sessionKey,
      by,
      tenantId: (await sessionOf(sessionKey))?.tenantId,
    });
    return grant;
  }

  /**
   * Decides, once. Throws `UNKNOWN_APPROVAL`; `APPROVAL_STALE` when it was decided already, too late, or on another request than shown;
   * `PERMISSION_DENIED` for the caller who asked for the call, and for edited parameters that policy denies; `INVALID_PARAMS` for edited
   * parameters that the tool refuses.
   */
  async decide(id: string, options: DecideOptions): Promise<ApprovalListing> {
    const record = await this.#find(id);
    const { request } = record;
    if (record.state !== 'pending') throw stale(record.state);
    checkDecision(options);
    const params = options.decision === 'approve' ? await this.#edits.check(request, options.params) : undefined;
    const { decision: verdict, digest: shownDigest, by, reason } = options;
    const decision = buildDecision(
      request,
      {
        decision: verdict,
        digest: shownDigest,
        by,
        ...defined({ reason, params }),
        paramsDigest: params === undefined ? request.paramsDigest : digest(canonicalJson(params)),
      },
      await this.#deps.now(),
    );
    const outcome = verdict === 'approve' ? approvedOutcome(request, decision) : deniedOutcome(request, by, reason);
    const answer = await this.#deps.approvals.decide(record, decision, outcome);
    switch (answer.kind) {
      case 'decided':
        break;
      case 'already':
        throw stale(answer.state);
      case 'late':
        await this.#expire(record);
        throw stale('expired');
      default:
        throw new PawlError('APPROVAL_STALE', 'The call that this approval is about is gone.');
    }
    await this.#decided(record, verdict === 'approve' ? 'approved' : 'denied', decision);
    if (verdict === 'approve' && options.remember === true && params === undefined)
      await this.#deps.standingApprovals.add(request, by, decision.decidedAtMs);
    return { record: await this.#find(request.id), digest: decision.digest };
  }

  async #expireIfDue<Approval extends ApprovalRecord>(
    record: Approval,
    nowMs: number,
    read: ReadApproval<Approval>,
  ): Promise<Approval> {
    const { id, expiresAtMs } = record.request;
    if (record.state !== 'pending' || expiresAtMs > nowMs) return record;
    const full = await this.#deps.approvals.read(id);
    if (full !== undefined) await this.#expire(full);
    return (await read(id)) ?? record;
  }

  async #expire(record: ApprovalRecord): Promise<void> {
    const answer = await this.#deps.approvals.expire(record, expiredOutcome(record.request));
    if (answer.kind === 'decided') await this.#decided(record, 'expired', undefined);
  }

  /** Runs the hooks of an approval whose call was cancelled before a decision. */
  async cancelled(callId: string): Promise<void> {
    const { hooks, approvals } = this.#deps;
    const id = hooks.hasHooks ? await approvals.idOfCall(callId) : undefined;
    const record = id === undefined ? undefined : await approvals.read(id);
    if (record?.state === 'cancelled') await hooks.ended(record, 'cancelled');
  }

  async #decided(
    record: ApprovalRecord,
    state: 'approved' | 'denied' | 'expired',
    decision: Decision | undefined,
  ): Promise<void> {
    await this.#deps.audit(decidedEvent(record.request, state, decision));
    await this.#deps.hooks.ended(record, state, decision);
  }
}

/** Without types, another word would deny, and no digest would be compared. */
function checkDecision({ decision, digest: shown }: DecideOptions): void {
  const issues = [
    ...(['approve', 'deny'].includes(decision)
      ? []
      : [{ path: 'decision', message: `must be approve or deny; got ${quoteValue(decision)}` }]),
    ...(typeof shown === 'string'
      ? []
      : [{ path: 'digest', message: `must be the digest of the approval as it was shown; got ${quoteValue(shown)}` }]),
  ];
  if (issues.length > 0) throw invalidInput('The decision is not usable', issues, 'the decision');
}

function stale(state: ApprovalState): PawlError {
  return new PawlError('APPROVAL_STALE', `This approval is ${state} already; nothing has changed.`, {
    details: { state },
  });
}
