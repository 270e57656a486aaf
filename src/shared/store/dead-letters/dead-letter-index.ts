/**
 * The indices of dead letters: calls of mutating tools that failed for good. The step that fails a call writes them, so a success costs
 * nothing. An index only finds calls; what is true of a call stands in its record.
 */
import { checkMembers, checkReason, invalidArgument } from '../../schema/known-members.ts';
import { TIERS } from '../../tools/tool.ts';
import { parseJson } from '../../util/json/json-types.ts';
import { unpackId } from '../../util/text/packed-id.ts';
import { quoteValue } from '../../util/text/quote-value.ts';
import type { Redis } from '../redis/connection.ts';
import { DEAD_LETTER_NAMES, type Partition, type PartitionKeys } from '../redis/keys.ts';
import { luaConstants, luaFunction, Script } from '../redis/script.ts';

/** For `Script`: `add_dead_letter` and `remove_dead_letter`. */
export const DEAD_LETTER_LUA = [
  luaConstants(DEAD_LETTER_NAMES),
  luaFunction(new URL('./remove-dead-letter.lua', import.meta.url)),
  luaFunction(new URL('./add-dead-letter.lua', import.meta.url)),
];

const discardScript = new Script(new URL('./discard-dead-letters.lua', import.meta.url), DEAD_LETTER_LUA, 'once');

const PAGE = 1_000;
const DISCARD_BATCH = 200;

/** A search. A tool is given by its name, with or without its namespace; times are inclusive. */
export interface DeadLetterFilter {
  readonly tool?: string | undefined;
  /** The failure code of the call's outcome. */
  readonly code?: string | undefined;
  readonly session?: string | undefined;
  /** The key of the circuit that the call went through. */
  readonly circuit?: string | undefined;
  /** When the call failed, milliseconds since the epoch. */
  readonly sinceMs?: number | undefined;
  readonly untilMs?: number | undefined;
}

/** Without types, a filter under another name would let all calls pass. Throws `CONTRACT_INVALID` with the path of the fault. */
export function checkFilter(filter: unknown): void {
  checkMembers('filter', filter, ['tool', 'code', 'session', 'circuit', 'sinceMs', 'untilMs']);
  for (const [name, value] of Object.entries(filter as DeadLetterFilter)) {
    const [fits, expected] = name.endsWith('Ms')
      ? [Number.isFinite(value), 'milliseconds since the epoch']
      : [typeof value === 'string', 'a text'];
    if (value !== undefined && !fits)
      throw invalidArgument(`filter.${name}`, `must be ${expected}; got ${quoteValue(value)}`);
  }
  const { sinceMs, untilMs } = filter as DeadLetterFilter;
  if (sinceMs !== undefined && untilMs !== undefined && untilMs < sinceMs)
    throw invalidArgument('filter.untilMs', 'must not be before sinceMs: nothing can match');
}

/** Throws `CONTRACT_INVALID`: without types, `dryRun: 'yes'` would change what it should only look at. */
export function checkSelection(path: string, selection: unknown, others: readonly string[] = []): void {
  checkMembers(path, selection, ['by', 'reason', 'tenantId', 'dryRun', 'ids', 'filter', ...others]);
  const { dryRun, reason } = selection as { readonly dryRun?: unknown; readonly reason?: unknown };
  if (dryRun !== undefined && typeof dryRun !== 'boolean')
    throw invalidArgument('dryRun', `must be true or false; got ${quoteValue(dryRun)}`);
  if (reason !== undefined) checkReason('reason', reason);
}

/**
 * The distinct IDs of a selection; undefined for one by a filter. Throws `CONTRACT_INVALID` with the path of the fault, also when both are
 * given or none.
 */
export function selectedIds(selection: { readonly ids?: unknown; readonly filter?: unknown }): string[] | undefined {
  const { ids, filter } = selection;
  if (ids === undefined) return void checkFilter(filter);
  if (filter !== undefined) throw invalidArgument('filter', 'must not stand beside ids: give one of them');
  if (!Array.isArray(ids)) throw invalidArgument('ids', `must be a list of call IDs; got ${quoteValue(ids)}`);
  const wrong = ids.findIndex((id) => typeof id !== 'string');
  if (wrong >= 0) throw invalidArgument(`ids.${wrong}`, `must be the ID of a call; got ${quoteValue(ids[wrong])}`);
  return [...new Set(ids as string[])];
}

/** The facts about a dead letter that the indices hold. */
export interface DeadLetterFacts {
  readonly callId: string;
  readonly failedAtMs: number;
  readonly code: string;
  /** `namespace.name`. */
  readonly tool: string;
  readonly session: string;
  readonly circuit: string;
  readonly tenantId?: string;
}

interface DeadLetterScan {
  readonly filter: DeadLetterFilter;
  /** Those of one tenant. Default: all. */
  readonly tenantId?: string | undefined;
  readonly order: 'newest' | 'oldest';
}

/** The tiers whose failed calls are dead letters: those of tools that change something. */
export const DEAD_LETTER_TIERS = TIERS.filter((tier) => tier !== 'read-only');

