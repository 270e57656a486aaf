/**
 * The records of approvals. Each is in the partition of its call, so that one script writes the decision and its effect on the call:
 * approved and queued, or denied and ended.
 */
import {
  type ApprovalEnd,
  type ApprovalRequest,
  type ApprovalState,
  callOf,
  DECISION_VALID_MS,
  type Decision,
  PLAN_VALID_MS,
} from '../../approvals/approval.ts';
import { briefDecision, briefPreview, briefRequest } from '../../approvals/approval-summary.ts';
import { partitionOf } from '../../calls/call-id.ts';
import { failedLifetime, type RecordLifetime, unresolvedLifetime } from '../../calls/call-state.ts';
import { isUnresolved, type Outcome } from '../../calls/outcome.ts';
import type { Settings } from '../../config/config.ts';
import { ttlsOf } from '../../config/tool-settings.ts';
import { PawlError } from '../../errors/failure.ts';
import type { Signatures } from '../../signing/signatures.ts';
import type { ToolPreview } from '../../tools/tool-variant.ts';
import { parseJson } from '../../util/json/json-types.ts';
import { defined } from '../../util/json/omit-undefined.ts';
import { LimitedMap } from '../../util/limited-map.ts';
import { uuidv7 } from '../../util/time.ts';
import { type CallRecord, withParams } from '../calls/call-record.ts';
import type { Ledger } from '../calls/ledger.ts';
import { readCall } from '../calls/records/read-call.ts';
import { verifyApproval } from '../calls/records/signed-records.ts';
import { resignRequest } from '../calls/requeue-call.ts';
import { END_CALL_LUA } from '../calls/settle.ts';
import { ENQUEUE_DELAYED_LUA, ENQUEUE_LUA, enqueueArguments, jobIdOf } from '../queues/jobs.ts';
import type { Redis } from '../redis/connection.ts';
import type { Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

/** An approval as it is read: only the parts that a key of this fleet signed. */
export interface ApprovalRecord {
  readonly state: ApprovalState;
  readonly request: ApprovalRequest;
  /** The tool's description of the call; absent until a worker has asked the tool. */
  readonly preview?: ToolPreview;
  readonly decision?: Decision;
  readonly decidedAtMs?: number;
  /** People were notified on the session's channel. */
  readonly announced: boolean;
}

/** An approval as lists show it: large parts are truncated. */
export interface BriefApproval extends ApprovalRecord {
  /** A part of it is truncated. */
  readonly shortened: boolean;
  readonly paramsBytes: number;
}

export type DecideAnswer =
  | { readonly kind: 'decided' }
  | { readonly kind: 'already'; readonly state: ApprovalState }
  | { readonly kind: 'late' | 'gone' }
  | { readonly kind: 'early'; readonly remainingMs: number }
  /** The stored request of the call is not authentic. */
  | { readonly kind: 'forged' };

const decideScript = new Script(new URL('./decide.lua', import.meta.url), [
  ...END_CALL_LUA,
  ...ENQUEUE_LUA,
  ENQUEUE_DELAYED_LUA,
]);
const IDS_PER_PAGE = 200;
/** An approval may hold megabytes. */
const CONCURRENT_READS = 8;
/** Brief approvals are cached, because lists are read often and their entries do not change. */
const MAX_BRIEFS = 1_000;
/** The time limit of a tool is rarely longer. */
const LONG_RUN_MS = 60 * 60_000;

interface ApprovalSearch {
  readonly pending: boolean;
  readonly limit: number;
  /** The maximum of approvals that are read; default all. */
  readonly among?: number;
  readonly isWanted?: (record: ApprovalRecord) => boolean;
}

export type ReadApproval<Approval extends ApprovalRecord> = (id: string) => Promise<Approval | undefined>;

export class Approvals {
  readonly #redis: Redis;
  readonly #ledger: Ledger;
  readonly #signatures: Signatures;
  readonly #settings: Pick<Settings, 'ttl' | 'tools'>;
  /** By ID and signatures: with the same signatures, only the state of an approval can change. The newest one last. */
  readonly #briefs = new LimitedMap<string, BriefApproval>(MAX_BRIEFS);

  constructor(redis: Redis, ledger: Ledger, signatures: Signatures, settings: Pick<Settings, 'ttl' | 'tools'>) {
    this.#redis = redis;
    this.#ledger = ledger;
    this.#signatures = signatures;
    this.#settings = settings;
  }

  #keysOf(id: string): PartitionKeys | undefined {
    const partition = partitionOf(callOf(id));
    return partition === undefined ? undefined : this.#ledger.keys(partition);
  }

  /** Undefined when there is none, or none that is authentic. */
  async read(id: string): Promise<ApprovalRecord | undefined> {
    const keys = this.#keysOf(id);
    return keys === undefined ? undefined : this.#recordOf(id, await this.#redis.hgetall(`${keys.approvals}:${id}`));
  }

  /** Reads an approval as lists show it; large parts are read once. Undefined as for `read`. */
  async readBrief(id: string): Promise<BriefApproval | undefined> {
    const keys = this.#keysOf(id);
    if (keys === undefined) return undefined;
    const [state, announced, decidedAtMs, ...signatures] = await this.#redis.hmget(
      `${keys.approvals}:${id}`,
      ...['state', 'announced', 'decidedAtMs', 'signature', 'previewSignature', 'decisionSignature'],
    );
    if (typeof state !== 'string') return undefined;
    const name = JSON.stringify([id, ...signatures]);
    const cached = this.#briefs.get(name);
    if (cached === undefined) {
      const record = await this.read(id);
      if (record !== undefined) this.#briefs.set(name, briefOf(record));
      return this.#briefs.get(name);
    }
    const decided = typeof decidedAtMs === 'string' ? { decidedAtMs: Number(decidedAtMs) } : {};
    return { ...cached, state: state as ApprovalState, announced: announced === '1', ...decided };
  }

  #recordOf(id: string, fields: Readonly<Record<string, string>>): ApprovalRecord | undefined {
    const { state, request: text, signature = '', preview, decision, decidedAtMs, announced } = fields;
    if (state === undefined || text === undefined) return undefined;
    const request = parseJson(text) as ApprovalRequest | undefined;
    if (request?.id !== id || !verifyApproval(this.#signatures, request, text, signature)) return undefined;
    const isSigned = (kind: 'preview' | 'decision', part: string | undefined): part is string =>
      part !== undefined && this.#signatures.verify(kind, id, part, fields[`${kind}Signature`] ?? '');
    return {
      state: state as ApprovalState,
      request,
      ...(isSigned('preview', preview) ? { preview: parseJson(preview) as ToolPreview } : {}),
      ...(isSigned('decision', decision) ? defined({ decision: parseJson(decision) as Decision | undefined }) : {}),
      ...(decidedAtMs !== undefined && { decidedAtMs: Number(decidedAtMs) }),
      announced: announced === '1',
    };
  }

  /** The newest approval of a call; undefined for what is no call's ID, or a call that needed none. */
  async idOfCall(callId: string): Promise<string | undefined> {
    const partition = partitionOf(callId);
    if (partition === undefined) return undefined;
    return (await this.#redis.hget(this.#ledger.keys(partition).record(callId), 'approval')) ?? undefined;
  }

  /**
   * A call's record with the parameters that ran, which the approver may have edited, and whether its request was changed since. Throws
   * `CALL_NOT_COMPENSABLE` when the parameters are not known any more.
   */
  async callAsItRan(callId: string): Promise<CallRecord | undefined> {
    const call = await readCall(this.#ledger.access, callId, { verified: true });
    if (call?.approvalId === undefined) return call;
    // The record of the call names its approval without a signature.
    const decision = callOf(call.approvalId) === call.callId ? (await this.read(call.approvalId))?.decision : undefined;
    if (decision === undefined)
      throw new PawlError(
        'CALL_NOT_COMPENSABLE',
        `Call ${call.callId} cannot be undone: the approval that says with which parameters it ran is not there any more.`,
      );
    const { params } = decision;
    if (params === undefined) return call;
    return { ...call, request: { ...call.request, envelope: withParams(call.request.envelope, params) } };
  }

  /** Lists the approvals of one partition, the newest first; `pending` ones by their expiry. */
  async list<Approval extends ApprovalRecord>(
    partition: Partition,
    { pending, limit, among = Number.POSITIVE_INFINITY, isWanted = () => true }: ApprovalSearch,
    read: ReadApproval<Approval>,
  ): Promise<Approval[]> {
    const { approvals } = this.#ledger.keys(partition);
    const matching: Approval[] = [];
    for (let first = 0; matching.length < limit && first < among; first += IDS_PER_PAGE) {
      const last = Math.min(first + IDS_PER_PAGE, among) - 1;
      const ids = pending
        ? await this.#redis.zrange(`${approvals}s:pending`, String(first), String(last))
        : await this.#redis.zrevrange(`${approvals}s`, first, last);
      for (let next = 0; next < ids.length && matching.length < limit; next += CONCURRENT_READS) {
        const records = await Promise.all(ids.slice(next, next + CONCURRENT_READS).map(read));
        matching.push(
          ...records.filter((record): record is Awaited<Approval> => record !== undefined && isWanted(record)),
        );
      }
      if (ids.length < IDS_PER_PAGE) break;
    }
    return matching.slice(0, limit);
  }

  /** Stores the tool's description of the call. */
  async addPreview(id: string, preview: ToolPreview): Promise<void> {
    const keys = this.#keysOf(id);
    if (keys === undefined) return;
    const text = JSON.stringify(preview);
    const signed = { preview: text, previewSignature: this.#signatures.sign('preview', id, text) };
    await this.#redis.hset(`${keys.approvals}:${id}`, signed);
  }

  /** Notes that a worker begins to preview the call. False when one did before. */
  async beginPreview(id: string): Promise<boolean> {
    const keys = this.#keysOf(id);
    if (keys === undefined) return false;
    const [key, token] = [`${keys.approvals}:${id}`, uuidv7()];
    const isFirst = (await this.#redis.hsetnx(key, 'previewed', token)) === 1;
    // The command was sent again if its first answer was lost.
    return isFirst || (await this.#redis.hget(key, 'previewed')) === token;
  }

  async markAnnounced(id: string): Promise<void> {
    const keys = this.#keysOf(id);
    if (keys !== undefined) await this.#redis.hset(`${keys.approvals}:${id}`, 'announced', '1');
  }

  /** Approves or denies, once: queues the call, or ends it with an outcome, as also the call of a plan that is approved. */
  decide(record: ApprovalRecord, decision: Decision, outcome: Outcome): Promise<DecideAnswer> {
    return this.#decide(record, decision.decision === 'approve' ? 'approved' : 'denied', decision, outcome);
  }

  /** Ends an approval that has expired, and its call. */
  expire(record: ApprovalRecord, expired: Outcome): Promise<DecideAnswer> {
    return this.#decide(record, 'expired', undefined, expired);
  }

  /**
   * The time to live of a decided approval: as long as the call's record, because a compensation needs the approved parameters. The call may
   * wait for its start, then for as long as the decision is valid, and then run.
   */
  #ttlOf({ tool, plan, startAtMs = 0 }: ApprovalRequest, to: ApprovalEnd, nowMs: number): number {
    const { doneMs } = ttlsOf(this.#settings, tool);
    if (to !== 'approved') return doneMs;
    const validMs = plan === undefined ? DECISION_VALID_MS : PLAN_VALID_MS;
    return doneMs + Math.max(0, startAtMs - nowMs) + validMs + LONG_RUN_MS;
  }

  #lifeOf({ tool }: ApprovalRequest, outcome: Outcome): RecordLifetime {
    const ttls = ttlsOf(this.#settings, tool);
    if (outcome.status === 'success') return { ttlMs: ttls.doneMs };
    return isUnresolved(outcome) ? unresolvedLifetime(ttls) : failedLifetime(ttls);
  }

  async #decide(
    { request }: ApprovalRecord,
    to: ApprovalEnd,
    decision: Decision | undefined,
    outcome: Outcome,
  ): Promise<DecideAnswer> {
    const { id, callId, generation, tool, plan } = request;
    const keys = this.#keysOf(id);
    if (keys === undefined) return { kind: 'gone' };
    const nowMs = await this.#ledger.now();
    // Greater than the generation of the waiting job, which then belongs to an earlier generation.
    const next = String(Math.max(nowMs, Number(generation) + 1));
    // No worker runs the call of a plan: its approval is its success.
    const runsNow = to === 'approved' && plan === undefined;
    const signed = runsNow ? await resignRequest(this.#ledger.access, callId, next) : undefined;
    if (typeof signed === 'string') return { kind: signed };
    const job = { callId, generation: next, session: request.session.key };
    const [queue = '', ...jobArguments] = enqueueArguments(keys, tool.name, job);
    const text = decision === undefined ? '' : JSON.stringify(decision);
    const answer = await decideScript.run(
      this.#redis,
      [keys.base, queue],
      [
        id,
        to,
        text,
        text === '' ? '' : this.#signatures.sign('decision', id, text),
        this.#ttlOf(request, to, nowMs),
        jobIdOf(callId, generation),
        uuidv7(),
        callId,
        ...(signed === undefined
          ? this.#endArguments(request, to, outcome)
          : ['', next, signed.signature, ...jobArguments]),
      ],
    );
    return parseDecideAnswer(answer);
  }

  /** The arguments of `end_call` for the call of an approval, from its state on. */
  #endArguments(request: ApprovalRequest, to: ApprovalEnd, outcome: Outcome): (string | number)[] {
    const { callId, plan } = request;
    const state = to === 'approved' ? 'done' : 'failed';
    const text = JSON.stringify(outcome);
    const { ttlMs, freeAfterMs } = this.#lifeOf(request, outcome);
    // A denied call is no dead letter: it failed as intended.
    const letterMs = to === 'expired' && plan === undefined ? this.#ledger.access.deadLetterMs(callId) : undefined;
    return [
      state,
      text,
      this.#signatures.sign('outcome', [callId, state], text),
      ttlMs,
      freeAfterMs ?? '',
      letterMs ?? '',
    ];
  }
}

function parseDecideAnswer([code, , detail]: readonly unknown[]): DecideAnswer {
  if (code === 'already') return { kind: 'already', state: detail as ApprovalState };
  if (code === 'early') return { kind: 'early', remainingMs: Number(detail) };
  return { kind: code as 'decided' | 'late' | 'gone' };
}

function briefOf(record: ApprovalRecord): BriefApproval {
  const { request, preview, decision } = record;
  const paramsJson = JSON.stringify(request.params);
  const parts = { preview: preview && briefPreview(preview), decision: decision && briefDecision(decision) };
  const brief = { request: briefRequest(request, paramsJson), ...defined(parts) };
  const shortened = brief.request !== request || brief.preview !== preview || brief.decision !== decision;
  return { ...record, ...brief, shortened, paramsBytes: Buffer.byteLength(paramsJson) };
}
