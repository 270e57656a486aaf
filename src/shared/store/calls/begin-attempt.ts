/** Beginning an attempt: the next fence, or why there is none. */
import type { AttemptRecord, CallState } from '../../calls/call-state.ts';
import type { ExpiryRule } from '../../tools/pending.ts';
import type { CallJob } from '../queues/jobs.ts';
import { Script } from '../redis/script.ts';
import { parseAttempts, type StoredRequest } from './call-record.ts';
import type { LedgerAccess } from './ledger-context.ts';
import { verifiedCheckpoint } from './records/checkpoint.ts';
import { parseRequest } from './records/request-text.ts';
import { isSignedRequest, verifyRequest } from './records/signed-records.ts';

export interface BeginAttempt {
  readonly workerId: string;
  readonly leaseMs: number;
  /** Unique to this attempt: beginning twice with one token, because the first answer was lost, starts one attempt. */
  readonly token: string;
  /** The circuit's epoch under which this worker holds the probe. */
  readonly probeEpoch?: number;
  /** Whether a call that lost an attempt before may start; default `accept`. */
  readonly suspects?: 'accept' | 'refuse';
  /** The worker runs only this call, so the call is blamed if the worker is lost. */
  readonly alone?: boolean;
}

export interface StartedAttempt {
  readonly kind: 'started';
  readonly nowMs: number;
  readonly fence: number;
  readonly request: StoredRequest;
  readonly earlierAttempts: readonly AttemptRecord[];
  readonly lostAttempts: number;
  /** The call crashed enough workers to be quarantined. */
  readonly isPoison: boolean;
  /** The attempt before this one started and left no record, and no operator has resolved it. */
  readonly recovered: boolean;
  readonly firstStartedAtMs: number;
  readonly circuit: string;
  /** As stored: `epoch|STATE|json` (`shared.lua`). */
  readonly circuitRaw: string;
  readonly cancelRequested: boolean;
  /** The approval that the call waited for. */
  readonly approvalId?: string;
  /** Names this life of the call, when it is not the first one: it was resolved as `retry`, or redriven. */
  readonly resolution?: string;
  /** The checkpoint of an earlier attempt, JSON. */
  readonly checkpoint?: string;
}

/** A call that waits for an outside system. Its attempt has ended. */
export interface PendingCall {
  readonly kind: 'pending';
  readonly nowMs: number;
  /** 0 or less when it has expired. */
  readonly remainingMs: number;
  readonly onExpiry: ExpiryRule;
  readonly request: StoredRequest;
  readonly fence: number;
  readonly earlierAttempts: readonly AttemptRecord[];
  /** As that of `StartedAttempt`. */
  readonly resolution?: string;
}

export type BeginResult =
  | StartedAttempt
  | {
      readonly kind: 'circuit';
      readonly nowMs: number;
      readonly circuit: string;
      readonly circuitRaw: string;
      readonly request: StoredRequest;
      readonly fence: number;
      readonly earlierAttempts: readonly AttemptRecord[];
    }
  /** The request, or the checkpoint, is not signed by a key of this fleet. */
  | { readonly kind: 'forged'; readonly fence: number }
  | { readonly kind: 'ended'; readonly state: CallState }
  | { readonly kind: 'stale' }
  | PendingCall
  /** A person has not decided yet. */
  | { readonly kind: 'awaiting'; readonly nowMs: number; readonly approvalId: string }
  /** An attempt of the call was lost before, and the worker already runs such a call (`suspects: 'refuse'`). */
  | {
      readonly kind: 'suspect';
      readonly recovered: boolean;
      readonly request: StoredRequest;
      /** Two workers were lost while they ran it: its next worker must run nothing else. */
      readonly runsAlone: boolean;
    }
  | { readonly kind: 'early'; readonly remainingMs: number };

const beginScript = new Script(new URL('./begin-attempt.lua', import.meta.url));

export async function beginAttempt(access: LedgerAccess, job: CallJob, attempt: BeginAttempt): Promise<BeginResult> {
  const keys = access.callKeys(job.callId);
  const answer = await beginScript.run(
    access.redis,
    [keys.record(job.callId), access.homeKeys(keys).circuits],
    [
      job.generation,
      attempt.workerId,
      attempt.leaseMs,
      attempt.probeEpoch ?? '',
      attempt.token,
      attempt.suspects === 'refuse' ? '0' : '1',
      keys.inboxes,
      job.callId,
      '0',
      keys.lostWorkers,
      attempt.alone === true ? '1' : '0',
    ],
  );
  return beginResult(access, job, answer);
}

/**
 * Parses the answer of `begin-attempt.lua`, also when the script that fetched the job ran it. A record that cannot be read counts as
 * forged: the jobs that were fetched with it go on.
 */