type DiscardCode = 'discarded' | 'unresolved' | 'none';

export class DeadLetterIndex {
  readonly #redis: Redis;
  readonly #keysOf: (partition: Partition) => PartitionKeys;

  constructor(redis: Redis, keysOf: (partition: Partition) => PartitionKeys) {
    this.#redis = redis;
    this.#keysOf = keysOf;
  }

  /** The dead letters of one partition that a filter lets pass, page by page in the order of their failures. */
  async *scan(partition: Partition, { filter, tenantId, order }: DeadLetterScan): AsyncGenerator<DeadLetterFacts[]> {
    const keys = this.#keysOf(partition);
    const index = keys.deadLetters(tenantId);
    const { sinceMs = '-inf', untilMs = '+inf' } = filter;
    let [from, to] = order === 'newest' ? [untilMs, sinceMs] : [sinceMs, untilMs];
    // Many may have failed in one millisecond: those that were seen at the last one are passed over.
    let passed = 0;
    for (let size = PAGE; size === PAGE; ) {
      const limit = ['LIMIT', passed, PAGE] as const;
      const flat =
        order === 'newest'
          ? await this.#redis.zrevrangebyscore(index, from, to, 'WITHSCORES', ...limit)
          : await this.#redis.zrangebyscore(index, from, to, 'WITHSCORES', ...limit);
      const entries = pairsOf(flat);
      size = entries.length;
      const last = entries.at(-1)?.failedAtMs;
      if (last === undefined) return;
      const atLast = entries.filter(({ failedAtMs }) => failedAtMs === last).length;
      passed = last === from ? passed + atLast : atLast;
      from = last;
      const facts = await this.#factsOf(keys, entries);
      yield facts.filter((each) => matchesFilter(each, filter));
    }
  }

  /** The facts about calls; undefined for one that is no dead letter. */
  async find(partition: Partition, callIds: readonly string[]): Promise<(DeadLetterFacts | undefined)[]> {
    if (callIds.length === 0) return [];
    const keys = this.#keysOf(partition);
    const scores = await this.#redis.zmscore(keys.deadLetters(), ...callIds);
    const entries = callIds.map((callId, index) => ({ callId, failedAtMs: Number(scores[index] ?? Number.NaN) }));
    const factsById = new Map((await this.#factsOf(keys, entries)).map((facts) => [facts.callId, facts]));
    return entries.map(({ callId, failedAtMs }) => (Number.isNaN(failedAtMs) ? undefined : factsById.get(callId)));
  }

  /** Takes calls of one partition out of the indices. */
  async discard(partition: Partition, callIds: readonly string[]): Promise<DiscardCode[]> {
    const { base } = this.#keysOf(partition);
    const codes: DiscardCode[] = [];
    for (let index = 0; index < callIds.length; index += DISCARD_BATCH)
      codes.push(
        ...((await discardScript.run(
          this.#redis,
          [base],
          callIds.slice(index, index + DISCARD_BATCH),
        )) as DiscardCode[]),
      );
    return codes;
  }

  async count(partition: Partition): Promise<number> {
    return this.#redis.zcard(this.#keysOf(partition).deadLetters());
  }

  async #factsOf(
    keys: PartitionKeys,
    entries: readonly { readonly callId: string; readonly failedAtMs: number }[],
  ): Promise<DeadLetterFacts[]> {
    const texts = await this.#redis.hmget(keys.deadLetterFacts, ...entries.map(({ callId }) => callId));
    return entries.flatMap((entry, index) => {
      const text = texts[index];
      return typeof text === 'string' ? [factsOf(entry, text)] : [];
    });
  }
}

function pairsOf(flat: readonly string[]): { readonly callId: string; readonly failedAtMs: number }[] {
  return Array.from({ length: flat.length / 2 }, (_, index) => ({
    callId: flat[index * 2] ?? '',
    failedAtMs: Number(flat[index * 2 + 1]),
  }));
}

function factsOf(entry: { readonly callId: string; readonly failedAtMs: number }, text: string): DeadLetterFacts {
  // Facts that cannot be read are empty: the call's own record still has them.
  const stored = parseJson(text);
  const texts = Array.isArray(stored) && stored.every((each) => typeof each === 'string') ? stored : [];
  const [code = '', tool = '', session = '', circuit = '', tenantId = ''] = texts;
  return { ...entry, code, tool, session: unpackId(session), circuit, ...(tenantId === '' ? {} : { tenantId }) };
}

export function matchesFilter(facts: DeadLetterFacts, filter: DeadLetterFilter): boolean {
  const { tool, code, session, circuit, sinceMs = 0, untilMs = Number.POSITIVE_INFINITY } = filter;
  return (
    (tool === undefined || facts.tool === tool || facts.tool.endsWith(`.${tool}`)) &&
    (code === undefined || facts.code === code) &&
    (session === undefined || facts.session === session) &&
    (circuit === undefined || facts.circuit === circuit) &&
    facts.failedAtMs >= sinceMs &&
    facts.failedAtMs <= untilMs
  );
}
