/** Settling a call: its outcome, written once, by the newest fence only. */
import type { AttemptRecord, CallState, RecordLifetime } from '../../calls/call-state.ts';
import type { Outcome } from '../../calls/outcome.ts';
import type { CircuitSample } from '../../circuits/circuit-breaker.ts';
import type { RetryAllowance } from '../../retries/retry-budget.ts';
import { type LargeText, largeTextOf } from '../../util/json/large-json.ts';
import { UNREFERRED_MS } from '../blobs/redis-blobs.ts';
import { CALLBACK_LUA } from '../callbacks/callbacks.ts';
import { DEAD_LETTER_LUA } from '../dead-letters/dead-letter-index.ts';
import { luaConstants, luaFunction, Script } from '../redis/script.ts';
import { formatAttempts } from './call-record.ts';
import { type LedgerAccess, PARTITION_LUA } from './ledger-context.ts';

/** Larger outcomes are stored in parts, and compressed. */
export const MAX_INLINE_OUTCOME_BYTES = 64 * 1_024;

/**
 * Larger outcomes are left out of the event that announces them. A larger success is also left out of the script's arguments, because Lua
 * copies and hashes every argument: it is stored under its own key, and fetched by those who need it.
 */
export const MAX_EVENT_OUTCOME_BYTES = 4 * 1_024;

export type WriteAnswer = 'settled' | 'postponed' | 'fenced' | 'ended' | 'gone' | 'cancelled' | 'exhausted';

export interface Settle extends RecordLifetime {
  readonly callId: string;
  readonly fence: number;
  readonly state: Exclude<CallState, 'inflight'>;
  readonly outcome: Outcome;
  readonly outcomeJson: string | LargeText;
  readonly attempts: readonly AttemptRecord[];
  /** The success to add to the circuit's window. */
  readonly sample?: CircuitSample;
  /** The call has its tool's own circuit, whose name follows from the tool's. */
  readonly plainCircuit?: boolean;
  /** The success drops the signature of its request, which only undoing it needs. */
  readonly dropsSignature?: boolean;
  /** The retry budget that a success refills. */
  readonly refill?: RetryAllowance;
}

const NEEDED_LUA = [PARTITION_LUA, ...CALLBACK_LUA, ...DEAD_LETTER_LUA];

/** For `Script`: the functions and constants of `settle`. */
export const SETTLE_LUA = [...NEEDED_LUA, luaConstants({ MAX_EVENT_OUTCOME_BYTES })];

/** For `Script`: `end_call`, which ends a call that no attempt ends. */
export const END_CALL_LUA = [...NEEDED_LUA, luaFunction(new URL('./end-call.lua', import.meta.url))];

const settleScript = new Script(new URL('./settle.lua', import.meta.url), SETTLE_LUA);

export interface PreparedSettle extends Omit<Settle, 'outcomeJson'> {
  /** The whole text, also when it is stored under its own key; '' for one in parts. */
  readonly outcomeJson: string;
  readonly location?: OutcomeLocation;
}

/** The location of an outcome outside its record: one text, which the event names, or parts. */
interface OutcomeLocation {
  readonly key: string;
  readonly textId?: string;
  /** The reference to the parts: a `TextReference` as JSON. */
  readonly reference?: string;
}

/** Writes an outcome that is stored outside its record first. Only one in parts returns a promise. */
export function prepareSettle(access: LedgerAccess, settle: Settle): PreparedSettle | Promise<PreparedSettle> {
  const { outcomeJson } = settle;
  if (typeof outcomeJson !== 'string') return writeOutcomeParts(access, settle, outcomeJson);
  const fits =
    outcomeJson.length * 3 <= MAX_INLINE_OUTCOME_BYTES || Buffer.byteLength(outcomeJson) <= MAX_INLINE_OUTCOME_BYTES;
  if (!fits) return writeOutcomeParts(access, settle, largeTextOf(outcomeJson));
  const prepared = settle as PreparedSettle;
  return settle.state === 'done' && outcomeJson.length > MAX_EVENT_OUTCOME_BYTES
    ? writeOutcomeText(access, prepared)
    : prepared;
}

/** Needs no await: the script follows on the same connection, and fails with `UNKEPT` if this write was refused. */
function writeOutcomeText(access: LedgerAccess, settle: PreparedSettle): PreparedSettle {
  const { callId, fence, attempts, outcomeJson } = settle;
  // A forgotten call that is claimed again starts at fence 1 again, but at another time.
  const textId = `${fence}-${attempts.at(-1)?.startedAtMs ?? 0}`;
  const key = access.callKeys(callId).outcome(callId, textId);
  // NX: a second write, after a lost answer, must not shorten the life that the record gave to the text.
  access.redis.set(key, outcomeJson, 'PX', UNREFERRED_MS, 'NX').catch(() => {});
  return { ...settle, location: { key, textId } };
}

async function writeOutcomeParts(access: LedgerAccess, settle: Settle, text: LargeText): Promise<PreparedSettle> {
  const key = access.callKeys(settle.callId).outcome(settle.callId, text.id);
  const reference = JSON.stringify(await access.texts.write(key, text));
  return { ...settle, outcomeJson: '', location: { key, reference } };
}

/** Settles a call in a script of its own. */
export async function settleCall(access: LedgerAccess, settle: Settle): Promise<WriteAnswer> {
  const preparation = prepareSettle(access, settle);
  const prepared = preparation instanceof Promise ? await preparation : preparation;
  // The audit records are sent before the outcome.
  access.auditWriter?.send();
  const bases = access.bases(access.callKeys(settle.callId));
  const [code] = await settleScript.run(access.redis, bases, settleArguments(access, prepared));
  return code as WriteAnswer;
}

export function settleArguments(access: LedgerAccess, settle: PreparedSettle): (string | number)[] {
  const { callId, fence, state, outcomeJson, attempts, location } = settle;
  const signature =
    location?.reference === undefined
      ? access.signatures.sign('outcome', [callId, state], outcomeJson)
      : access.signatures.sign('outcome-parts', [callId, state], location.reference);
  return [
    callId,
    fence,
    location === undefined ? outcomeJson : '',
    signature,
    formatAttempts(attempts),
    settleTerms(access, settle),
    location === undefined ? '' : JSON.stringify(location),
  ];
}

/** The settings of a settle, the same text for all calls of a tool that end alike: `settle.lua` parses each text once. */
function settleTerms(access: LedgerAccess, settle: PreparedSettle): string {
  const { callId, state, outcome, ttlMs, freeAfterMs, sample, refill, plainCircuit, dropsSignature } = settle;
  const letterMs = state === 'failed' ? access.deadLetterMs(callId) : undefined;
  const retriable = outcome.error?.retriable === true;
  return JSON.stringify({
    state,
    retriable,
    ttlMs,
    freeAfterMs,
    sample,
    refill,
    letterMs,
    plainCircuit,
    dropsSignature,
  });
}
