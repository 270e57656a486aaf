/**
 * Pending calls, and the tokens with which outside systems complete them.
 *
 * A token's entry names its call and the attempt that issued it, signed by the worker. The entry outlives its use, so that a second
 * completion gets another answer than a wrong token.
 */
import { setTimeout } from 'node:timers/promises';
import type { AttemptRecord } from '../../calls/call-state.ts';
import { type CompletionTerms, readCompletionToken, tokenName } from '../../calls/completion.ts';
import type { CircuitSample } from '../../circuits/circuit-breaker.ts';
import { PawlError } from '../../errors/failure.ts';
import type { RetryAllowance } from '../../retries/retry-budget.ts';
import { digest } from '../../schema/canonical-json.ts';
import type { ExpiryRule } from '../../tools/pending.ts';
import { MAX_PENDING_MS } from '../../tools/pending.ts';
import { uuidv7 } from '../../util/time.ts';
import { formatAttempts } from '../calls/call-record.ts';
import type { LedgerAccess } from '../calls/ledger-context.ts';
import { prepareSettle, SETTLE_LUA, type Settle, settleArguments, type WriteAnswer } from '../calls/settle.ts';
import type { PartitionKeys } from '../redis/keys.ts';
import { luaFunction, Script } from '../redis/script.ts';

const END_LUA = [
  ...SETTLE_LUA,
  luaFunction(new URL('../calls/settle.lua', import.meta.url)),
  luaFunction(new URL('./end-pending.lua', import.meta.url)),
];
const issueScript = new Script(new URL('./issue-token.lua', import.meta.url));
const pendScript = new Script(new URL('./pend.lua', import.meta.url), [
  ...SETTLE_LUA,
  luaFunction(new URL('./issue-token.lua', import.meta.url)),
]);
const completeScript = new Script(new URL('./complete.lua', import.meta.url), END_LUA);
const expireScript = new Script(new URL('./expire.lua', import.meta.url), END_LUA);
const resumeScript = new Script(new URL('./resume.lua', import.meta.url), SETTLE_LUA);

/** The minimal time to live of a token after its call has ended or expired. */
const KEPT_MS = 24 * 3_600_000;
/** A fast outside system may complete a call before its token is stored: an unknown token is read again after this time. */
const ISSUED_WITHIN_MS = 250;

export interface IssuedToken {
  readonly callId: string;
  readonly fence: number;
  readonly token: string;
  readonly terms: CompletionTerms;
  /** How long the attempt may run. */
  readonly attemptMs: number;
}

export interface Pend extends IssuedToken {
  readonly attempts: readonly AttemptRecord[];
  readonly expiresInMs: number;
  readonly onExpiry: ExpiryRule;
  /** The success to count in the circuit: the tool itself has succeeded. */
  readonly sample?: CircuitSample | undefined;
  readonly sessionKey: string;
}

export type PendAnswer =
  | { readonly kind: 'pending'; readonly expiresAtMs: number }
  | { readonly kind: 'cancelled' | 'ended' | 'fenced' };

export interface CompletionEntry {
  readonly name: string;
  readonly callId: string;
  readonly terms: CompletionTerms;
}

/** Why a completion is refused: `over`: the call no longer waits for it; `toolong`: an extension is too long. */
export type CompletionRefusal = 'unknown' | 'used' | 'expired' | 'over' | 'toolong';

export interface CompletionEnd {
  readonly settle: Settle;
  /** For BullMQ's event about the job's end. */
  readonly job: { readonly ended: 'completed' | 'failed'; readonly value: string };
  readonly attempt: Pick<AttemptRecord, 'status'> & { readonly errorCode?: string };
}

export class Completions {
  readonly #access: LedgerAccess;

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /** Stores a token. `fenced`: the attempt no longer holds the call. */
  async issue(issued: IssuedToken): Promise<'issued' | 'ended' | 'fenced'> {
    const keys = this.#access.callKeys(issued.callId);
    const { entryKeys, args } = this.#entry(issued, issued.attemptMs);
    const [code] = await issueScript.run(this.#access.redis, [keys.record(issued.callId), ...entryKeys], args);
    return code as 'issued' | 'ended' | 'fenced';
  }

  /** Lets a call wait for its completion from now on. Only the newest attempt may. */
  async pend(pend: Pend): Promise<PendAnswer> {
    const { callId, attempts, expiresInMs, onExpiry, sample } = pend;
    const access = this.#access;
    const keys = access.callKeys(callId);
    const { entryKeys, args } = this.#entry(pend, expiresInMs);
    access.auditWriter?.send();
    const [kind, , expiresAtMs] = await pendScript.run(
      access.redis,
      [...access.bases(keys), keys.job(''), ...entryKeys, keys.progress(callId)],
      [
        ...args,
        formatAttempts(attempts),
        expiresInMs,
        onExpiry,
        sample === undefined ? '' : JSON.stringify(sample),
        pend.sessionKey,
        access.retentionMs,
      ],
    );
    if (kind === 'pending') return { kind, expiresAtMs: Number(expiresAtMs) };
    return { kind: kind as 'cancelled' | 'ended' | 'fenced' };
  }

  #entry({ callId, fence, token, terms }: IssuedToken, neededMs: number) {
    const keys = this.#access.callKeys(callId);
    const text = JSON.stringify(terms);
    const [name, termsName] = [tokenName(token), digest(text)];
    const signature = this.#access.signatures.sign('completion', [name, callId, String(fence)], termsName);
    return {
      entryKeys: [entryKey(keys, name), termsKey(keys, termsName)],
      args: [callId, fence, text, termsName, signature, neededMs + KEPT_MS],
    };
  }

