/** Claiming a call: the first writer of an identity gets it; every other one receives the state of that call. */
import type { ApprovalRequest } from '../../approvals/approval.ts';
import type { CallbackAddress } from '../../callbacks/callback.ts';
import { isMerged, type RequestNaming, requestNameOf } from '../../calls/call-id.ts';
import type { CallState, Phase } from '../../calls/call-state.ts';
import type { DedupeMode } from '../../calls/envelope.ts';
import type { StartTime } from '../../calls/start-time.ts';
import { PawlError } from '../../errors/failure.ts';
import { type Account, type Spends, UNITS, type Unit } from '../../limits/budget.ts';
import { queueNameOf } from '../../queues/priority.ts';
import { isLong } from '../../util/json/json-stream.ts';
import { largeJson } from '../../util/json/large-json.ts';
import { signedCallback } from '../callbacks/callbacks.ts';
import { DEAD_LETTER_LUA } from '../dead-letters/dead-letter-index.ts';
import { budgetArguments, reserve, type Spent } from '../limits/budgets.ts';
import { ENQUEUE_DELAYED_LUA, ENQUEUE_LUA, jobData, PUSH_LUA } from '../queues/jobs.ts';
import { backendError } from '../redis/backend-error.ts';
import { PartitionBatches } from '../redis/batching.ts';
import type { PartitionKeys } from '../redis/keys.ts';
import { luaFunction, Script } from '../redis/script.ts';
import { asLost, SEGMENT_LUA } from '../segments/segments.ts';
import { PRUNE_LUA } from './call-index.ts';
import { needOf, type StoredRequest, withParams } from './call-record.ts';
import { endedAnswer, type FinishedCall, forgedAnswer } from './finished-call.ts';
import { CARRY_LUA, type LedgerAccess, PARTITION_LUA } from './ledger-context.ts';
import { parseRequest, requestText } from './records/request-text.ts';
import { signApproval, signRequest } from './records/signed-records.ts';

export interface Claim {
  readonly callId: string;
  readonly mergeId?: string;
  /** Shadow mode: look for the call that this one would have met, and run it all the same. */
  readonly shadow?: { readonly slotId: string; readonly derived: boolean };
  /** Counts how often a session makes this very call. */
  readonly loop?: { readonly loopId: string; readonly refuseAt: number; readonly windowMs: number };
  /** The number of calls in flight in the tier at which no further call like this one is accepted. */
  readonly room?: number;
  /** The queue in which the call waits when others do (`lineOf`). Default: that of normal calls of no tenant. */
  readonly line?: string;
  readonly spends?: Spends;
  readonly mode: DedupeMode;
  readonly paramsDigest: string;
  readonly request: StoredRequest;
  readonly generation: string;
  readonly circuit: string;
  /** The finished job may be kept for Bull Board. */
  readonly kept: boolean;
  /** The tool's effects are `once`: an attempt must not start unless its worker receives the answer. Default: no. */
  readonly once?: boolean;
  /** The inbox of the producer that waits, if any. */
  readonly inboxId?: string;
  /** The call starts at this time on Redis' clock. */
  readonly start?: StartTime;
  /** The end of the call is posted there. */
  readonly callback?: CallbackAddress;
  /** The call waits for a person's decision before it is queued. */
  readonly approval?: ApprovalRequest;
  readonly record?: string;
}

export type ClaimAnswer =
  | {
      readonly kind: 'claimed';
      readonly callId: string;
      /** Shadow mode: what the call would have met. */
      readonly duplicateOf?: CallState | 'conflict';
      /** How often the session made this very call, this time included, when that is counted. */
      readonly repetitions?: number;
      /** This very request was submitted before: it took from no budget and asked for no approval. */
      readonly again?: true;
    }
  /** The session made this very call too often: nothing was claimed. */
  | { readonly kind: 'loop'; readonly callId: string; readonly repetitions: number; readonly retryAfterMs: number }
  /** The tier takes no more calls of this importance: nothing was claimed. */
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
  /** The call succeeded, and its record is lost: it does not run again. */
  | { readonly kind: 'lost'; readonly callId: string; readonly message: string }
  /** The call was to start in the past, and is not known: nothing was claimed. */
  | { readonly kind: 'past'; readonly callId: string; readonly nowMs: number };

/** In one step: enough to share what a step costs, and few enough for Redis and the callers to work at the same time. */
const MAX_CLAIMS = 16;
/** A claim goes round again when the call's record was brought back from its segment. */
const MOST_ROUNDS = 3;

