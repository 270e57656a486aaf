/** Claiming a call: the first writer of an identity creates the call; every later one receives its state. */
import type { ApprovalRequest } from '../../../approvals/approval.ts';
import type { CallbackAddress } from '../../../callbacks/callback.ts';
import { isMerged, type RequestIdentity, requestNameOf } from '../../../calls/call-id.ts';
import type { CallState, Phase } from '../../../calls/call-state.ts';
import type { DedupeMode } from '../../../calls/envelope.ts';
import type { StartTime } from '../../../calls/start-time.ts';
import { PawlError } from '../../../errors/failure.ts';
import type { DriverStep } from '../../../groups/group.ts';
import { type Account, type BudgetCharge, UNITS, type Unit } from '../../../limits/budget.ts';
import { queueNameOf } from '../../../queues/priority.ts';
import { isLong } from '../../../util/json/json-stream.ts';
import { largeJson } from '../../../util/json/large-json.ts';
import { signedCallback } from '../../callbacks/callbacks.ts';
import { DEAD_LETTER_LUA } from '../../dead-letters/dead-letter-index.ts';
import { budgetArguments, reserve, type Spent } from '../../limits/budgets.ts';
import { ENQUEUE_DELAYED_LUA, ENQUEUE_LUA, jobData, PUSH_LUA } from '../../queues/jobs.ts';
import { backendError } from '../../redis/backend-error.ts';
import { PartitionBatches } from '../../redis/batching.ts';
import type { PartitionKeys } from '../../redis/keys.ts';
import { luaFunction, Script } from '../../redis/script.ts';
import { asLost, SEGMENT_LUA } from '../../segments/segments.ts';
import { PRUNE_LUA } from '../call-index.ts';
import { needOf, type StoredRequest, withParams } from '../call-record.ts';
import { type FinishedCall, forgedAnswer, parseEndedAnswer } from '../finished-call.ts';
import { ADD_RECORDS_LUA, AWAIT_APPROVAL_LUA, type LedgerAccess, PARTITION_LUA } from '../ledger-context.ts';
import { parseRequest, requestText } from '../records/request-text.ts';
import { approvalArguments, signRequest } from '../records/signed-records.ts';

export interface Claim {
  readonly callId: string;
  readonly mergeId?: string;
  /** Shadow mode: report the call that this one would have merged with, and run it anyway. */
  readonly shadow?: { readonly slotId: string; readonly derived: boolean };
  /** Counts how often a session repeats this call. */
  readonly loop?: { readonly loopId: string; readonly refuseAt: number; readonly windowMs: number };
  /** The call is refused when the tier has this many calls in flight. */
  readonly maxInflight?: number;
  /** The name of the fair queue for the call (`queueNameOf`). Default: normal priority, no tenant. */
  readonly fairQueue?: string;
  readonly spends?: BudgetCharge;
  readonly mode: DedupeMode;
  readonly paramsDigest: string;
  readonly request: StoredRequest;
  readonly generation: string;
  readonly circuit: string;
  /** Keep the finished job for Bull Board, within the limit of each second. */
  readonly keepJob: boolean;
  /** The tool's effects are `once`: an attempt must not start before its worker has received the answer. Default: no. */
  readonly once?: boolean;
  /** The inbox of the producer that waits, if any. */
  readonly inboxId?: string;
  /** The call starts at this time on Redis' clock. */
  readonly start?: StartTime;
  /** The address to which the end of the call is posted. */
  readonly callback?: CallbackAddress;
  /** The call belongs to a batch or plan, whose driver began it with this step. */
  readonly step?: DriverStep;
  /** The call waits for a person's decision before it is queued. */
  readonly approval?: ApprovalRequest;
  readonly auditRecord?: string;
}

