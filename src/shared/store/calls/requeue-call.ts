/** Enqueues a call again, or replaces its unknown outcome by a known one. */
import type { ApprovalRequest } from '../../approvals/approval.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { uuidv7 } from '../../util/time.ts';
import { DEAD_LETTER_LUA } from '../dead-letters/dead-letter-index.ts';
import { type CallJob, ENQUEUE_LUA, enqueueArguments } from '../queues/jobs.ts';
import { luaFunction, Script } from '../redis/script.ts';
import { type CallRecord, nextResolution } from './call-record.ts';
import { AWAIT_APPROVAL_LUA, type LedgerAccess, PARTITION_LUA } from './ledger-context.ts';
import { approvalArguments, signRequest, verifyRequest } from './records/signed-records.ts';
import { END_CALL_LUA } from './settle.ts';

/** For `Script`: `reopen_call`, which lets an ended call run again. */
export const REOPEN_LUA = [
  PARTITION_LUA,
  ...ENQUEUE_LUA,
  ...DEAD_LETTER_LUA,
  AWAIT_APPROVAL_LUA,
  luaFunction(new URL('./reopen-call.lua', import.meta.url)),
];

const resolveScript = new Script(new URL('./resolve.lua', import.meta.url), END_CALL_LUA);
const requeueScript = new Script(new URL('./requeue.lua', import.meta.url), REOPEN_LUA);

/** Why a call is queued again: an operator resolved its unknown outcome as `retry`, or its job is missing. */
type RequeueReason = 'resolved' | 'missing';

/** Why a request is signed again. */
type ResignReason = RequeueReason | 'redriven';

interface ResignedRequest {
  readonly request: string;
  readonly signature: string;
  readonly resolution: string;
}

/**
 * Signs a stored request for a new generation. A request that does not verify is not signed: requeueing must not turn a forged request
 * into a signed one.
 */
export async function resignRequest(
  access: LedgerAccess,
  callId: string,
  generation: string,
  reason?: ResignReason,
): Promise<'gone' | 'forged' | ResignedRequest> {
  const [request, signature, storedGeneration, storedResolution, ended] = await access.redis.hmget(
    access.callKeys(callId).record(callId),
    ...['request', 'signature', 'generation', 'resolution', 'ended'],
  );
  if (typeof request !== 'string') return 'gone';
  // The record of a success no longer has a signature of its request.
  if (typeof ended === 'string') return 'forged';
  // A dead letter may be older than a signed request is valid: the operator redrives it knowingly.
  const nowMs = reason === 'redriven' ? Number(storedGeneration) : await access.now();
  const stored = { callId, generation: storedGeneration ?? '', resolution: storedResolution ?? '', text: request };
  if (!verifyRequest(access.signatures, stored, signature ?? '', nowMs)) return 'forged';
  const resolution =
    reason === 'resolved' || reason === 'redriven' ? nextResolution(generation, stored) : stored.resolution;
  return {
    request,
    signature: signRequest(access.signatures, { callId, generation, resolution, text: request }),
    resolution,
  };
}

export interface Requeue {
  readonly reason: RequeueReason;
  readonly generation: string;
  /** The producer that waits for the call. */
  readonly inboxId?: string | undefined;
  /** The call waits for this approval before it is queued. */
  readonly approval?: ApprovalRequest | undefined;
}

export async function requeueCall(
  access: LedgerAccess,
  record: CallRecord,
  { reason, generation, inboxId, approval }: Requeue,
): Promise<'queued' | 'refused' | 'gone'> {
  const { callId, request } = record;
  const keys = access.callKeys(callId);
  const job: CallJob = { callId, generation, session: request.envelope.target.sessionKey };
  const resigned = await resignRequest(access, callId, generation, reason);
  if (typeof resigned === 'string') return resigned === 'gone' ? 'gone' : 'refused';
  const [queue = '', ...jobArguments] = enqueueArguments(keys, request.envelope.toolName, job);
  const [code] = await requeueScript.run(
    access.redis,
    [keys.base, queue],
    [
      callId,
      generation,
      reason === 'resolved' ? '1' : '0',
      inboxId ?? '',
      resigned.request,
      resigned.signature,
      resigned.resolution,
      record.generation,
      ...jobArguments,
      ...approvalArguments(access, approval),
    ],
  );
  return code as 'queued' | 'refused' | 'gone';
}

export interface ResolvedOutcome {
  readonly state: 'done' | 'failed';
  readonly outcome: Outcome;
  readonly ttlMs: number;
  readonly freeAfterMs?: number | undefined;
}

export async function writeResolution(
  access: LedgerAccess,
  callId: string,
  { state, outcome, ttlMs, freeAfterMs }: ResolvedOutcome,
): Promise<'resolved' | 'refused' | 'gone'> {
  const text = JSON.stringify(outcome);
  const keys = access.callKeys(callId);
  const signature = access.signatures.sign('outcome', [callId, state], text);
  const letterMs = state === 'failed' ? access.deadLetterMs(callId) : undefined;
  const [code] = await resolveScript.run(
    access.redis,
    [keys.base],
    [callId, uuidv7(), state, text, signature, ttlMs, freeAfterMs ?? '', letterMs ?? ''],
  );
  return code as 'resolved' | 'refused' | 'gone';
}
