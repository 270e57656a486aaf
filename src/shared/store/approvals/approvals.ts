/**
 * The records of approvals. Each lies beside its call's record, so that a decision and what follows from it for the call are one
 * script: approved and queued, or denied and ended, whatever dies in between.
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
import { lifeOfFailure, lifeOfUnresolved, type RecordLife } from '../../calls/call-state.ts';
import { isUnresolved, type Outcome } from '../../calls/outcome.ts';
import type { Settings } from '../../config/config.ts';
import { ttlsOf } from '../../config/tool-settings.ts';
import { PawlError } from '../../errors/failure.ts';
import type { Signatures } from '../../signing/signatures.ts';
import { uuidv7 } from '../../util/time.ts';
import { CALLBACK_LUA } from '../callbacks/callbacks.ts';
import { type CallRecord, withParams } from '../calls/call-record.ts';
import type { Ledger } from '../calls/ledger.ts';
import { PARTITION_LUA } from '../calls/ledger-context.ts';
import { verifyApproval } from '../calls/records/signed-records.ts';
import { resignRequest } from '../calls/requeue-call.ts';
import { DEAD_LETTER_LUA } from '../dead-letters/dead-letter-index.ts';
import { type CallJob, ENQUEUE_DELAYED_LUA, ENQUEUE_LUA, enqueueArguments, jobIdOf } from '../queues/jobs.ts';
import type { Redis } from '../redis/connection.ts';
import type { Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

export interface Preview {
  readonly summary: string;
  readonly details?: string;
}

/** An approval as it is read: only what a key of this fleet signed. */
export interface ApprovalRecord {
  readonly state: ApprovalState;
  readonly request: ApprovalRequest;
  /** The tool's description of the call; absent until a worker has asked the tool. */
  readonly preview?: Preview;
  readonly decision?: Decision;
  readonly decidedAtMs?: number;
  /** The route's channel has notified people. */
  readonly announced: boolean;
}

/** An approval as lists have it: of what is large its beginning. */
export interface BriefApproval extends ApprovalRecord {
  /** Something of it is cut. */
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
  PARTITION_LUA,
  ...CALLBACK_LUA,
  ...ENQUEUE_LUA,
  ENQUEUE_DELAYED_LUA,
  ...DEAD_LETTER_LUA,
]);
const LISTED_AT_ONCE = 200;
/** An approval may hold megabytes. */
const READ_AT_ONCE = 8;
/** Lists are read again and again, and their entries do not change. */
const MAX_BRIEFS = 1_000;
/** The time limit of a tool is rarely longer. */
const LONG_RUN_MS = 60 * 60_000;

export interface ApprovalSearch {
  readonly pending: boolean;
  readonly limit: number;
  /** So many are looked at; default all. */
  readonly among?: number;
  readonly isWanted?: (record: ApprovalRecord) => boolean;
}

export type ReadApproval<Approval extends ApprovalRecord> = (id: string) => Promise<Approval | undefined>;

export class Approvals {
  readonly #redis: Redis;
  readonly #ledger: Ledger;
  readonly #signatures: Signatures;
  readonly #settings: Pick<Settings, 'ttl' | 'tools'>;
  /** By ID and signatures: under these, nothing of an approval changes but how it stands. The newest one last. */
  readonly #briefs = new Map<string, BriefApproval>();

  constructor(redis: Redis, ledger: Ledger, signatures: Signatures, settings: Pick<Settings, 'ttl' | 'tools'>) {
    this.#redis = redis;
    this.#ledger = ledger;
    this.#signatures = signatures;
    this.#settings = settings;
  }