export type ClaimAnswer =
  | {
      readonly kind: 'claimed';
      readonly callId: string;
      /** Shadow mode: the state of the call that this one would have merged with. */
      readonly duplicateOf?: CallState | 'conflict';
      /** How often the session made this call, this time included, if that is counted. */
      readonly repetitions?: number;
      /** The same request was submitted before: nothing was taken from budgets, and no approval was requested. */
      readonly resubmitted?: true;
    }
  /** The session repeated this call too often: nothing was claimed. */
  | { readonly kind: 'loop'; readonly callId: string; readonly repetitions: number; readonly retryAfterMs: number }
  /** The tier accepts no more calls of this priority: nothing was claimed. */
  | { readonly kind: 'overloaded'; readonly callId: string; readonly inflight: number }
  /** A budget is spent: nothing was claimed. */
  | {
      readonly kind: 'spent';
      readonly callId: string;
      readonly account: Account;
      readonly unit: Unit;
      readonly spent: number;
      /** Until its window ends. */
      readonly leftMs: number;
    }
  | { readonly kind: 'inflight'; readonly callId: string; readonly phase: Phase; readonly ageMs: number }
  | FinishedCall
  | { readonly kind: 'conflict'; readonly callId: string }
  /** The call succeeded, but its record is lost: it does not run again. */
  | { readonly kind: 'lost'; readonly callId: string; readonly message: string }
  /** A new call whose start is in the past: nothing was claimed. */
  | { readonly kind: 'past'; readonly callId: string; readonly nowMs: number };

/** Claims of one script run: enough to share its cost, and few enough that Redis and the callers work in parallel. */
const MAX_CLAIMS = 16;
/** A claim is repeated when the call's record was restored from its segment. */
const MAX_ROUNDS = 3;

const claimsScript = new Script(new URL('./claim-batch.lua', import.meta.url), [
  PARTITION_LUA,
  ADD_RECORDS_LUA,
  ...DEAD_LETTER_LUA,
  ...ENQUEUE_LUA,
  ENQUEUE_DELAYED_LUA,
  ...PUSH_LUA,
  ...SEGMENT_LUA,
  PRUNE_LUA,
  AWAIT_APPROVAL_LUA,
  luaFunction(new URL('./find-call.lua', import.meta.url)),
  luaFunction(new URL('./answer-repeated.lua', import.meta.url)),
  luaFunction(new URL('./admit-call.lua', import.meta.url)),
  luaFunction(new URL('./find-duplicate.lua', import.meta.url)),
  luaFunction(new URL('./write-call.lua', import.meta.url)),
  luaFunction(new URL('./index-call.lua', import.meta.url)),
  luaFunction(new URL('./enqueue-call.lua', import.meta.url)),
  luaFunction(new URL('./claim.lua', import.meta.url)),
]);

interface ClaimArguments {
  readonly args: readonly (string | number)[];
  readonly auditRecord: string | undefined;
}