  /** Finds the call of a token. Throws `COMPLETION_USED` and `UNKNOWN_COMPLETION`, the latter also for a wrong signature. */
  async find(token: string): Promise<CompletionEntry> {
    const { partition, name } = readCompletionToken(token);
    const { redis, signatures } = this.#access;
    const keys = this.#access.keys(partition);
    const read = () => redis.hmget(entryKey(keys, name), ...['call', 'fence', 'terms', 'signature', 'usedBy']);
    let [callId, fence, termsName, signature, usedBy] = await read();
    if (callId === null) {
      await setTimeout(ISSUED_WITHIN_MS);
      [callId, fence, termsName, signature, usedBy] = await read();
    }
    if (typeof callId !== 'string' || typeof termsName !== 'string') throw new PawlError('UNKNOWN_COMPLETION');
    if (!signatures.verify('completion', [name, callId, fence ?? ''], termsName, signature ?? ''))
      throw new PawlError('UNKNOWN_COMPLETION');
    if (typeof usedBy === 'string') throw new PawlError('COMPLETION_USED');
    const terms = await redis.get(termsKey(keys, termsName));
    if (terms === null || digest(terms) !== termsName) throw new PawlError('UNKNOWN_COMPLETION');
    return { name, callId, terms: JSON.parse(terms) as CompletionTerms };
  }

  /** Ends a call with the outcome from the outside system, once. */
  async complete(
    entry: CompletionEntry,
    { settle, job, attempt }: CompletionEnd,
  ): Promise<'settled' | CompletionRefusal> {
    const access = this.#access;
    const ready = await prepareSettle(access, settle);
    const [callId, fence, outcome, signature, , terms, apart] = settleArguments(access, ready);
    const end = JSON.stringify(attempt).slice(1, -1);
    const args = [job.ended, job.value, end, callId, fence, outcome, signature, terms, apart] as (string | number)[];
    const [code] = await this.#run('settle', entry, args);
    return code as 'settled' | CompletionRefusal;
  }

  /** Reports progress to the producers that wait. */
  async report(entry: CompletionEntry, event: object): Promise<'reported' | CompletionRefusal> {
    const [code] = await this.#run('progress', entry, [JSON.stringify(event)]);
    return code as 'reported' | CompletionRefusal;
  }

  /** Gives a call more time. Without `expiresAtMs`, its attempt still runs, and the time counts from its end. */
  async extend(
    entry: CompletionEntry,
    extendMs: number,
  ): Promise<CompletionRefusal | { readonly expiresAtMs: number | undefined }> {
    const [code, , expiresAtMs] = await this.#run('extend', entry, [extendMs, MAX_PENDING_MS]);
    if (code !== 'extended') return code as CompletionRefusal;
    return { expiresAtMs: expiresAtMs === '' ? undefined : Number(expiresAtMs) };
  }

  #run(mode: string, { name, callId }: CompletionEntry, args: readonly (string | number)[]): Promise<unknown[]> {
    const access = this.#access;
    const keys = access.callKeys(callId);
    const touched = [...access.bases(keys), keys.job(''), entryKey(keys, name), keys.progress(callId)];
    return completeScript.run(access.redis, touched, [mode, uuidv7(), callId, KEPT_MS, ...args]);
  }

  /** Ends a pending call that has expired. `early`: it was extended meanwhile. */
  async expire(settle: Settle): Promise<WriteAnswer | 'early'> {
    const access = this.#access;
    const ready = await prepareSettle(access, settle);
    access.auditWriter?.send();
    const bases = access.bases(access.callKeys(settle.callId));
    const [code] = await expireScript.run(access.redis, bases, settleArguments(access, ready));
    return code as WriteAnswer | 'early';
  }

  /** Lets an expired pending call have its next attempt. */
  async resume(
    callId: string,
    fence: number,
    attempts: readonly AttemptRecord[],
    { bucket, budget }: RetryAllowance,
  ): Promise<'postponed' | 'ended' | 'early' | 'exhausted'> {
    const access = this.#access;
    const keys = access.callKeys(callId);
    const [code] = await resumeScript.run(
      access.redis,
      [keys.base, access.homeKeys(keys).retries(bucket)],
      [callId, fence, formatAttempts(attempts), budget.floor, budget.windowMs],
    );
    return code as 'postponed' | 'ended' | 'early' | 'exhausted';
  }
}

/** The call of a token. `name` is the token's digest. */
function entryKey({ base }: PartitionKeys, name: string): string {
  return `${base}:completion:${name}`;
}

/** The terms of tokens: those of one tool share them. */
function termsKey({ base }: PartitionKeys, name: string): string {
  return `${base}:completion-terms:${name}`;
}
