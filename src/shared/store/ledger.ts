/**
 * The ledger: the durable record of every call (R11 to R16). Each method is one Lua script that checks before it writes.
 */
import type { ApprovalRequest } from '../approval.ts';
import { type Account, type Limits, UNITS, type Unit } from '../budget.ts';
import type { AttemptRecord, CallState, Phase } from '../call.ts';
import type { DedupeMode, ToolCallEnvelope } from '../envelope.ts';
import { PawlError } from '../failure.ts';
import { placeOf } from '../fingerprint.ts';
import type { Outcome } from '../outcome.ts';
import type { RetryAllowance } from '../retry-budget.ts';
import { Seals } from '../seals.ts';
import type { InboxEvent } from './inbox.ts';
import { FleetKeys, type Place, PlaceKeys } from './keys.ts';
import { type CallJob, callOfJob, ENQUEUE_LUA, enqueueArguments, jobIdOf, KEPT_EVENTS, MOVE_LUA } from './queues.ts';
import { luaFunction, type Redis, Script } from './redis.ts';

/** Larger outcomes are stored once and fetched by those who want them. */
export const MAX_INLINE_OUTCOME_BYTES = 64 * 1_024;
/** Larger ones are not copied into the event that announces them: whoever waits reads the record. */
export const MAX_EVENT_OUTCOME_BYTES = 4 * 1_024;

/** As `claim.lua` divides the retention. */
const SIZE_PARTS = 24;
const FLUSH_BATCH = 200;
/** Longer than any straggler of a forgotten call lives. */
const FENCE_REMEMBERED_MS = 600_000;

/** What the record keeps of the request: the envelope, and what it was validated with. */
export interface StoredRequest {
  readonly envelope: ToolCallEnvelope;
  readonly tool: { readonly version: string; readonly definition: string };
  /** Seen by the tool and by those downstream. */
  readonly idempotencyKey: string;
  /** Handed in while the reliability layer was off: one attempt, and no circuit. */
  readonly direct?: boolean;
  /** Who handed the call in, where the front door knows them: they cannot approve it. */
  readonly submittedBy?: string;
  /** Kind of the channel that the session's requests reach, where policy asks for it. */
  readonly channel?: string;
  /** Names of the budgets that the time of its attempts is taken from. */
  readonly timed?: readonly string[];
}

export interface Claim {
  readonly callId: string;
  readonly mergeId?: string;
  /** Shadow mode: look for the call that this one would have met, and run it all the same. */
  readonly shadow?: { readonly slotId: string; readonly derived: boolean };
  /** Counts how often a session makes this very call (R26). */
  readonly loop?: { readonly loopId: string; readonly refuseAt: number; readonly windowMs: number };
  /** So many calls in flight in the tier, and no more like this one are taken (I20). */
  readonly room?: number;
  /** Taken from when the call is claimed (I17). */
  readonly spends?: { readonly accounts: readonly Account[]; readonly costUnits: number };
  readonly mode: DedupeMode;
  readonly paramsDigest: string;
  readonly request: StoredRequest;
  readonly generation: string;
  readonly circuit: string;
  /** Keep the finished job for Bull Board. */
  readonly kept: boolean;
  /** The tool's effects are `once`: an attempt must not start unless somebody hears of it. Default: no. */
  readonly once?: boolean;
  /** Who waits; absent when nobody does. */
  readonly inboxId?: string;
  /** The call waits for a person's decision before it is queued. */
  readonly approval?: ApprovalRequest;
}

