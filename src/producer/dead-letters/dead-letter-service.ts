/** `pawl.deadLetters`: lists, redrives and discards calls of mutating tools that failed for good. */
import { partitionOf } from '../../shared/calls/call-id.ts';
import { invalidInput, PawlError } from '../../shared/errors/failure.ts';
import { checkLimit, checkMembers, checkObject, invalidArgument } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import {
  checkFilter,
  checkSelection,
  DEAD_LETTER_TIERS,
  type DeadLetterFacts,
  type DeadLetterFilter,
  selectedIds,
} from '../../shared/store/dead-letters/dead-letter-index.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { RedrivenCall, RedriveRecord, SkippedCall } from '../../shared/store/redrives/redrives.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { RecordOverride } from '../calls/audit.ts';
import type { CallRedriver } from './redrive-call.ts';
import { batchSize, checkRate, type RedriveRunner, skippedCalls } from './redrive-runner.ts';

const DEFAULT_LIMIT = 50;
const DEFAULT_PER_SECOND = 50;
const DEFAULT_WAIT_MS = 2_000;
/** The most dead letters of one redrive or discard. */
const MAX_MATCHED = 100_000;
/** The most skipped calls in an answer. */
const MAX_SKIPPED = 10_000;
const CHECK_BATCH = 64;
const LIST_BATCH = 500;

/** A selection of dead letters: by their IDs, or by a filter. */
export type DeadLetterSelection = {
  /** The operator, for the audit trail. Default: the one that this client was opened for. */
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  /** Only calls of this tenant. Default: all. */
  readonly tenantId?: string | undefined;
  /** Returns what would happen, and changes nothing. */
  readonly dryRun?: boolean | undefined;
} & ({ readonly ids: readonly string[] } | { readonly filter: DeadLetterFilter });

export interface DeadLetterQuery extends DeadLetterFilter {
  readonly tenantId?: string | undefined;
  /** Default 50. */
  readonly limit?: number | undefined;
  /** `next` of the previous page. */
  readonly next?: string | undefined;
}

/** A failed call, and the time of its failure. */
export interface DeadLetter {
  readonly record: CallRecord;
  readonly failedAtMs: number;
}

interface DeadLetterCounts {
  readonly total: number;
  readonly codes: Readonly<Record<string, number>>;
  readonly tools: Readonly<Record<string, number>>;
}

export interface DeadLetterPage {
  readonly deadLetters: readonly DeadLetter[];
  /** For the next page; absent on the last one. */
  readonly next?: string;
  /** The number of dead letters that match the filter, on the first page. */
  readonly counts?: DeadLetterCounts;
}

/** The result of an action on a selection. Calls that are neither started nor skipped are not processed yet. */
export interface BulkAnswer {
  readonly matched: number;
  /** The number of calls that were redriven, discarded or resolved by now. */
  readonly started: number;
  readonly skipped: readonly SkippedCall[];
}

export interface RedriveProgress extends BulkAnswer, Omit<RedriveRecord, 'skipped'> {}

export interface DeadLetterServiceDeps {
  readonly backend: Pick<Backend, 'ledger' | 'shards' | 'deadLetters' | 'redrives'>;
  readonly redriver: Pick<CallRedriver, 'check'>;
  readonly runner: Pick<RedriveRunner, 'run'>;
  readonly recordOverride: RecordOverride;
  /** The default operator. */
  readonly operator: string;
}

export class DeadLetterService {
  readonly #deps: DeadLetterServiceDeps;

  constructor(deps: DeadLetterServiceDeps) {
    this.#deps = deps;
  }

