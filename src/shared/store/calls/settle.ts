/**
 * Settling a call: its outcome, written once, by the newest fence only.
 */

import type { AttemptRecord, CallState, RecordLife } from '../../calls/call-state.ts';
import type { Outcome } from '../../calls/outcome.ts';
import type { RetryAllowance } from '../../retries/retry-budget.ts';
import { type LargeText, largeTextOf } from '../../util/json/large-json.ts';
import { UNREFERRED_MS } from '../blobs/redis-blobs.ts';
import { CALLBACK_LUA } from '../callbacks/callbacks.ts';
import { DEAD_LETTER_LUA } from '../dead-letters/dead-letter-index.ts';
import type { CircuitSample } from '../redis/circuit-messages.ts';
import { luaConstants, Script } from '../redis/script.ts';
import { formatAttempts } from './call-record.ts';
import { type LedgerAccess, PARTITION_LUA } from './ledger-context.ts';

/** Larger outcomes are stored in parts, and compressed. */
export const MAX_INLINE_OUTCOME_BYTES = 64 * 1_024;

/**
 * Larger ones do not travel with the event that announces them, and successes not with the script either: Lua copies every text that
 * it is given, and looks at every byte. They are kept apart, in one piece, and fetched by those who want them.
 */
export const MAX_EVENT_OUTCOME_BYTES = 4 * 1_024;

export type WriteAnswer = 'settled' | 'postponed' | 'fenced' | 'ended' | 'gone' | 'cancelled' | 'exhausted';

export interface Settle extends RecordLife {
  readonly callId: string;
  readonly fence: number;
  readonly state: Exclude<CallState, 'inflight'>;
  readonly outcome: Outcome;
  readonly outcomeJson: string | LargeText;
  readonly attempts: readonly AttemptRecord[];
  /** Success to be added to a circuit's window. */
  readonly sample?: CircuitSample;
  /** The circuit of the call is its tool's own: its name follows from the tool's. */
  readonly plainCircuit?: boolean;
  /** A success puts retries back. */
  readonly refill?: RetryAllowance;
}

/** For `Script`: what `settle` needs. */
export const SETTLE_LUA = [
  PARTITION_LUA,
  ...CALLBACK_LUA,
  ...DEAD_LETTER_LUA,
  luaConstants({ MAX_EVENT_OUTCOME_BYTES }),
];

const settleScript = new Script(new URL('./settle.lua', import.meta.url), SETTLE_LUA);

export interface ReadySettle extends Omit<Settle, 'outcomeJson'> {
  /** The text in one piece, wherever it is kept; '' for one in parts. */
  readonly outcomeJson: string;
  readonly apart?: Apart;
}

/** The location of an outcome that is stored apart: in one piece, which its event names, or in parts. */
interface Apart {
  readonly key: string;
  readonly textId?: string;
  /** To the parts: a `TextReference` as JSON. */
  readonly reference?: string;
}

/** An outcome that is kept apart is written first. Nothing has to be waited for when it is in one piece. */
export function readySettle(access: LedgerAccess, settle: Settle): ReadySettle | Promise<ReadySettle> {
  const { outcomeJson } = settle;
  if (typeof outcomeJson !== 'string') return writeParts(access, settle, outcomeJson);
  const fits =
    outcomeJson.length * 3 <= MAX_INLINE_OUTCOME_BYTES || Buffer.byteLength(outcomeJson) <= MAX_INLINE_OUTCOME_BYTES;
  if (!fits) return writeParts(access, settle, largeTextOf(outcomeJson));
  const ready = settle as ReadySettle;
  return settle.state === 'done' && outcomeJson.length > MAX_EVENT_OUTCOME_BYTES ? writeApart(access, ready) : ready;
}

/** On the connection on which the script follows, which says `UNKEPT` when this was refused. */
function writeApart(access: LedgerAccess, settle: ReadySettle): ReadySettle {
  const { callId, fence, attempts, outcomeJson } = settle;
  // A forgotten call that is made again starts its numbers again, but at another time.
  const textId = `${fence}-${attempts.at(-1)?.startedAtMs ?? 0}`;
  const key = access.placed(callId).outcome(callId, textId);
  // Writing it again, because an answer was lost, takes nothing back of what refers to it.
  access.redis.set(key, outcomeJson, 'PX', UNREFERRED_MS, 'NX').catch(() => {});
  return { ...settle, apart: { key, textId } };
}

async function writeParts(access: LedgerAccess, settle: Settle, text: LargeText): Promise<ReadySettle> {
  const key = access.placed(settle.callId).outcome(settle.callId, text.id);
  const reference = JSON.stringify(await access.texts.write(key, text));
  return { ...settle, outcomeJson: '', apart: { key, reference } };
}

export async function settleCall(access: LedgerAccess, settle: Settle): Promise<WriteAnswer> {
  const ready = readySettle(access, settle);
  const made = ready instanceof Promise ? await ready : ready;
  access.records?.send();
  const bases = access.bases(access.placed(settle.callId));
  const [code] = await settleScript.run(access.redis, bases, settleArguments(access, made));
  return code as WriteAnswer;
}

/** As `settle.lua` takes them. */
export function settleArguments(access: LedgerAccess, settle: ReadySettle): (string | number)[] {
  const { callId, fence, state, outcomeJson, attempts, apart } = settle;
  const signature =
    apart?.reference === undefined
      ? access.signatures.sign('outcome', [callId, state], outcomeJson)
      : access.signatures.sign('outcome-parts', [callId, state], apart.reference);
  return [
    callId,
    fence,
    apart === undefined ? outcomeJson : '',
    signature,
    formatAttempts(attempts),
    termsOf(access, settle),
    apart === undefined ? '' : JSON.stringify(apart),
  ];
}

/** The terms of an ending, the same text for all calls of one tool that end alike: `settle.lua` parses each text once. */
function termsOf(access: LedgerAccess, settle: ReadySettle): string {
  const { callId, state, outcome, ttlMs, freeAfterMs, sample, refill, plainCircuit } = settle;
  const letterMs = state === 'failed' ? access.deadLetterMs(callId) : undefined;
  const retriable = outcome.error?.retriable === true;
  return JSON.stringify({ state, retriable, ttlMs, freeAfterMs, sample, refill, letterMs, plainCircuit });
}