export type ClaimAnswer =
  | {
      readonly kind: 'claimed';
      readonly callId: string;
      /** Shadow mode: what the call would have met. */
      readonly duplicateOf?: CallState | 'conflict';
      /** How often the session made this very call, this time included, when that is counted. */
      readonly repetitions?: number;
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
  | {
      readonly kind: 'ended';
      readonly callId: string;
      readonly state: Exclude<CallState, 'inflight'>;
      readonly outcome: string;
      readonly ageMs: number;
    }
  | { readonly kind: 'conflict'; readonly callId: string };

export interface BeginAttempt {
  readonly workerId: string;
  readonly leaseMs: number;
  /** Unique to this attempt: beginning twice with one token, because the first answer was lost, starts one attempt. */
  readonly token: string;
  /** The circuit's epoch under which this worker holds the probe. */
  readonly probeEpoch?: number;
  /** What to do with a call that lost an attempt before; default `accept`. */
  readonly suspects?: 'accept' | 'refuse';
}

export interface StartedAttempt {
  readonly kind: 'started';
  readonly nowMs: number;
  readonly fence: number;
  readonly request: StoredRequest;
  readonly earlier: readonly AttemptRecord[];
  readonly lostAttempts: number;
  /** The attempt before this one began and left no record, and nobody has decided what became of it. */
  readonly takenOver: boolean;
  readonly firstStartedAtMs: number;
  readonly circuit: string;
  /** As stored; see `breakers.ts`. */
  readonly circuitRaw: string;
  readonly cancelRequested: boolean;
  /** The approval that the call waited for. */
  readonly approvalId?: string;
  /** Names this life of the call, when it is not the first one: it was resolved as `retry`. */
  readonly resolution?: string;
}

export type BeginAnswer =
  | StartedAttempt
  | {
      readonly kind: 'circuit';
      readonly nowMs: number;
      readonly circuit: string;
      readonly circuitRaw: string;
      readonly request: StoredRequest;
      readonly fence: number;
      readonly earlier: readonly AttemptRecord[];
    }
  /** The request does not carry a valid signature: somebody without a key wrote it. */
  | { readonly kind: 'forged'; readonly fence: number }
  | { readonly kind: 'ended' }
  | { readonly kind: 'stale' }
  /** A person has not decided yet. */
  | { readonly kind: 'awaiting'; readonly nowMs: number; readonly approvalId: string }
  /** An attempt of the call was lost before, and the worker said that it wants no second call of that kind. */
  | { readonly kind: 'suspect'; readonly takenOver: boolean; readonly request: StoredRequest }
  | { readonly kind: 'early'; readonly remainingMs: number };

export type WriteAnswer = 'settled' | 'postponed' | 'fenced' | 'ended' | 'gone' | 'cancelled' | 'exhausted';

export interface Settle {
  readonly callId: string;
  readonly fence: number;
  readonly state: Exclude<CallState, 'inflight'>;
  readonly outcome: Outcome;
  /** The outcome as it is stored. */
  readonly outcomeJson: string;
  readonly attempts: readonly AttemptRecord[];
  readonly ttlMs: number;
  /** Success to be added to a circuit's window. */
  readonly sample?: {
    readonly circuit: string;
    readonly epoch: number;
    readonly windowSize: number;
    readonly windowMs: number;
  };
  /** A success puts retries back. */
  readonly refill?: RetryAllowance;
}

/** What a tool reported of its progress, as `tell` kept it. */
export interface ProgressReport {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

export interface KeptProgress {
  readonly fence: number;
  /** Counted over all attempts of the call. */
  readonly number: number;
  readonly event: ProgressReport;
}

/** What became of the calls that a flush looked at. */
export interface Flushed {
  flushed: number;
  inflight: number;
  /** Their outcome is unknown: resolve them first. */
  unresolved: number;
}

/** How a worker takes a job. */
export interface Delivery {
  /** Of BullMQ's lock. */
  readonly lockToken: string;
  /** The worker's own clock, for BullMQ's answers about the future. */
  readonly timestampMs: number;
  /** Of lock and lease. */
  readonly leaseMs: number;
  readonly workerId: string;
  /** Of the attempt, if one is started; of several, each one's number is added. */
  readonly token: string;
}

/** How much of a queue a worker takes at a time. */
export interface Share {
  /** As many as it has free lanes for. */
  readonly most: number;
  /** How many workers take from this queue. */
  readonly workers: number;
}

/** A job that has been taken, as BullMQ's scripts answer it, or BullMQ's code for none. */
export interface Taken {
  readonly job: unknown[] | number | undefined;
  /** Of its attempt. */
  readonly token: string;
  /** Absent when the attempt is to be started by itself. */
  readonly begun?: BeginAnswer;
}

export interface FinishedJob {
  readonly id: string;
  /** JSON. */
  readonly returnValue: string;
  /** How many finished jobs the queue keeps, 0 for none. */
  readonly kept: number;
  readonly takeNext: boolean;
}

export interface Finished extends Taken {
  readonly code: WriteAnswer;
}

/** A record, read. */
export interface CallRecord {
  readonly callId: string;
  readonly state: CallState;
  readonly phase?: Phase;
  readonly generation: string;
  readonly fence: number;
  readonly request: StoredRequest;
  readonly paramsDigest: string;
  readonly circuit: string;
  readonly attempts: readonly AttemptRecord[];
  readonly lostAttempts: number;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly expiresAtMs?: number;
  readonly lockUntilMs?: number;
  readonly worker?: string;
  readonly startedAtMs?: number;
  readonly cancelRequested: boolean;
  /** Version for optimistic concurrency (R14). */
  readonly version: number;
  readonly outcome?: Outcome;
  /** Redis' clock when the record was read. */
  readonly readAtMs: number;
}

const claimScript = new Script('claim', 6, ENQUEUE_LUA);
const beginScript = new Script('begin', 2);
const settleScript = new Script('settle', 6);
const postponeScript = new Script('postpone', 2);
const spendTimeScript = new Script('spend-time', 0);
const tellScript = new Script('tell', 2);
const cancelScript = new Script('cancel', 2);
const watchScript = new Script('watch', 1);
const resolveScript = new Script('resolve', 2);
const flushScript = new Script('flush', 4);
const requeueScript = new Script('requeue', 4, ENQUEUE_LUA);
const NEXT_JOBS_LUA = [luaFunction('next-jobs'), luaFunction('begin'), luaFunction('begin-taken')];
const takeScript = new Script('take', 2, [...NEXT_JOBS_LUA, MOVE_LUA.toActive]);
const finishScript = new Script('finish', 7, [
  ...NEXT_JOBS_LUA,
  luaFunction('settle'),
  luaFunction('complete-job'),
  MOVE_LUA.toFinished,
]);

export class Ledger {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #fleet: FleetKeys;
  readonly #news: string;
  readonly #retentionMs: number;
  readonly #seals: Seals;
  readonly #keys = new Map<string, PlaceKeys>();

  constructor(redis: Redis, prefix: string, retentionMs: number, seals = new Seals()) {
    this.#seals = seals;
    this.#redis = redis;
    this.#prefix = prefix;
    this.#fleet = new FleetKeys(prefix);
    this.#news = this.#fleet.news;
    this.#retentionMs = retentionMs;
  }

  keys(place: Place): PlaceKeys {
    const name = `${place.tier}.${place.shard}`;
    let keys = this.#keys.get(name);
    if (keys === undefined) {
      keys = new PlaceKeys(this.#prefix, place);
      this.#keys.set(name, keys);
    }
    return keys;
  }

  #placed(callId: string): PlaceKeys {
    const place = placeOf(callId);
    if (place === undefined) throw new PawlError('UNKNOWN_CALL', `${JSON.stringify(callId)} is not a call ID.`);
    return this.keys(place);
  }

  /** Claims a call and queues it in one step, or says what became of it. */
  async claim(claim: Claim): Promise<ClaimAnswer> {
    const keys = this.#placed(claim.callId);
    const record = keys.record(claim.callId);
    const slotId = claim.shadow?.slotId ?? claim.mergeId;
    const { toolNamespace, toolName, target } = claim.request.envelope;
    const { sessionKey } = target;
    const request = JSON.stringify(claim.request);
    const job: CallJob = { callId: claim.callId, generation: claim.generation, session: sessionKey };
    const answer = await claimScript.run(
      this.#redis,
      [
        record,
        slotId === undefined ? record : keys.merge(slotId),
        keys.inflight,
        keys.calls,
        keys.sessionCalls(sessionKey),
        claim.loop === undefined ? record : keys.loop(claim.loop.loopId),
      ],
      [
        claim.callId,
        claim.shadow === undefined ? (claim.mergeId === undefined ? '0' : '1') : claim.shadow.derived ? '3' : '2',
        keys.records,
        claim.inboxId ?? '',
        claim.mode,
        claim.paramsDigest,
        request,
        claim.generation,
        claim.circuit,
        this.#retentionMs,
        this.#seals.request(claim.callId, claim.generation, '', request),
        claim.once ? '1' : '0',
        ...enqueueArguments(keys, claim.request.envelope.toolName, job, claim.kept),
        ...this.#approvalArguments(keys, claim.approval),
        claim.loop?.refuseAt ?? '',
        claim.loop?.windowMs ?? 0,
        keys.sizes,
        `${toolNamespace}.${toolName}`,
        claim.room ?? '',
        ...this.#budgetArguments(claim.spends),
      ],
    );
    const [code, callId] = answer as [string, string];
    const nowMs = Number(answer[2]);
    switch (code) {
      case 'claimed': {
        const repetitions = Number(answer[4] ?? 0);
        const duplicateOf = answer[3] as CallState | 'conflict' | null | undefined;
        return {
          kind: code,
          callId,
          ...(duplicateOf ? { duplicateOf } : {}),
          ...(repetitions > 0 ? { repetitions } : {}),
        };
      }
      case 'conflict':
        return { kind: code, callId };
      case 'overloaded':
        return { kind: code, callId, inflight: Number(answer[3]) };
      case 'spent': {
        const account = claim.spends?.accounts[Number(answer[3])];
        const unit = UNITS[Number(answer[4]) - 1];
        if (account === undefined || unit === undefined)
          throw new Error('claim.lua named a budget that was not asked for');
        return { kind: code, callId, account, unit, spent: Number(answer[5]), leftMs: Math.max(0, Number(answer[6])) };
      }
      case 'loop':
        return { kind: code, callId, repetitions: Number(answer[3]), retryAfterMs: Math.max(0, Number(answer[4])) };
      case 'inflight':
        return { kind: 'inflight', callId, phase: answer[3] as Phase, ageMs: nowMs - Number(answer[4]) };
      default:
        return {
          kind: 'ended',
          callId,
          state: code as 'done',
          outcome: this.#seals.believedOutcome(
            callId,
            code,
            (answer[3] as string | null) ?? (await this.#largeOutcome(keys, callId)),
            answer[5] as string,
          ),
          ageMs: nowMs - Number(answer[4]),
        };
    }
  }

  /** An event as it may be believed: one whose outcome is not authentic is only a reason to look at the record. */
  believed(event: InboxEvent): InboxEvent {
    if (event.type !== 'settled' || event.outcome === undefined || !this.#seals.present) return event;
    const { outcome, signature, ...rest } = event;
    return this.#seals.isOutcome(event.callId, event.state, JSON.stringify(outcome), signature ?? '') ? event : rest;
  }

  /**
   * The signature of a stored request under a further generation; none when the stored one is not authentic, so that nobody has a
   * forged request signed by having its call queued again.
   */
  async resigned(
    callId: string,
    generation: string,
    resolution?: string,
  ): Promise<
    'gone' | 'forged' | { readonly request: string; readonly signature: string; readonly resolution: string }
  > {
    const record = this.#placed(callId).record(callId);
    const [request, signature, before, resolved] = await this.#redis.hmget(
      record,
      'request',
      'signature',
      'generation',
      'resolution',
    );
    if (typeof request !== 'string') return 'gone';
    const nowMs = await this.now();
    const stored = { callId, generation: before ?? '', resolution: resolved ?? '', text: request };
    if (!this.#seals.isRequest(stored, signature ?? '', nowMs)) return 'forged';
    const next = resolution ?? stored.resolution;
    return { request, signature: this.#seals.request(callId, generation, next, request), resolution: next };
  }

  #approvalArguments(keys: PlaceKeys, approval: ApprovalRequest | undefined): (string | number)[] {
    if (approval === undefined) return ['', '', '', '', ''];
    const request = JSON.stringify(approval);
    return [request, this.#seals.approval(approval, request), approval.id, keys.approvals, approval.expiresAtMs];
  }

  #budgetArguments(spends: Claim['spends']): (string | number)[] {
    if (spends === undefined) return [0, 0];
    const { accounts, costUnits } = spends;
    const one = ({ name, limits, keptMs, window }: Account) => {
      const { calls = '', costUnits: cost = '', timeMs = '' } = limits;
      return [this.#fleet.budget(name), calls, cost, timeMs, keptMs, window ? '1' : '0'];
    };
    return [accounts.length, costUnits, ...accounts.flatMap(one)];
  }

  /** Takes the time of an attempt from the budgets that count it. */
  async spendTime(names: readonly string[], timeMs: number): Promise<void> {
    const keys = names.map((name) => this.#fleet.budget(name));
    await spendTimeScript.run(this.#redis, [], [Math.max(0, Math.round(timeMs)), ...keys]);
  }

  /** What was taken from a budget. */
  async spent(name: string): Promise<Required<Limits>> {
    const [calls, costUnits, timeMs] = await this.#redis.hmget(this.#fleet.budget(name), ...UNITS);
    return { calls: Number(calls ?? 0), costUnits: Number(costUnits ?? 0), timeMs: Number(timeMs ?? 0) };
  }

  async #largeOutcome(keys: PlaceKeys, callId: string): Promise<string> {
    const outcome = await this.#redis.get(keys.outcome(callId));
    if (outcome === null) throw new PawlError('UNKNOWN_CALL', `The result of ${callId} has expired.`);
    return outcome;
  }

  /** Starts an attempt, or says why there is none. */
  async begin(job: CallJob, attempt: BeginAttempt): Promise<BeginAnswer> {
    const keys = this.#placed(job.callId);
    const answer = await beginScript.run(
      this.#redis,
      [keys.record(job.callId), keys.circuits],
      [
        job.generation,
        attempt.workerId,
        attempt.leaseMs,
        attempt.probeEpoch ?? '',
        attempt.token,
        attempt.suspects === 'refuse' ? '0' : '1',
        keys.inboxes,
        job.callId,
      ],
    );
    return this.#begun(job, answer);
  }

  #begun(job: Pick<CallJob, 'callId' | 'generation'>, answer: unknown[]): BeginAnswer {
    const nowMs = Number(answer[1]);
    switch (answer[0]) {
      case 'started': {
        const fence = Number(answer[2]);
        const resolution = answer[13] as string;
        const [request, signature] = [answer[3] as string, answer[4] as string];
        if (!this.#seals.isRequest({ ...job, resolution, text: request }, signature, nowMs))
          return { kind: 'forged', fence };
        return {
          kind: 'started',
          nowMs,
          fence,
          request: JSON.parse(request) as StoredRequest,
          earlier: parseAttempts(answer[5] as string),
          lostAttempts: Number(answer[6]),
          takenOver: answer[7] === '1',
          firstStartedAtMs: Number(answer[8]),
          circuit: answer[9] as string,
          circuitRaw: answer[10] as string,
          cancelRequested: answer[11] === '1',
          ...(answer[12] === '' ? {} : { approvalId: answer[12] as string }),
          ...(resolution === '' ? {} : { resolution }),
        };
      }
      case 'circuit': {
        const fence = Number(answer[6]);
        const [request, signature, resolution] = [answer[4] as string, answer[5] as string, answer[8] as string];
        if (!this.#seals.isRequest({ ...job, resolution, text: request }, signature, nowMs))
          return { kind: 'forged', fence };
        return {
          kind: 'circuit',
          nowMs,
          circuitRaw: answer[2] as string,
          circuit: answer[3] as string,
          request: JSON.parse(request) as StoredRequest,
          fence,
          earlier: parseAttempts(answer[7] as string),
        };
      }
      case 'early':
        return { kind: 'early', remainingMs: Number(answer[2]) };
      case 'awaiting':
        return { kind: 'awaiting', nowMs, approvalId: answer[2] as string };
      case 'suspect':
        return {
          kind: 'suspect',
          takenOver: answer[2] === '1',
          request: JSON.parse(answer[3] as string) as StoredRequest,
        };
      default:
        return { kind: answer[0] as 'ended' | 'stale' };
    }
  }

  /** Writes the outcome, once. Only the newest fence may. */
  async settle(settle: Settle): Promise<WriteAnswer> {
    const [code] = await settleScript.run(this.#redis, this.#settleKeys(settle), this.#settleArguments(settle));
    return code as WriteAnswer;
  }

  #settleKeys({ callId, sample, refill }: Settle): string[] {
    const keys = this.#placed(callId);
    return [
      keys.record(callId),
      keys.inflight,
      keys.circuits,
      keys.window(sample?.circuit ?? ''),
      keys.outcome(callId),
      keys.retries(refill?.bucket ?? ''),
    ];
  }

  #settleArguments(settle: Settle): (string | number)[] {
    const { callId, sample, refill } = settle;
    return [
      settle.fence,
      settle.state,
      settle.outcomeJson,
      formatAttempts(settle.attempts),
      settle.ttlMs,
      settle.outcome.error?.retriable === true ? '1' : '0',
      callId,
      this.#placed(callId).inboxes,
      MAX_INLINE_OUTCOME_BYTES,
      sample?.circuit ?? '',
      sample?.epoch ?? 0,
      sample?.windowSize ?? 0,
      sample?.windowMs ?? 0,
      MAX_EVENT_OUTCOME_BYTES,
      refill?.budget.ratio ?? '',
      refill?.budget.floor ?? 0,
      refill?.budget.capacity ?? 0,
      refill?.budget.windowMs ?? 0,
      this.#seals.outcome(callId, settle.state, settle.outcomeJson),
      this.#placed(callId).inDoubt,
    ];
  }

  /**
   * Takes the next jobs of a place's queue, at least one if there is any, and starts their attempts where a lost answer can do no
   * harm. The last answer may be BullMQ's code for none.
   */
  async take(place: Place, delivery: Delivery, share: Share = { most: 1, workers: 1 }): Promise<Taken[]> {
    const keys = this.keys(place);
    const answers = await takeScript.run(
      this.#redis,
      [keys.circuits, keys.job('wait')],
      [...deliveryArguments(keys, delivery), share.most, share.workers],
    );
    const taken: Taken[] = [];
    for (let index = 0; index < answers.length; index += 2)
      taken.push({ ...this.#taken(answers[index], answers[index + 1]), token: `${delivery.token}.${index / 2 + 1}` });
    return taken;
  }

  /** Ends a call together with its job, and takes the next one. */
  async finish(settle: Settle, job: FinishedJob, delivery: Delivery): Promise<Finished> {
    const keys = this.#placed(settle.callId);
    const [code, next, begun] = await finishScript.run(
      this.#redis,
      [...this.#settleKeys(settle), keys.job('wait')],
      [
        ...deliveryArguments(keys, delivery),
        job.takeNext ? '1' : '0',
        job.id,
        job.returnValue,
        job.kept,
        KEPT_EVENTS,
        ...this.#settleArguments(settle),
      ],
    );
    return { code: code as WriteAnswer, token: delivery.token, ...this.#taken(next, begun) };
  }

  #taken(job: unknown, begun: unknown): Omit<Taken, 'token'> {
    if (!Array.isArray(job)) return { job: job as number | undefined };
    if (!Array.isArray(begun) || begun[0] === 'apart') return { job };
    return { job, begun: this.#begun(callOfJob(job[1] as string), begun) };
  }

  /**
   * Ends an attempt, not the call: `waiting-retry` spends it, `queued` hands it back, `unstarted` does and lets its time not count
   * either. With an allowance the next attempt is a retry that takes from it; `exhausted` when there is nothing to take.
   */
  async postpone(
    callId: string,
    fence: number,
    phase: 'waiting-retry' | 'queued' | 'unstarted' | 'running',
    attempts: readonly AttemptRecord[],
    delayMs: number,
    event?: object,
    allowance?: RetryAllowance,
  ): Promise<WriteAnswer> {
    const keys = this.#placed(callId);
    const [code] = await postponeScript.run(
      this.#redis,
      [keys.record(callId), keys.retries(allowance?.bucket ?? '')],
      [
        fence,
        phase,
        formatAttempts(attempts),
        delayMs,
        keys.inboxes,
        event === undefined ? '' : JSON.stringify(event),
        allowance?.budget.floor ?? '',
        allowance?.budget.windowMs ?? 0,
      ],
    );
    return code as WriteAnswer;
  }

  /** Renews a running attempt's lease and tells those who wait, if there is something to tell. */
  async tell(
    callId: string,
    fence: number,
    leaseMs: number,
    event?: object,
  ): Promise<{ readonly held: boolean; readonly cancelRequested: boolean }> {
    const keys = this.#placed(callId);
    const [code, cancelRequested] = await tellScript.run(
      this.#redis,
      [keys.record(callId), keys.progress(callId)],
      [fence, leaseMs, keys.inboxes, event === undefined ? '' : JSON.stringify(event)],
    );
    return { held: code === 'told', cancelRequested: cancelRequested === '1' };
  }

  /** Ends a call that waits, or asks the worker of a running one to stop. */
  async cancel(
    callId: string,
    endings: {
      readonly state: 'cancelled' | 'failed';
      readonly beforeStart: Outcome;
      readonly betweenAttempts: Outcome;
      readonly ttlMs: number;
      readonly inboxId?: string;
    },
  ): Promise<
    { readonly kind: 'cancelled'; readonly jobId: string } | { readonly kind: 'requested' | 'too-late' | 'gone' }
  > {
    const keys = this.#placed(callId);
    const beforeStart = JSON.stringify(endings.beforeStart);
    const betweenAttempts = JSON.stringify(endings.betweenAttempts);
    const [code, , generation] = await cancelScript.run(
      this.#redis,
      [keys.record(callId), keys.inflight],
      [
        callId,
        beforeStart,
        betweenAttempts,
        endings.state,
        endings.ttlMs,
        endings.inboxId ?? '',
        keys.inboxes,
        this.#news,
        this.#seals.outcome(callId, endings.state, beforeStart),
        this.#seals.outcome(callId, endings.state, betweenAttempts),
        keys.approvals,
        this.#retentionMs,
      ],
    );
    if (code !== 'cancelled') return { kind: code as 'requested' | 'too-late' | 'gone' };
    return { kind: 'cancelled', jobId: jobIdOf(callId, generation as string) };
  }

  /** Reads a call; with an inbox, its owner is told when the call settles. */
  async read(callId: string, inboxId?: string): Promise<CallRecord | undefined> {
    return this.#read(callId, inboxId ?? '', true);
  }

  /** Reads a call; from now on the inbox's owner hears of everything that becomes of it, attempts that begin included. */
  async follow(callId: string, inboxId: string): Promise<CallRecord | undefined> {
    return this.#read(callId, inboxId, true, true);
  }

  /** Progress that was reported after `position` (`fence-number`; from the beginning without one), as far as it is kept. */
  async progress(callId: string, position?: string): Promise<readonly KeptProgress[]> {
    const from = position === undefined ? '-' : `(${position}`;
    const entries = await this.#redis.xrange(this.#placed(callId).progress(callId), from, '+');
    return entries.map(([id, [, event]]) => {
      const [fence, number] = id.split('-').map(Number);
      return { fence: fence ?? 0, number: number ?? 0, event: JSON.parse(event ?? '{}') as ProgressReport };
    });
  }

  /** Reads a call without an outcome that is large. */
  async glance(callId: string): Promise<CallRecord | undefined> {
    return this.#read(callId, '', false);
  }

  async #read(
    callId: string,
    inboxId: string,
    withLargeOutcome: boolean,
    following = false,
  ): Promise<CallRecord | undefined> {
    const place = placeOf(callId);
    if (place === undefined) return undefined;
    const keys = this.keys(place);
    const [nowMs, ...flat] = await watchScript.run(
      this.#redis,
      [keys.record(callId)],
      [inboxId, keys.records, following ? '1' : '0'],
    );
    if (flat.length === 0) return undefined;
    const fields: Record<string, string> = {};
    for (let index = 0; index < flat.length; index += 2) fields[flat[index] as string] = flat[index + 1] as string;
    if (fields['state'] === undefined) return undefined;
    const id = fields['callId'] ?? callId;
    const apart = fields['outcomeAt'] !== undefined && withLargeOutcome;
    const stored = apart ? await this.#largeOutcome(keys, id) : fields['outcome'];
    const outcome =
      stored === undefined
        ? undefined
        : this.#seals.believedOutcome(id, fields['state'], stored, fields['outcomeSignature'] ?? '');
    return recordOf(id, fields, outcome, Number(nowMs));
  }

  /** The outcome alone, when the event that announced it was too small to carry it. */
  async outcome(callId: string): Promise<string | undefined> {
    const keys = this.#placed(callId);
    const [state, inline, signature] = await this.#redis.hmget(
      keys.record(callId),
      'state',
      'outcome',
      'outcomeSignature',
    );
    // What is still in flight has no outcome, whatever somebody announced.
    if (typeof state !== 'string' || state === 'inflight') return undefined;
    const outcome = inline ?? (await this.#redis.get(keys.outcome(callId)));
    return typeof outcome === 'string'
      ? this.#seals.believedOutcome(callId, state, outcome, signature ?? '')
      : undefined;
  }

  /** Gives a call with an unknown outcome a known one. */
  async resolve(
    callId: string,
    state: 'done' | 'failed',
    outcome: Outcome,
    ttlMs: number,
  ): Promise<'resolved' | 'refused' | 'gone'> {
    const text = JSON.stringify(outcome);
    const keys = this.#placed(callId);
    const [code] = await resolveScript.run(
      this.#redis,
      [keys.record(callId), keys.inDoubt],
      [state, text, ttlMs, this.#seals.outcome(callId, state, text), callId],
    );
    return code as 'resolved' | 'refused' | 'gone';
  }

  /** Queues a call again: `resolved` one with an unknown outcome, `missing` one whose job is gone. */
  async requeue(
    record: CallRecord,
    because: 'resolved' | 'missing',
    generation: string,
    inboxId?: string,
  ): Promise<'queued' | 'refused' | 'gone'> {
    const keys = this.#placed(record.callId);
    const job: CallJob = { callId: record.callId, generation, session: record.request.envelope.target.sessionKey };
    const signed = await this.resigned(record.callId, generation, because === 'resolved' ? generation : undefined);
    if (typeof signed === 'string') return signed === 'gone' ? 'gone' : 'refused';
    const [code] = await requeueScript.run(
      this.#redis,
      [keys.record(record.callId), keys.inflight, keys.job(jobIdOf(record.callId, record.generation)), keys.inDoubt],
      [
        record.callId,
        generation,
        because === 'resolved' ? '1' : '0',
        inboxId ?? '',
        signed.request,
        signed.signature,
        signed.resolution,
        ...enqueueArguments(keys, record.request.envelope.toolName, job, true),
      ],
    );
    return code as 'queued' | 'refused' | 'gone';
  }

  /** IDs of calls of one place, the newest first; of one session when given. */
  async list(
    place: Place,
    options: {
      readonly limit: number;
      readonly offset?: number;
      readonly sessionKey?: string;
      /** Only those in flight, or those whose outcome is unknown. */
      readonly only?: 'inflight' | 'inDoubt' | undefined;
    },
  ): Promise<string[]> {
    const keys = this.keys(place);
    const { limit, offset = 0 } = options;
    return this.#redis.zrevrange(
      options.sessionKey !== undefined ? keys.sessionCalls(options.sessionKey) : keys[options.only ?? 'calls'],
      offset,
      offset + limit - 1,
    );
  }

  /** IDs of calls in flight that were claimed before a time, the oldest first. */
  async inflightBefore(place: Place, beforeMs: number, limit: number): Promise<string[]> {
    return this.#redis.zrangebyscore(this.keys(place).inflight, '-inf', beforeMs, 'LIMIT', 0, limit);
  }

  /** Takes calls whose record may have expired out of the index; claims do the same on the way, while there are any. */
  async prune(place: Place, nowMs: number): Promise<void> {
    await this.#redis.zremrangebyscore(this.keys(place).calls, '-inf', nowMs - this.#retentionMs);
  }

  /**
   * Forgets the calls of one place that have ended, of one session or one tool (`namespace.name`) when given (R25, R34). Those in
   * flight stay, and those whose outcome is unknown.
   */
  async flush(place: Place, select: { readonly sessionKey?: string; readonly tool?: string }): Promise<Flushed> {
    const keys = this.keys(place);
    const counts = { flushed: 0, inflight: 0, unresolved: 0 };
    let cursor = '0';
    do {
      const index = select.sessionKey === undefined ? keys.calls : keys.sessionCalls(select.sessionKey);
      const [next, entries] = await this.#redis.zscan(index, cursor, 'COUNT', FLUSH_BATCH);
      cursor = next;
      const callIds = entries.filter((_entry, position) => position % 2 === 0);
      const codes = await Promise.all(callIds.map((callId) => this.#flushOne(keys, callId, select.tool)));
      for (const code of codes) if (code in counts) counts[code as keyof Flushed] += 1;
    } while (cursor !== '0');
    return counts;
  }

  async #flushOne(keys: PlaceKeys, callId: string, tool: string | undefined): Promise<string> {
    const request = await this.#redis.hget(keys.record(callId), 'request');
    if (request === null) return 'gone';
    const { toolNamespace, toolName, target } = (JSON.parse(request) as StoredRequest).envelope;
    if (tool !== undefined && tool !== `${toolNamespace}.${toolName}`) return 'other';
    const [code] = await flushScript.run(
      this.#redis,
      [keys.record(callId), keys.calls, keys.sessionCalls(target.sessionKey), keys.outcome(callId)],
      [callId, FENCE_REMEMBERED_MS, keys.sizes, this.#retentionMs, `${toolNamespace}.${toolName}`],
    );
    return code as string;
  }

  /** How many calls of each tool (`namespace.name`) were claimed within the retention, to about a 24th part of it. */
  async sizes(place: Place): Promise<ReadonlyMap<string, number>> {
    const keys = this.keys(place);
    const newest = Math.floor(((await this.now()) * SIZE_PARTS) / this.#retentionMs);
    const parts = await Promise.all(
      Array.from({ length: SIZE_PARTS }, (_, age) => this.#redis.hgetall(`${keys.sizes}${newest - age}`)),
    );
    const sizes = new Map<string, number>();
    for (const part of parts)
      for (const [tool, count] of Object.entries(part)) sizes.set(tool, (sizes.get(tool) ?? 0) + Number(count));
    return sizes;
  }

  async counts(place: Place): Promise<{ readonly inflight: number; readonly calls: number }> {
    const keys = this.keys(place);
    const [inflight, calls] = await Promise.all([this.#redis.zcard(keys.inflight), this.#redis.zcard(keys.calls)]);
    return { inflight, calls };
  }

  /** Redis' clock, milliseconds. */
  async now(): Promise<number> {
    const [seconds, microseconds] = await this.#redis.time();
    return Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
  }
}

function deliveryArguments(keys: PlaceKeys, delivery: Delivery): (string | number)[] {
  const { lockToken, timestampMs, leaseMs, workerId, token } = delivery;
  return [keys.records, keys.inboxes, keys.job(''), lockToken, timestampMs, leaseMs, workerId, token];
}

function recordOf(
  callId: string,
  fields: Readonly<Record<string, string>>,
  outcome: string | undefined,
  readAtMs: number,
): CallRecord {
  const number = (name: string) => (fields[name] === undefined ? {} : { [name]: Number(fields[name]) });
  return {
    callId,
    state: fields['state'] as CallState,
    ...(fields['phase'] === undefined ? {} : { phase: fields['phase'] as Phase }),
    generation: fields['generation'] ?? '',
    fence: Number(fields['fence'] ?? 0),
    request: JSON.parse(fields['request'] ?? '{}') as StoredRequest,
    paramsDigest: fields['paramsDigest'] ?? '',
    circuit: fields['circuit'] ?? '',
    attempts: parseAttempts(fields['attempts'] ?? ''),
    lostAttempts: Number(fields['lost'] ?? 0),
    createdAtMs: Number(fields['createdAtMs']),
    updatedAtMs: Number(fields['updatedAtMs'] ?? fields['startedAtMs'] ?? fields['createdAtMs']),
    ...number('expiresAtMs'),
    ...number('lockUntilMs'),
    ...number('startedAtMs'),
    ...(fields['worker'] === undefined ? {} : { worker: fields['worker'] }),
    cancelRequested: fields['cancelRequested'] === '1',
    version: Number(fields['version']),
    ...(outcome === undefined ? {} : { outcome: JSON.parse(outcome) as Outcome }),
    readAtMs,
  };
}

/** Attempts are lines of JSON, so that a script can append one. Their number is their position. */
function formatAttempts(attempts: readonly AttemptRecord[]): string {
  return attempts.map(({ attempt: _position, ...rest }) => `${JSON.stringify(rest)}\n`).join('');
}

function parseAttempts(lines: string): AttemptRecord[] {
  return lines
    .split('\n')
    .filter((line) => line !== '')
    .map((line, index) => ({ attempt: index + 1, ...(JSON.parse(line) as Omit<AttemptRecord, 'attempt'>) }));
}