  /**
   * Calls that failed, the newest failure first. Throws `CONTRACT_INVALID` for a `next` that no page had.
   *
   *     const { deadLetters, counts } = await pawl.deadLetters.list({ tool: 'pay', code: 'HTTP_503' });
   *     for (const { record } of deadLetters) console.log(record.callId, record.outcome?.error?.message);
   */
  async list(query: DeadLetterQuery = {}): Promise<DeadLetterPage> {
    checkObject('query', query);
    const { tenantId, limit = DEFAULT_LIMIT, next, ...filter } = query;
    checkLimit(limit);
    checkFilter(filter);
    const cursor = next === undefined ? undefined : parseCursor(next);
    const search = { filter, tenantId, cursor, limit: limit + 1 };
    const [pages, counts] = await Promise.all([
      Promise.all(this.#partitions().map((partition) => this.#newest(partition, search))),
      cursor === undefined ? this.#count(filter, tenantId) : undefined,
    ]);
    const candidates = pages.flat().sort((one, other) => compareNewest(cursorOf(one), cursorOf(other)));
    const deadLetters = candidates.slice(0, limit);
    const last = deadLetters.at(-1);
    const more = candidates.length > limit && last !== undefined ? { next: formatCursor(cursorOf(last)) } : {};
    return { deadLetters, ...more, ...defined({ counts }) };
  }

  /**
   * Runs dead letters again, at most `perSecond` (default 50), the oldest failure first: each under its own ID and key. The redrive goes on
   * after `waitMs` (default 2 s), also when this process ends; `progress` says how far it is. Throws `CONTRACT_INVALID` when a filter lets
   * more than 100,000 pass.
   *
   *     const outage = { circuit: 'tool:tools.pay', sinceMs: Date.parse('2026-11-26T10:00:00Z') };
   *     const { matched, started, skipped } = await pawl.deadLetters.redrive({ filter: outage, perSecond: 100 });
   */
  async redrive(
    selection: DeadLetterSelection & { readonly perSecond?: number | undefined; readonly waitMs?: number | undefined },
  ): Promise<BulkAnswer & { readonly redriveId?: string; readonly state?: RedriveRecord['state'] }> {
    checkSelection('selection', selection, ['perSecond', 'waitMs']);
    const { redrives } = this.#deps.backend;
    const { perSecond = DEFAULT_PER_SECOND, waitMs = DEFAULT_WAIT_MS, tenantId, reason, by } = selection;
    checkRate(perSecond);
    if (!Number.isFinite(waitMs)) throw invalidArgument('waitMs', `must be milliseconds; got ${quoteValue(waitMs)}`);
    const calls = await this.#select(selection);
    if (selection.dryRun === true) return preview(calls, (call) => this.#deps.redriver.check(call, { tenantId }));
    if (calls.length === 0) return { matched: 0, started: 0, skipped: [] };
    const redriveId = uuidv7();
    const filter = filterIn(selection);
    const counts = { matched: calls.length, perSecond };
    await this.#record('redrive', selection, { redriveId, counts });
    const order = { by: by ?? this.#deps.operator, tenantId, reason, filter, perSecond, matched: calls.length };
    await redrives.begin(redriveId, order, batchesOf(calls, batchSize(perSecond)));
    await withinMs(this.#deps.runner.run(redriveId), waitMs);
    const { matched, started, skipped, state } = await this.progress(redriveId);
    return { matched, started, skipped, redriveId, state };
  }

  /** The progress of a redrive; with `waitMs`, after its end or that time. Throws `UNKNOWN_REDRIVE`. */
  async progress(
    redriveId: string,
    options: { readonly waitMs?: number; readonly tenantId?: string | undefined } = {},
  ): Promise<RedriveProgress> {
    checkMembers('options', options, ['waitMs', 'tenantId']);
    const record = await this.#read(redriveId, options.tenantId);
    if (record.state === 'running' && (options.waitMs ?? 0) > 0) {
      await withinMs(this.#deps.runner.run(redriveId), options.waitMs);
      return this.progress(redriveId);
    }
    return { ...record, skipped: await this.#deps.backend.redrives.skipped(redriveId, MAX_SKIPPED) };
  }

  async redrives(options: { readonly limit?: number; readonly tenantId?: string } = {}): Promise<RedriveRecord[]> {
    checkMembers('options', options, ['limit', 'tenantId']);
    const { limit = DEFAULT_LIMIT, tenantId } = options;
    checkLimit(limit);
    const { redrives } = this.#deps.backend;
    const records = await Promise.all((await redrives.list(LIST_BATCH)).map((id) => redrives.read(id)));
    const visible = records.filter((record) => record !== undefined && isVisible(record, tenantId));
    return visible.slice(0, limit) as RedriveRecord[];
  }

  /** Stops a redrive: the calls that it has not reached stay dead letters. Throws `UNKNOWN_REDRIVE`. */
  async stop(redriveId: string, options: { readonly by?: string; readonly tenantId?: string | undefined } = {}) {
    checkMembers('options', options, ['by', 'tenantId']);
    await this.#read(redriveId, options.tenantId);
    await this.#deps.backend.redrives.stop(redriveId);
    const { by, tenantId } = options;
    await this.#deps.recordOverride({ what: 'dead-letters', action: 'stop', by, tenantId, redriveId });
    return this.progress(redriveId);
  }

  /** Removes dead letters from the list, so that they cannot be redriven. Their records stay. Calls in doubt are skipped. */
  async discard(selection: DeadLetterSelection): Promise<BulkAnswer> {
    checkSelection('selection', selection);
    const calls = await this.#select(selection);
    if (selection.dryRun === true) return preview(calls, (call) => this.#discardSkipCode(call));
    const { deadLetters } = this.#deps.backend;
    const redrivable = calls.filter(({ failedAtMs }) => failedAtMs > 0);
    const skipped = skippedCalls(calls, calls.map(unknownSkipCode));
    let started = 0;
    for (const batch of batchesOf(redrivable, LIST_BATCH)) {
      const ids: string[] = [];
      for (const [partition, callIds] of byPartition(batch)) {
        const answers = await deadLetters.discard(partition, callIds);
        for (const [index, callId] of callIds.entries()) {
          const isInDoubt = answers[index] === 'unresolved';
          if (answers[index] === 'discarded') ids.push(callId);
          else skipped.push({ callId, code: isInDoubt ? await this.#outcomeCode(callId) : notRedrivable(callId) });
        }
      }
      started += ids.length;
      for (const callIds of batchesOf(ids, 100)) await this.#record('discard', selection, { callIds });
    }
    const counts = { matched: calls.length, started, skipped: skipped.length };
    await this.#record('discard', selection, { counts });
    return { ...counts, skipped: skipped.slice(0, MAX_SKIPPED) };
  }

  async #discardSkipCode(call: RedrivenCall): Promise<string | undefined> {
    if (call.failedAtMs === 0) return unknownSkipCode(call);
    const record = await this.#deps.backend.ledger.readBrief(call.callId);
    if (record === undefined) return notRedrivable(call.callId);
    const { error } = record.outcome ?? {};
    return error?.mayHaveHappened === true ? error.code : undefined;
  }

  async #read(redriveId: string, tenantId: string | undefined): Promise<RedriveRecord> {
    const record = typeof redriveId === 'string' ? await this.#deps.backend.redrives.read(redriveId) : undefined;
    if (record !== undefined && isVisible(record, tenantId)) return record;
    const message = `There is no redrive ${quoteValue(redriveId)}, or its record has expired.`;
    throw new PawlError('UNKNOWN_REDRIVE', message);
  }

  /** Resolves a selection, the oldest failure first. An ID that is not a dead letter of this tenant has the time 0. */
  async #select(selection: DeadLetterSelection): Promise<RedrivenCall[]> {
    const { tenantId } = selection;
    const ids = selectedIds(selection);
    if (ids !== undefined) return this.#findByIds(ids, tenantId);
    const { filter } = selection as { readonly filter: DeadLetterFilter };
    const selected: RedrivenCall[] = [];
    for await (const { callId, failedAtMs } of this.#all(filter, tenantId)) {
      selected.push({ callId, failedAtMs });
      if (selected.length > MAX_MATCHED)
        throw new PawlError(
          'CONTRACT_INVALID',
          `The filter lets more than ${MAX_MATCHED} dead letters pass: narrow it by tool, code, session or time.`,
          { issues: [{ path: 'filter', message: `must let at most ${MAX_MATCHED} dead letters pass` }] },
        );
    }
    return selected.sort((one, other) => one.failedAtMs - other.failedAtMs);
  }

  async #findByIds(ids: readonly string[], tenantId: string | undefined): Promise<RedrivenCall[]> {
    const failedAt = new Map<string, number>();
    for (const [partition, callIds] of byPartition(ids.map((callId) => ({ callId }))))
      for (const facts of await this.#deps.backend.deadLetters.find(partition, callIds))
        if (facts !== undefined && isVisible(facts, tenantId)) failedAt.set(facts.callId, facts.failedAtMs);
    return ids.map((callId) => ({ callId, failedAtMs: failedAt.get(callId) ?? 0 }));
  }

  async *#all(filter: DeadLetterFilter, tenantId: string | undefined): AsyncGenerator<DeadLetterFacts> {
    for (const partition of this.#partitions())
      for await (const page of this.#deps.backend.deadLetters.scan(partition, { filter, tenantId, order: 'oldest' }))
        yield* page;
  }

  async #newest(partition: Partition, { filter, tenantId, cursor, limit }: PageSearch): Promise<DeadLetter[]> {
    const { deadLetters, ledger } = this.#deps.backend;
    const { untilMs = cursor?.failedAtMs ?? Number.POSITIVE_INFINITY } = filter;
    const latestMs = Math.min(untilMs, cursor?.failedAtMs ?? untilMs);
    const from = { ...filter, untilMs: Number.isFinite(latestMs) ? latestMs : undefined };
    const newest: DeadLetter[] = [];
    for await (const page of deadLetters.scan(partition, { filter: from, tenantId, order: 'newest' })) {
      const rest = page.filter((facts) => cursor === undefined || compareNewest(facts, cursor) > 0);
      for (let offset = 0; offset < rest.length && newest.length < limit; offset += limit) {
        const some = rest.slice(offset, offset + limit);
        const records = await Promise.all(some.map(({ callId }) => ledger.readBrief(callId)));
        const expired: string[] = [];
        for (const [position, { callId, failedAtMs }] of some.entries()) {
          const record = records[position];
          if (record === undefined) expired.push(callId);
          else if (record.state === 'failed') newest.push({ record, failedAtMs });
        }
        if (expired.length > 0) await deadLetters.discard(partition, expired);
      }
      if (newest.length >= limit) break;
    }
    return newest.slice(0, limit);
  }

  async #count(filter: DeadLetterFilter, tenantId: string | undefined): Promise<DeadLetterCounts> {
    const [codes, tools] = [new Map<string, number>(), new Map<string, number>()];
    let total = 0;
    for await (const { code, tool } of this.#all(filter, tenantId)) {
      total += 1;
      codes.set(code, (codes.get(code) ?? 0) + 1);
      tools.set(tool, (tools.get(tool) ?? 0) + 1);
      if (total >= MAX_MATCHED) break;
    }
    return { total, codes: Object.fromEntries(codes), tools: Object.fromEntries(tools) };
  }

  async #outcomeCode(callId: string): Promise<string> {
    const record = await this.#deps.backend.ledger.readBrief(callId);
    return record?.outcome?.error?.code ?? 'OUTCOME_UNKNOWN';
  }

  #partitions(): Partition[] {
    return this.#deps.backend.shards.partitions(DEAD_LETTER_TIERS);
  }

  #record(
    action: 'redrive' | 'discard',
    selection: DeadLetterSelection,
    details: Pick<Parameters<RecordOverride>[0], 'counts' | 'callIds' | 'redriveId'>,
  ): Promise<void> {
    const { by, reason, tenantId } = selection;
    const filter = filterIn(selection);
    return this.#deps.recordOverride({ what: 'dead-letters', action, by, reason, tenantId, filter, ...details });
  }
}

function filterIn(selection: DeadLetterSelection): DeadLetterFilter | undefined {
  return 'filter' in selection ? selection.filter : undefined;
}

function isVisible(one: { readonly tenantId?: string | undefined }, tenantId: string | undefined): boolean {
  return tenantId === undefined || one.tenantId === tenantId;
}

/** The answer to a dry run. `skipCodeOf` says why a call would be skipped. */
async function preview(
  calls: readonly RedrivenCall[],
  skipCodeOf: (call: RedrivenCall) => Promise<string | undefined>,
): Promise<BulkAnswer> {
  const skipped: SkippedCall[] = [];
  for (const batch of batchesOf(calls, CHECK_BATCH))
    skipped.push(...skippedCalls(batch, await Promise.all(batch.map(skipCodeOf))));
  return { matched: calls.length, started: 0, skipped: skipped.slice(0, MAX_SKIPPED) };
}

interface PageSearch {
  readonly filter: DeadLetterFilter;
  readonly tenantId: string | undefined;
  readonly cursor: Cursor | undefined;
  readonly limit: number;
}

type Cursor = Pick<DeadLetterFacts, 'callId' | 'failedAtMs'>;

function cursorOf({ record, failedAtMs }: DeadLetter): Cursor {
  return { callId: record.callId, failedAtMs };
}

/** The order of Redis: the newest first, and equal times by ID, the greatest first. */
function compareNewest(one: Cursor, other: Cursor): number {
  return other.failedAtMs - one.failedAtMs || (one.callId < other.callId ? 1 : one.callId > other.callId ? -1 : 0);
}

function formatCursor({ callId, failedAtMs }: Cursor): string {
  return `${failedAtMs}-${callId}`;
}

function parseCursor(text: string): Cursor {
  const [, failedAtMs, callId] = /^(\d{1,16})-(.{1,128})$/.exec(text) ?? [];
  if (failedAtMs !== undefined && callId !== undefined) return { failedAtMs: Number(failedAtMs), callId };
  const issues = [{ path: 'next', message: 'must be the `next` of a page' }];
  throw invalidInput('The query is not usable', issues, 'the query');
}

function notRedrivable(callId: string): string {
  return partitionOf(callId) === undefined ? 'UNKNOWN_CALL' : 'CALL_NOT_REDRIVABLE';
}

/** The skip code of an ID that is no dead letter of the tenant. */
function unknownSkipCode({ callId, failedAtMs }: RedrivenCall): string | undefined {
  return failedAtMs === 0 ? notRedrivable(callId) : undefined;
}

/** Groups call IDs by partition. Invalid IDs are left out. */
function byPartition(calls: readonly { readonly callId: string }[]): readonly (readonly [Partition, string[]])[] {
  const groups = new Map<string, readonly [Partition, string[]]>();
  for (const { callId } of calls) {
    const partition = partitionOf(callId);
    if (partition === undefined) continue;
    const [, callIds] = getOrInsert(groups, `${partition.tier}.${partition.shard}`, () => [partition, []]);
    callIds.push(callId);
  }
  return [...groups.values()];
}

function batchesOf<Item>(items: readonly Item[], size: number): Item[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, index) =>
    items.slice(index * size, (index + 1) * size),
  );
}