/** Claims calls and enqueues their jobs. Concurrent claims in one partition share one script run. */
export class ClaimWriter {
  readonly #access: LedgerAccess;
  readonly #batches = new PartitionBatches<ClaimArguments, unknown[]>(MAX_CLAIMS, (keys, claims) =>
    this.#claimBatch(keys, claims),
  );

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  claim(claim: Claim): Promise<ClaimAnswer> {
    return isLong(claim.request.envelope.payload.params) ? this.#claimLarge(claim) : this.#claimWithBudgets(claim);
  }

  /** Writes the parameters first, and removes them if the claim does not create the call. */
  async #claimLarge(claim: Claim): Promise<ClaimAnswer> {
    const { texts } = this.#access;
    const { envelope } = claim.request;
    const text = await largeJson(envelope.payload.params);
    const key = this.#access.callKeys(claim.callId).params(claim.callId, text.id);
    const largeParams = { id: text.id, ...(await texts.write(key, text)) };
    const request = { ...claim.request, envelope: withParams(envelope, {}), largeParams };
    const answer = await this.#claimWithBudgets({ ...claim, request });
    if (answer.kind !== 'claimed') this.#removeUnused(claim.callId, key).catch(() => {});
    return answer;
  }

  /** A claim that was sent again, because its first answer was lost, may have created the call, which has ended since. */
  async #removeUnused(callId: string, key: string): Promise<void> {
    const { redis, texts } = this.#access;
    const used = await redis.hget(this.#access.callKeys(callId).record(callId), 'paramsAt');
    if (used !== key) await texts.remove(key);
  }

  #claimWithBudgets(claim: Claim): Promise<ClaimAnswer> {
    const { spends, ...free } = claim;
    return this.#access.clustered && spends !== undefined ? this.#claimReserved(free, spends) : this.#claimOne(claim);
  }

  /** Takes budgets before the claim, because in a cluster they are on another node. Refunds them if no new call runs. */
  async #claimReserved(claim: Claim, spends: BudgetCharge): Promise<ClaimAnswer> {
    const reserved = await reserve(this.#access, spends);
    if ('spent' in reserved) {
      // With no capacity, only an existing call gets another answer than `overloaded`.
      const existing = await this.#claimOne({ ...claim, maxInflight: 0 });
      return existing.kind === 'overloaded' ? spentAnswer(claim.callId, spends, reserved.spent) : existing;
    }
    const answer = await this.#claimOne(claim);
    if (answer.kind !== 'claimed' || answer.resubmitted) await reserved.giveBack();
    return answer;
  }

  async #claimOne(claim: Claim): Promise<ClaimAnswer> {
    const access = this.#access;
    const keys = access.callKeys(claim.callId);
    const claimArgs = claimArguments(access, keys, claim);
    for (let round = 1; round <= MAX_ROUNDS; round += 1) {
      const answer = await this.#batches.add(keys, claimArgs);
      if (answer[0] !== 'moved') return parseClaimAnswer(access, claim, answer);
      // The next round reads the restored copy. If the record has expired, the key is free.
      const callId = answer[1] as string;
      const lost = await access.segments.restore(callId).then(() => undefined, asLost);
      if (lost !== undefined) return { kind: 'lost', callId, message: lost.message };
    }
    throw new PawlError('BACKEND_UNAVAILABLE', `The record of ${claim.callId} is being moved. Try again.`);
  }

  async #claimBatch(keys: PartitionKeys, claims: readonly ClaimArguments[]): Promise<(unknown[] | Error)[]> {
    const { retentionMs, auditWriter: records } = this.#access;
    const args: (string | number)[] = [claims.length, retentionMs];
    for (const claim of claims) args.push(claim.args.length, ...claim.args);
    const isSingle = claims.length === 1;
    const claimKeys = [...this.#access.bases(keys), keys.job('')];
    const { answers, recordsWritten } = await this.#access.runWithRecords(claimsScript, claimKeys, args, isSingle);
    return (answers as unknown[][]).map((answer, index) => {
      const record = claims[index]?.auditRecord;
      if (!recordsWritten && answer[0] === 'claimed' && record !== undefined) records?.add(record);
      return answer[0] === 'error'
        ? (backendError(new Error(String(answer[1])), `a key of the call ${claims[index]?.args[0]}`) as Error)
        : answer;
    });
  }
}

function claimArguments(access: LedgerAccess, keys: PartitionKeys, claim: Claim): ClaimArguments {
  const { callId, generation, shadow, loop, auditRecord: record, callback } = claim;
  const request = requestText(
    callback === undefined ? claim.request : { ...claim.request, callback: signedCallback(access, callId, callback) },
  );
  return {
    args: [
      callId,
      claimTerms(claim),
      // Shadow slots are separate from merge slots: the name of a shadow call says nothing about its parameters.
      shadow === undefined ? mergeSlot(claim) : `shadow.${shadow.slotId}`,
      claim.inboxId ?? '',
      claim.paramsDigest,
      request,
      generation,
      signRequest(access.signatures, { callId, generation, resolution: '', text: request }),
      jobData({ callId, generation, session: claim.request.envelope.target.sessionKey }, claim.keepJob),
      loop?.loopId ?? '',
      claim.request.largeParams === undefined ? '' : keys.params(callId, claim.request.largeParams.id),
      access.clustered ? '' : (record ?? ''),
      ...budgetArguments(access, claim.spends),
      ...approvalArguments(access, claim.approval),
    ],
    auditRecord: record,
  };
}

/** The merge slot, a line break and the naming part of the request. The record of a merged call keeps only that part. */
function mergeSlot({ mergeId, request }: Claim): string {
  if (mergeId === undefined) return '';
  const { toolCallId, requestId, target, control } = request.envelope;
  const { requestTags } = control;
  const naming: RequestIdentity = {
    ...(toolCallId !== undefined && { toolCallId }),
    requestId,
    target,
    control: requestTags === undefined ? {} : { requestTags },
  };
  return `${mergeId}\n${JSON.stringify(naming)}`;
}