export function beginResult(
  access: LedgerAccess,
  job: Pick<CallJob, 'callId' | 'generation'>,
  answer: unknown[],
): BeginResult {
  try {
    return parseAnswer(access, job, answer);
  } catch {
    return { kind: 'forged', fence: Number(answer[FENCE_OF[answer[0] as keyof typeof FENCE_OF]]) };
  }
}

/** The position of the call's fence in each answer. */
const FENCE_OF = { started: 2, circuit: 6, pending: 6, suspect: 5 } as const;

function parseAnswer(
  access: LedgerAccess,
  job: Pick<CallJob, 'callId' | 'generation'>,
  answer: unknown[],
): BeginResult {
  const nowMs = Number(answer[1]);
  switch (answer[0]) {
    case 'started':
      return startedResult(access, job, answer, nowMs);
    case 'circuit':
      return circuitResult(access, job, answer, nowMs);
    case 'pending':
      return pendingCall(access, job, answer);
    case 'early':
      return { kind: 'early', remainingMs: Number(answer[2]) };
    case 'awaiting':
      return { kind: 'awaiting', nowMs, approvalId: answer[2] as string };
    case 'suspect':
      return {
        kind: 'suspect',
        recovered: answer[2] === '1',
        request: parseRequest(answer[3] as string),
        runsAlone: answer[4] === '1',
      };
    case 'ended':
      return { kind: 'ended', state: answer[2] as CallState };
    default:
      return { kind: 'stale' };
  }
}

function startedResult(
  access: LedgerAccess,
  job: Pick<CallJob, 'callId' | 'generation'>,
  answer: unknown[],
  nowMs: number,
): Extract<BeginResult, { kind: 'started' | 'forged' }> {
  const fence = Number(answer[2]);
  const resolution = answer[13] as string;
  const [request, signature] = [answer[3] as string, answer[4] as string];
  if (!verifyRequest(access.signatures, { ...job, resolution, text: request }, signature, nowMs))
    return { kind: 'forged', fence };
  const stored = answer[15] as string | null | undefined;
  const checkpoint = stored == null ? undefined : verifiedCheckpoint(access, job.callId, stored);
  if (stored != null && checkpoint === undefined) return { kind: 'forged', fence };
  return {
    kind: 'started',
    nowMs,
    fence,
    request: parseRequest(request),
    earlierAttempts: parseAttempts(answer[5] as string),
    lostAttempts: Number(answer[6]),
    isPoison: answer[14] === '1',
    recovered: answer[7] === '1',
    firstStartedAtMs: Number(answer[8]),
    circuit: answer[9] as string,
    circuitRaw: answer[10] as string,
    cancelRequested: answer[11] === '1',
    ...(answer[12] === '' ? {} : { approvalId: answer[12] as string }),
    ...(resolution === '' ? {} : { resolution }),
    ...(checkpoint !== undefined && { checkpoint }),
  };
}

function circuitResult(
  access: LedgerAccess,
  job: Pick<CallJob, 'callId' | 'generation'>,
  answer: unknown[],
  nowMs: number,
): Extract<BeginResult, { kind: 'circuit' | 'forged' }> {
  const fence = Number(answer[6]);
  const [request, signature, resolution] = [answer[4] as string, answer[5] as string, answer[8] as string];
  if (!verifyRequest(access.signatures, { ...job, resolution, text: request }, signature, nowMs))
    return { kind: 'forged', fence };
  return {
    kind: 'circuit',
    nowMs,
    circuitRaw: answer[2] as string,
    circuit: answer[3] as string,
    request: parseRequest(request),
    fence,
    earlierAttempts: parseAttempts(answer[7] as string),
  };
}

/** Ignores the age of the signature: a call may be pending for longer than a signed request may start attempts. */
function pendingCall(
  access: LedgerAccess,
  job: Pick<CallJob, 'callId' | 'generation'>,
  answer: unknown[],
): Extract<BeginResult, { kind: 'pending' | 'forged' }> {
  const [, now, remaining, onExpiry, text, signature, fence, attempts, resolution] = answer as string[];
  const signed = { ...job, resolution: resolution ?? '', text: text ?? '' };
  if (!isSignedRequest(access.signatures, signed, signature ?? '')) return { kind: 'forged', fence: Number(fence) };
  return {
    kind: 'pending',
    nowMs: Number(now),
    remainingMs: Number(remaining),
    onExpiry: onExpiry as ExpiryRule,
    request: parseRequest(signed.text),
    fence: Number(fence),
    earlierAttempts: parseAttempts(attempts ?? ''),
    ...(signed.resolution === '' ? {} : { resolution: signed.resolution }),
  };
}
