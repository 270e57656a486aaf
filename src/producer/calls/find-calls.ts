/** Searches calls by their properties: scans the index of each partition from the newest call on, page by page. */
import { PHASES, type SearchableState } from '../../shared/calls/call-state.ts';
import { isUnresolved } from '../../shared/calls/outcome.ts';
import type { CallIndex, CallListOptions } from '../../shared/store/calls/call-index.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';

export interface CallFilter {
  /** A part of `namespace.name`. */
  readonly tool?: string | undefined;
  readonly state?: SearchableState | undefined;
}

interface CallSearch extends CallFilter {
  readonly limit: number;
  readonly sessionKey?: string;
  isVisible(record: CallRecord): boolean;
}

const PAGE = 200;
const MAX_PAGE = 500;
/** The search reads at most this many calls of a partition, unless the caller asks for more. */
const MAX_SCANNED = 5_000;

/** The newest first. `complete` is false when older calls were not scanned. */
export async function findCalls(
  partitions: readonly Partition[],
  ledger: Pick<Ledger, 'readBrief'> & { readonly index: Pick<CallIndex, 'list'> },
  search: CallSearch,
): Promise<{ readonly records: readonly CallRecord[]; readonly complete: boolean }> {
  const { limit, sessionKey, state } = search;
  const searchPartition = async ([partition, only]: readonly [Partition, CallListOptions['only']]) => {
    // A call that is submitted between two pages moves the end of the first page onto the second.
    const matches = new Map<string, CallRecord>();
    // A page is as large as the answer, unless a filter will drop most of it, or reading it would block the event loop.
    const isAll = search.tool === undefined && search.state === undefined;
    const page = isAll ? Math.min(Math.max(limit, 20), MAX_PAGE) : PAGE;
    for (let offset = 0; offset < Math.max(MAX_SCANNED, limit); offset += page) {
      const callIds = await ledger.index.list(partition, {
        limit: page,
        offset,
        only,
        ...(sessionKey !== undefined && { sessionKey }),
      });
      const records = await Promise.all(callIds.map((callId) => ledger.readBrief(callId)));
      for (const record of records)
        if (record !== undefined && matchesSearch(record, search)) matches.set(record.callId, record);
      if (callIds.length < page || matches.size >= limit) return { found: matches, complete: true };
    }
    return { found: matches, complete: false };
  };
  const results = await Promise.all(
    partitions.flatMap((partition) => indicesOf(state).map((only) => searchPartition([partition, only]))),
  );
  const records = results
    .flatMap(({ found }) => [...found.values()])
    .sort((one, other) => other.createdAtMs - one.createdAtMs)
    .slice(0, limit);
  return { records, complete: results.every(({ complete }) => complete) };
}

function indicesOf(state: CallSearch['state']): readonly CallListOptions['only'][] {
  if (state === 'inflight') return ['inflight', 'pending'];
  if (state === 'running' || state === 'delayed' || state === 'awaiting-approval' || state === 'pending')
    return [state];
  if (state === 'unresolved') return ['inDoubt'];
  return PHASES.some((phase) => phase === state) ? ['inflight'] : [undefined];
}

function matchesSearch(record: CallRecord, { tool, state, sessionKey, isVisible }: CallSearch): boolean {
  const { toolNamespace, toolName, target } = record.request.envelope;
  if (sessionKey !== undefined && target.sessionKey !== sessionKey) return false;
  if (tool !== undefined && !`${toolNamespace}.${toolName}`.toLowerCase().includes(tool.toLowerCase())) return false;
  return isVisible(record) && (state === undefined || hasState(record, state));
}

function hasState(record: CallRecord, state: NonNullable<CallFilter['state']>): boolean {
  if (state === 'unresolved') return record.state !== 'inflight' && isUnresolved(record.outcome);
  return record.state === state || (record.state === 'inflight' && record.phase === state);
}