/** The terms of a claim, the same text for all calls of one tool in one session: `claim.lua` parses each text once. */
function claimTerms(claim: Claim): string {
  const { shadow, mergeId, loop, request } = claim;
  const { toolNamespace, toolName, target } = request.envelope;
  const terms = {
    /** `merge` merges with the call in the slot; `shadow` reports it; `shadow-inflight` reports it while it is in flight. */
    slot: shadow === undefined ? mergeId && 'merge' : shadow.derived ? 'shadow-inflight' : 'shadow',
    mode: claim.mode,
    circuit: claim.circuit,
    once: claim.once,
    callback: claim.callback && true,
    /** The name of its job. */
    job: toolName,
    kept: claim.keepJob,
    refuseAt: loop?.refuseAt,
    windowMs: loop?.windowMs,
    tool: `${toolNamespace}.${toolName}`,
    maxInflight: claim.maxInflight,
    startAt: claim.start?.atMs,
    isPast: claim.start?.isPast === true ? true : undefined,
    line: claim.fairQueue ?? queueNameOf('normal', undefined, 1),
    session: target.sessionKey,
    need: needOf(request),
    step: claim.step,
  };
  return JSON.stringify(terms);
}

async function parseClaimAnswer(access: LedgerAccess, claim: Claim, answer: unknown[]): Promise<ClaimAnswer> {
  const [code, callId = claim.callId] = answer as [string, string?];
  const nowMs = Number(answer[2]);
  if (callId !== claim.callId && access.signatures.hasKeys && !isMergedInto(claim, callId, leaderRequest(answer)))
    return forgedAnswer(access, claim.callId);
  switch (code) {
    case 'claimed': {
      const repetitions = Number(answer[4] ?? 0);
      const duplicateOf = answer[3] as CallState | 'conflict' | null | undefined;
      return {
        kind: code,
        callId,
        ...(duplicateOf ? { duplicateOf } : {}),
        ...(repetitions > 0 ? { repetitions } : {}),
        ...(answer[5] === '1' ? { resubmitted: true } : {}),
      };
    }
    case 'conflict':
      return { kind: code, callId };
    case 'stale':
      throw new PawlError('BACKEND_UNAVAILABLE', `The batch or plan of ${callId} is driven by another process.`);
    case 'past':
      return { kind: code, callId, nowMs };
    case 'overloaded':
      return { kind: code, callId, inflight: Number(answer[3]) };
    case 'spent':
      return spentAnswer(callId, claim.spends, answer.slice(3) as unknown as Spent);
    case 'loop':
      return { kind: code, callId, repetitions: Number(answer[3]), retryAfterMs: Math.max(0, Number(answer[4])) };
    case 'inflight':
      return { kind: 'inflight', callId, phase: answer[3] as Phase, ageMs: nowMs - Number(answer[4]) };
    default: {
      const [outcome, endedAt, ...rest] = answer.slice(3);
      return parseEndedAnswer(access, callId, [code, nowMs - Number(endedAt), outcome, ...rest]);
    }
  }
}

/** The request of the call into which the claimed one was merged. */
function leaderRequest([code, ...answer]: readonly unknown[]): unknown {
  return code === 'inflight' ? answer[4] : answer[7];
}

/** Whether the call really was merged into the other one: anyone who can write to Redis can put another call's ID into a record. */
function isMergedInto({ callId, request, paramsDigest }: Claim, leaderId: string, leader: unknown): boolean {
  if (typeof leader !== 'string') return false;
  const { envelope } = parseRequest(leader);
  return isMerged(callId, requestNameOf(request.envelope), { callId: leaderId, envelope, paramsDigest });
}

function spentAnswer(
  callId: string,
  spends: BudgetCharge | undefined,
  [budget, unitNumber, spent, leftMs]: Spent,
): ClaimAnswer {
  const account = spends?.accounts[Number(budget)];
  const unit = UNITS[Number(unitNumber) - 1];
  if (account === undefined || unit === undefined) throw new Error('a script named a budget that is not in the claim');
  return { kind: 'spent', callId, account, unit, spent: Number(spent), leftMs: Math.max(0, Number(leftMs)) };
}
