/** Reads the outcome of a call that has most likely ended. A claim would return the same, and send all that a new call needs. */
import type { DedupeMode } from '../../calls/envelope.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { PartitionBatches } from '../redis/batching.ts';
import type { PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { CARRY_LUA, type LedgerAccess, PARTITION_LUA } from './ledger-context.ts';
import { refuseMergedCall, verifiedOutcome } from './records/signed-records.ts';

export interface ReplayedCall {
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

/** In one step, as of claims. */
const MAX_REPLAYS = 16;

const replaysScript = new Script(new URL('./finished-calls.lua', import.meta.url), [PARTITION_LUA, CARRY_LUA]);

export class FinishedCalls {
  readonly #access: LedgerAccess;
  readonly #batches = new PartitionBatches<ReplayedCall, unknown[] | null>(MAX_REPLAYS, (keys, asked) =>
    this.#look(keys, asked),
  );

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /** Undefined when only a claim can tell. */
  async ended(replay: ReplayedCall): Promise<FinishedCall | undefined> {
    const access = this.#access;
    const answer = await this.#batches.add(access.placed(replay.callId), replay);
    return answer === null ? undefined : endedAnswer(access, replay.callId, answer);
  }

  async #look(keys: PartitionKeys, asked: readonly ReplayedCall[]): Promise<(unknown[] | null)[]> {
    const args = asked.flatMap(({ callId, paramsDigest, mode }) => [
      callId,
      paramsDigest,
      mode === 'bestEffort' ? '1' : '0',
    ]);
    const { answers } = await this.#access.carry(replaysScript, [keys.base], args, asked.length);
    return answers as (unknown[] | null)[];
  }
}

/** In place of what another call ended with that this one never was. */
export function forgedAnswer({ signatures }: LedgerAccess, callId: string): FinishedCall {
  return { kind: 'ended', callId, state: 'failed', outcome: refuseMergedCall(signatures, callId), ageMs: 0 };
}

/** `answer`: state, now, outcome, when it ended, the outcome's signature, and of a large outcome where it is, and its reference. */
export async function endedAnswer(
  access: LedgerAccess,
  callId: string,
  answer: readonly unknown[],
): Promise<FinishedCall> {
  const [state, now, inline, endedAt, signature, at, parts] = answer as [
    FinishedCall['state'],
    string,
    string | null,
    string,
    string,
    string,
    string | null | undefined,
  ];
  return {
    kind: 'ended',
    callId,
    state,
    outcome:
      inline === null
        ? await access.largeOutcome(callId, { state, at, parts: parts ?? undefined, signature })
        : verifiedOutcome(access.signatures, { callId, state, text: inline, signature }),
    ageMs: Number(now) - Number(endedAt),
  };
}