const claimsScript = new Script(new URL('./claim-batch.lua', import.meta.url), [
  PARTITION_LUA,
  CARRY_LUA,
  ...DEAD_LETTER_LUA,
  ...ENQUEUE_LUA,
  ENQUEUE_DELAYED_LUA,
  ...PUSH_LUA,
  ...SEGMENT_LUA,
  PRUNE_LUA,
  luaFunction(new URL('./claim.lua', import.meta.url)),
]);

interface Asked {
  readonly args: readonly (string | number)[];
  readonly record: string | undefined;
}

/** Claims calls and queues their jobs. Calls of one partition that are submitted at the same time share one step. */
export class ClaimWriter {
  readonly #access: LedgerAccess;
  readonly #batches = new PartitionBatches<Asked, unknown[]>(MAX_CLAIMS, (keys, asked) => this.#claim(keys, asked));

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  claim(claim: Claim): Promise<ClaimAnswer> {
    return isLong(claim.request.envelope.payload.params) ? this.#claimLarge(claim) : this.#claimPaid(claim);
  }

  /** Writes the parameters first. Where the call is another's, they are not needed. */
  async #claimLarge(claim: Claim): Promise<ClaimAnswer> {
    const { texts } = this.#access;
    const { envelope } = claim.request;
    const text = await largeJson(envelope.payload.params);
    const key = this.#access.placed(claim.callId).params(claim.callId, text.id);
    const largeParams = { id: text.id, ...(await texts.write(key, text)) };
    const request = { ...claim.request, envelope: withParams(envelope, {}), largeParams };
    const answer = await this.#claimPaid({ ...claim, request });
    if (answer.kind !== 'claimed') texts.remove(key).catch(() => {});
    return answer;
  }

  #claimPaid(claim: Claim): Promise<ClaimAnswer> {
    const { spends, ...free } = claim;
    return this.#access.clustered && spends !== undefined ? this.#claimReserved(free, spends) : this.#claimOne(claim);
  }

  /** Its budgets are on another node: they are taken before, and given back when nothing of the call runs. */
  async #claimReserved(claim: Claim, spends: Spends): Promise<ClaimAnswer> {
    const reserved = await reserve(this.#access, spends);
    if ('spent' in reserved) {
      // Without any room, only a call that is known already gets another answer.
      const known = await this.#claimOne({ ...claim, room: 0 });
      return known.kind === 'overloaded' ? spentAnswer(claim.callId, spends, reserved.spent) : known;
    }
    const answer = await this.#claimOne(claim);
    if (answer.kind !== 'claimed' || answer.again) await reserved.giveBack();
    return answer;
  }

  async #claimOne(claim: Claim): Promise<ClaimAnswer> {
    const access = this.#access;
    const keys = access.placed(claim.callId);
    const asked = askedOf(access, keys, claim);
    for (let round = 1; round <= MOST_ROUNDS; round += 1) {
      const answer = await this.#batches.add(keys, asked);
      if (answer[0] !== 'moved') return claimAnswerOf(access, claim, answer);
      // The copy of its record answers the next claim; a record that has ended leaves the key free.
      const callId = answer[1] as string;
      const lost = await access.segments.restore(callId).then(() => undefined, asLost);
      if (lost !== undefined) return { kind: 'lost', callId, message: lost.message };
    }
    throw new PawlError('BACKEND_UNAVAILABLE', `The record of ${claim.callId} is being moved. Try again.`);
  }

  async #claim(keys: PartitionKeys, asked: readonly Asked[]): Promise<(unknown[] | Error)[]> {
    const { retentionMs, records } = this.#access;
    const args: (string | number)[] = [asked.length, retentionMs];
    for (const one of asked) args.push(one.args.length, ...one.args);
    const touched = [...this.#access.bases(keys), keys.job('')];
    const { answers, told } = await this.#access.carry(claimsScript, touched, args, asked.length);
    return (answers as unknown[][]).map((answer, index) => {
      const record = asked[index]?.record;
      if (!told && answer[0] === 'claimed' && record !== undefined) records?.add(record);
      return answer[0] === 'error' ? (backendError(new Error(String(answer[1]))) as Error) : answer;
    });
  }
}

