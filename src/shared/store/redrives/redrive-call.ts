/** Redriving one dead letter: the same call, under the same ID and key, begins another round of attempts. */
import type { ApprovalRequest } from '../../approvals/approval.ts';
import { type CallRecord, needOf, type RedriveMark } from '../calls/call-record.ts';
import type { LedgerAccess } from '../calls/ledger-context.ts';
import { approvalArguments } from '../calls/records/signed-records.ts';
import { REOPEN_LUA, resignRequest } from '../calls/requeue-call.ts';
import { type CallJob, enqueueArguments } from '../queues/jobs.ts';
import { Script } from '../redis/script.ts';

const redriveScript = new Script(new URL('./redrive.lua', import.meta.url), REOPEN_LUA);

interface CallRedrive {
  readonly redriveId: string;
  readonly by: string;
  /** Names the new round. */
  readonly generation: string;
  /** The number of calls in flight in the tier at which it takes no more like this one. */
  readonly room: number;
  /** The queue in which the call waits when others do. */
  readonly line: string;
  /** A person decides before the call runs. */
  readonly approval?: ApprovalRequest | undefined;
}

export type RedriveAnswer =
  | 'queued'
  /** This very redrive has queued it before. */
  | 'again'
  | 'overloaded'
  /** The call is not as it was read: it runs again, or was settled or resolved since. */
  | 'changed'
  /** The call is no dead letter. */
  | 'none'
  | 'unresolved'
  | 'gone'
  /** No key of this fleet signed its request. */
  | 'forged';

export async function redriveCall(
  access: LedgerAccess,
  record: CallRecord,
  { redriveId, by, generation, room, line, approval }: CallRedrive,
): Promise<RedriveAnswer> {
  const { callId, request, attempts, fence, readAtMs } = record;
  const keys = access.callKeys(callId);
  const session = request.envelope.target.sessionKey;
  const resigned = await resignRequest(access, callId, generation, 'redriven');
  if (typeof resigned === 'string') return resigned;
  const job: CallJob = { callId, generation, session };
  const code = record.outcome?.error?.code ?? '';
  const mark: RedriveMark = { id: redriveId, by, atMs: readAtMs, code, attempts: attempts.length, fence };
  const [queue = '', ...jobArguments] = enqueueArguments(keys, request.envelope.toolName, job);
  const [answer] = await redriveScript.run(
    access.redis,
    [keys.base, queue],
    [
      callId,
      record.generation,
      generation,
      resigned.request,
      resigned.signature,
      resigned.resolution,
      redriveId,
      JSON.stringify(mark),
      room,
      ...jobArguments,
      line,
      session,
      needOf(request),
      ...approvalArguments(access, approval),
    ],
  );
  return answer as RedriveAnswer;
}