  #placed(id: string): PartitionKeys | undefined {
    const partition = partitionOf(callOf(id));
    return partition === undefined ? undefined : this.#ledger.keys(partition);
  }

  /** Undefined when there is none, or none that is authentic. */
  async read(id: string): Promise<ApprovalRecord | undefined> {
    const keys = this.#placed(id);
    return keys === undefined ? undefined : this.#recordOf(id, await this.#redis.hgetall(`${keys.approvals}:${id}`));
  }

  /** As lists have it; what is large of it is read once. Undefined as for `read`. */
  async readBrief(id: string): Promise<BriefApproval | undefined> {
    const keys = this.#placed(id);
    if (keys === undefined) return undefined;
    const [state, announced, decidedAtMs, ...signatures] = await this.#redis.hmget(
      `${keys.approvals}:${id}`,
      ...['state', 'announced', 'decidedAtMs', 'signature', 'previewSignature', 'decisionSignature'],
    );
    if (typeof state !== 'string') return undefined;
    const name = JSON.stringify([id, ...signatures]);
    const known = this.#briefs.get(name);
    if (known === undefined) {
      const record = await this.read(id);
      if (record !== undefined) this.#keep(name, briefOf(record));
      return this.#briefs.get(name);
    }
    return {
      ...known,
      state: state as ApprovalState,
      announced: announced === '1',
      ...(typeof decidedAtMs === 'string' ? { decidedAtMs: Number(decidedAtMs) } : {}),
    };
  }

  #keep(name: string, brief: BriefApproval): void {
    this.#briefs.set(name, brief);
    const oldest = this.#briefs.keys().next().value;
    if (this.#briefs.size > MAX_BRIEFS && oldest !== undefined) this.#briefs.delete(oldest);
  }

  #recordOf(id: string, fields: Readonly<Record<string, string>>): ApprovalRecord | undefined {
    if (fields['state'] === undefined || fields['request'] === undefined) return undefined;
    const request = parsed(fields['request']) as ApprovalRequest | undefined;
    if (request?.id !== id || !verifyApproval(this.#signatures, request, fields['request'], fields['signature'] ?? ''))
      return undefined;
    const { preview, decision } = fields;
    const shown =
      preview !== undefined && this.#signatures.verify('preview', id, preview, fields['previewSignature'] ?? '');
    const verified =
      decision !== undefined && this.#signatures.verify('decision', id, decision, fields['decisionSignature'] ?? '')
        ? (JSON.parse(decision) as Decision)
        : undefined;
    return {
      state: fields['state'] as ApprovalState,
      request,
      ...(shown ? { preview: parsed(preview) as Preview } : {}),
      ...(verified === undefined ? {} : { decision: verified }),
      ...(fields['decidedAtMs'] === undefined ? {} : { decidedAtMs: Number(fields['decidedAtMs']) }),
      announced: fields['announced'] === '1',
    };
  }

  /** The newest approval of a call; undefined for what is no call's ID, or a call that needed none. */
  async idOfCall(callId: string): Promise<string | undefined> {
    const partition = partitionOf(callId);
    if (partition === undefined) return undefined;
    return (await this.#redis.hget(this.#ledger.keys(partition).record(callId), 'approval')) ?? undefined;
  }

  /**
   * A call's record with the parameters that ran, which the approver may have edited. Throws `CALL_NOT_COMPENSABLE` when they are not known
   * any more.
   */
  async callAsItRan(callId: string): Promise<CallRecord | undefined> {
    const call = await this.#ledger.read(callId);
    if (call?.approvalId === undefined) return call;
    const decision = (await this.read(call.approvalId))?.decision;
    if (decision === undefined)
      throw new PawlError(
        'CALL_NOT_COMPENSABLE',
        `Call ${call.callId} cannot be undone: the approval that says with which parameters it ran is not there any more.`,
      );
    const { params } = decision;
    if (params === undefined) return call;
    return { ...call, request: { ...call.request, envelope: withParams(call.request.envelope, params) } };
  }

  /**
   * Lists the approvals of one partition, the newest first; `pending` ones by the time that is left. Reads a few at a time until there are
   * enough.
   */
  async list<Approval extends ApprovalRecord>(
    partition: Partition,
    { pending, limit, among = Number.POSITIVE_INFINITY, isWanted = () => true }: ApprovalSearch,
    read: ReadApproval<Approval>,
  ): Promise<Approval[]> {
    const { approvals } = this.#ledger.keys(partition);
    const wanted: Approval[] = [];
    for (let first = 0; wanted.length < limit && first < among; first += LISTED_AT_ONCE) {
      const last = Math.min(first + LISTED_AT_ONCE, among) - 1;
      const ids = pending
        ? await this.#redis.zrange(`${approvals}s:pending`, String(first), String(last))
        : await this.#redis.zrevrange(`${approvals}s`, first, last);
      for (let next = 0; next < ids.length && wanted.length < limit; next += READ_AT_ONCE) {
        const records = await Promise.all(ids.slice(next, next + READ_AT_ONCE).map(read));
        wanted.push(
          ...records.filter((record): record is Awaited<Approval> => record !== undefined && isWanted(record)),
        );
      }
      if (ids.length < LISTED_AT_ONCE) break;
    }
    return wanted.slice(0, limit);
  }

  /** Writes down what the tool says about the call. */
  async addPreview(id: string, preview: Preview): Promise<void> {
    const keys = this.#placed(id);
    if (keys === undefined) return;
    const text = JSON.stringify(preview);
    await this.#redis.hset(`${keys.approvals}:${id}`, {
      preview: text,
      previewSignature: this.#signatures.sign('preview', id, text),
    });
  }

  async markAnnounced(id: string): Promise<void> {
    const keys = this.#placed(id);
    if (keys !== undefined) await this.#redis.hset(`${keys.approvals}:${id}`, 'announced', '1');
  }

  /** Approves or denies, once: queues the call, or ends it with an outcome, as also the call of a plan that is approved. */
  decide(record: ApprovalRecord, decision: Decision, outcome: Outcome): Promise<DecideAnswer> {
    return this.#decide(record, decision.decision === 'approve' ? 'approved' : 'denied', decision, outcome);
  }

  /** Ends an approval whose time is over, and its call. */
  expire(record: ApprovalRecord, expired: Outcome): Promise<DecideAnswer> {
    return this.#decide(record, 'expired', undefined, expired);
  }

  /**
   * As long as the call, which may be undone with the parameters that were approved: from when it has ended, for which it may wait for its
   * start, then as long as its decision holds, and then run.
   */
  #keptMs({ tool, plan, startAtMs = 0 }: ApprovalRequest, to: ApprovalEnd, nowMs: number): number {
    const { doneMs } = ttlsOf(this.#settings, tool);
    if (to !== 'approved') return doneMs;
    const validMs = plan === undefined ? DECISION_VALID_MS : PLAN_VALID_MS;
    return doneMs + Math.max(0, startAtMs - nowMs) + validMs + LONG_RUN_MS;
  }

  #lifeOf({ tool }: ApprovalRequest, outcome: Outcome): RecordLife {
    const ttls = ttlsOf(this.#settings, tool);
    if (outcome.status === 'success') return { ttlMs: ttls.doneMs };
    return isUnresolved(outcome) ? lifeOfUnresolved(ttls) : lifeOfFailure(ttls);
  }

  async #decide(
    { request }: ApprovalRecord,
    to: ApprovalEnd,
    decision: Decision | undefined,
    outcome: Outcome,
  ): Promise<DecideAnswer> {
    const { id, callId, generation, tool, plan } = request;
    const keys = this.#placed(id);
    if (keys === undefined) return { kind: 'gone' };
    const nowMs = await this.#ledger.now();
    // Greater than the one it waited under: whatever carried the call until here is of another life.
    const next = String(Math.max(nowMs, Number(generation) + 1));
    // No worker runs the call of a plan: its approval is its success.
    const isRun = to === 'approved' && plan === undefined;
    const signed = isRun ? await resignRequest(this.#ledger.access, callId, next) : undefined;
    if (typeof signed === 'string') return { kind: signed };
    const job: CallJob = { callId, generation: next, session: request.session.key };
    const waiting = jobIdOf(callId, generation);
    const text = decision === undefined ? '' : JSON.stringify(decision);
    const outcomeJson = isRun ? '' : JSON.stringify(outcome);
    const ended = to === 'approved' ? 'done' : 'failed';
    const life = this.#lifeOf(request, outcome);
    const answer = await decideScript.run(
      this.#redis,
      [
        `${keys.approvals}:${id}`,
        `${keys.approvals}s:pending`,
        keys.record(callId),
        keys.inflight,
        keys.job(waiting),
        keys.job('delayed'),
        keys.inDoubt,
        keys.base,
      ],
      [
        id,
        to,
        text,
        text === '' ? '' : this.#signatures.sign('decision', id, text),
        callId,
        this.#keptMs(request, to, nowMs),
        outcomeJson,
        outcomeJson === '' ? '' : this.#signatures.sign('outcome', [callId, ended], outcomeJson),
        life.ttlMs,
        keys.inboxes,
        next,
        signed?.signature ?? '',
        waiting,
        uuidv7(),
        life.freeAfterMs ?? '',
        (plan === undefined ? this.#ledger.access.deadLetterMs(callId) : undefined) ?? '',
        ...enqueueArguments(keys, tool.name, job),
      ],
    );
    return decideAnswerOf(answer);
  }
}

function decideAnswerOf([code, , more]: readonly unknown[]): DecideAnswer {
  switch (code) {
    case 'already':
      return { kind: 'already', state: more as ApprovalState };
    case 'early':
      return { kind: 'early', remainingMs: Number(more) };
    default:
      return { kind: code as 'decided' | 'late' | 'gone' };
  }
}

function briefOf(record: ApprovalRecord): BriefApproval {
  const { request, preview, decision } = record;
  const paramsJson = JSON.stringify(request.params);
  const brief = {
    request: briefRequest(request, paramsJson),
    ...(preview === undefined ? {} : { preview: briefPreview(preview) }),
    ...(decision === undefined ? {} : { decision: briefDecision(decision) }),
  };
  const shortened = brief.request !== request || brief.preview !== preview || brief.decision !== decision;
  return { ...record, ...brief, shortened, paramsBytes: Buffer.byteLength(paramsJson) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
