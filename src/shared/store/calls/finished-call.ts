/** Reads the outcome of a call that has probably ended. A claim would return the same, but sends all that a new call needs. */
import type { DedupeMode } from '../../calls/envelope.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { PartitionBatches } from '../redis/batching.ts';
import type { PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { ADD_RECORDS_LUA, type LedgerAccess, PARTITION_LUA } from './ledger-context.ts';
import { refuseMergedCall, verifiedOutcome } from './records/signed-records.ts';

export interface ReplayRequest {
  readonly callId: string;
  readonly paramsDigest: string;
  readonly mode: DedupeMode;
}

export interface FinishedCall {
  readonly kind: 'ended';
  readonly callId: string;
  readonly state: 'done' | 'failed' | 'cancelled';
  readonly outcome: Outcome;
  readonly ageMs: number;
}

/** Calls read in one script run. */
const MAX_REPLAYS = 16;

const replaysScript = new Script(new URL('./finished-calls.lua', import.meta.url), [PARTITION_LUA, ADD_RECORDS_LUA]);

export class FinishedCalls {
  readonly #access: LedgerAccess;
  readonly #batches = new PartitionBatches<ReplayRequest, unknown[] | null>(MAX_REPLAYS, (keys, requests) =>
    this.#readBatch(keys, requests),
  );

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /** Undefined when only a claim can decide. */
  async ended(replay: ReplayRequest): Promise<FinishedCall | undefined> {
    const access = this.#access;
    const answer = await this.#batches.add(access.callKeys(replay.callId), replay);
    return answer === null ? undefined : parseEndedAnswer(access, replay.callId, answer);
  }

  async #readBatch(keys: PartitionKeys, requests: readonly ReplayRequest[]): Promise<(unknown[] | null)[]> {
    const args = requests.flatMap(({ callId, paramsDigest, mode }) => [
      callId,
      paramsDigest,
      mode === 'bestEffort' ? '1' : '0',
    ]);
    const { answers } = await this.#access.runWithRecords(replaysScript, [keys.base], args);
    return answers as (unknown[] | null)[];
  }
}

/** The answer for a call whose record names another call, into which it was never merged. */
export function forgedAnswer({ signatures }: LedgerAccess, callId: string): FinishedCall {
  return { kind: 'ended', callId, state: 'failed', outcome: refuseMergedCall(signatures, callId), ageMs: 0 };
}

/** `answer`: state, ms since the end, outcome, signature of the outcome; for a large outcome, its key and its reference. */
export async function parseEndedAnswer(
  access: LedgerAccess,
  callId: string,
  answer: readonly unknown[],
): Promise<FinishedCall> {
  const [state, ageMs, inline, signature = '', key = '', parts] = answer as [
    FinishedCall['state'],
    number,
    string | null,
    string?,
    string?,
    (string | null)?,
  ];
  return {
    kind: 'ended',
    callId,
    state,
    outcome:
      inline === null
        ? await access.largeOutcome(callId, { state, key, parts: parts ?? undefined, signature })
        : verifiedOutcome(access.signatures, { callId, state, text: inline, signature }),
    ageMs,
  };
}