function askedOf(access: LedgerAccess, keys: PartitionKeys, claim: Claim): Asked {
  const { callId, generation, shadow, loop, record, callback } = claim;
  const request = requestText(
    callback === undefined ? claim.request : { ...claim.request, callback: signedCallback(access, callId, callback) },
  );
  return {
    args: [
      callId,
      termsOf(claim),
      // Apart from those of calls that merge: what shadow calls are called does not say what they ask for.
      shadow === undefined ? slotOfMerge(claim) : `shadow.${shadow.slotId}`,
      claim.inboxId ?? '',
      claim.paramsDigest,
      request,
      generation,
      signRequest(access.signatures, { callId, generation, resolution: '', text: request }),
      jobData({ callId, generation, session: claim.request.envelope.target.sessionKey }, claim.kept),
      loop?.loopId ?? '',
      claim.request.largeParams === undefined ? '' : keys.params(callId, claim.request.largeParams.id),
      access.clustered ? '' : (record ?? ''),
      ...budgetArguments(access, claim.spends),
      ...approvalArguments(access, claim.approval),
    ],
    record,
  };
}

/** The slot, and behind a line break the part of the request that names it: a record that was merged keeps that alone. */
function slotOfMerge({ mergeId, request }: Claim): string {
  if (mergeId === undefined) return '';
  const { toolCallId, requestId, target, control } = request.envelope;
  const { requestTags } = control;
  const naming: RequestNaming = {
    ...(toolCallId === undefined ? {} : { toolCallId }),
    requestId,
    target,
    control: requestTags === undefined ? {} : { requestTags },
  };
  return `${mergeId}\n${JSON.stringify(naming)}`;
}

/** The terms of a claim, the same text for all calls of one tool in one session: `claim.lua` parses each text once. */
function termsOf(claim: Claim): string {
  const { shadow, mergeId, loop, request } = claim;
  const { toolNamespace, toolName, target } = request.envelope;
  const terms = {
    /** The use of the merge slot: the call merges with the call that holds it, or reports what it would have merged with, ended or not. */
    slot: shadow === undefined ? mergeId && 'merge' : shadow.derived ? 'shadow-inflight' : 'shadow',
    mode: claim.mode,
    circuit: claim.circuit,
    /** It must not start twice. */
    once: claim.once,
    /** Its end is posted. */
    callback: claim.callback && true,
    /** Name of its job. */
    job: toolName,
    /** The job may be kept after its end. */
    kept: claim.kept,
    /** Count at which the session has made this very call too often, and how long that is counted. */
    refuseAt: loop?.refuseAt,
    windowMs: loop?.windowMs,
    tool: `${toolNamespace}.${toolName}`,
    /** Calls in flight at which the tier takes no more like it. */
    room: claim.room,
    startAt: claim.start?.atMs,
    isPast: claim.start?.isPast === true ? true : undefined,
    line: claim.line ?? queueNameOf('normal', undefined, 1),
    session: target.sessionKey,
    need: needOf(request),
  };
  return JSON.stringify(terms);
}

async function claimAnswerOf(access: LedgerAccess, claim: Claim, answer: unknown[]): Promise<ClaimAnswer> {
  const [code, callId] = answer as [string, string];
  const nowMs = Number(answer[2]);
  if (callId !== claim.callId && access.signatures.present && !isMergedInto(claim, callId, leadingRequest(answer)))
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
        ...(answer[5] === '1' ? { again: true } : {}),
      };
    }
    case 'conflict':
      return { kind: code, callId };
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
    default:
      return endedAnswer(access, callId, [code, ...answer.slice(2)]);
  }
}

/** The request of a call that the claimed one was merged into. */
function leadingRequest([code, ...answer]: readonly unknown[]): unknown {
  return code === 'inflight' ? answer[4] : answer[7];
}

/** Checks that the call was merged into the other one. Any writer to Redis can put another call's ID into a record. */
function isMergedInto({ callId, request, paramsDigest }: Claim, leadingId: string, leading: unknown): boolean {
  if (typeof leading !== 'string') return false;
  const { envelope } = parseRequest(leading);
  return isMerged(callId, requestNameOf(request.envelope), { callId: leadingId, envelope, paramsDigest });
}

function spentAnswer(
  callId: string,
  spends: Spends | undefined,
  [budget, unitNumber, spent, leftMs]: Spent,
): ClaimAnswer {
  const account = spends?.accounts[Number(budget)];
  const unit = UNITS[Number(unitNumber) - 1];
  if (account === undefined || unit === undefined) throw new Error('a script named a budget that was not asked for');
  return { kind: 'spent', callId, account, unit, spent: Number(spent), leftMs: Math.max(0, Number(leftMs)) };
}

function approvalArguments(access: LedgerAccess, approval: ApprovalRequest | undefined): (string | number)[] {
  if (approval === undefined) return [];
  const request = JSON.stringify(approval);
  return [request, signApproval(access.signatures, approval, request), approval.id, approval.expiresAtMs];
}
