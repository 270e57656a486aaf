/** Searches calls by their properties: walks the index of each partition from the newest call on, page by page. */
import { PHASES, type SoughtState } from '../../shared/calls/call-state.ts';
import { isUnresolved } from '../../shared/calls/outcome.ts';
import type { CallIndex, Selection } from '../../shared/store/calls/call-index.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';

export interface CallFilter {
  /** A part of `namespace.name`. */
  readonly tool?: string | undefined;
  readonly state?: SoughtState | undefined;
}

export interface CallSearch extends CallFilter {
  readonly limit: number;
  readonly sessionKey?: string;
  isSeen(record: CallRecord): boolean;
}

const PAGE = 200;
const MAX_PAGE = 500;
/** The search reads at most this many calls of a partition, unless the caller asks for more. */
const MAX_LOOKED_AT = 5_000;

/** The newest first; `complete` unless older calls were not looked at. */
export async function findCalls(
  partitions: readonly Partition[],
  ledger: Pick<Ledger, 'glance'> & { readonly index: Pick<CallIndex, 'list'> },
  search: CallSearch,
): Promise<{ readonly records: readonly CallRecord[]; readonly complete: boolean }> {
  const { limit, sessionKey, state } = search;
  const look = async ([partition, only]: readonly [Partition, Selection['only']]) => {
    // A call that is submitted between two pages moves the end of the first page onto the second.
    const found = new Map<string, CallRecord>();
    // A page is as large as the answer, unless a filter will drop most of it, or reading it would block the event loop.
    const isAll = search.tool === undefined && search.state === undefined;
    const page = isAll ? Math.min(Math.max(limit, 20), MAX_PAGE) : PAGE;
    for (let offset = 0; offset < Math.max(MAX_LOOKED_AT, limit); offset += page) {
      const callIds = await ledger.index.list(partition, {
        limit: page,
        offset,
        only,
        ...(sessionKey === undefined ? {} : { sessionKey }),
      });
      const records = await Promise.all(callIds.map((callId) => ledger.glance(callId)));
      for (const record of records)
        if (record !== undefined && isWanted(record, search)) found.set(record.callId, record);
      if (callIds.length < page || found.size >= limit) return { found, complete: true };
    }
    return { found, complete: false };
  };
  const looked = await Promise.all(partitions.flatMap((each) => indicesOf(state).map((only) => look([each, only]))));
  const records = looked
    .flatMap(({ found }) => [...found.values()])
    .sort((one, other) => other.createdAtMs - one.createdAtMs)
    .slice(0, limit);
  return { records, complete: looked.every(({ complete }) => complete) };
}

/** An index of its own is shorter than that of all calls. */
function indicesOf(state: CallSearch['state']): readonly Selection['only'][] {
  if (state === 'inflight') return ['inflight', 'pending'];
  if (state === 'running' || state === 'delayed' || state === 'awaiting-approval' || state === 'pending')
    return [state];
  if (state === 'unresolved') return ['inDoubt'];
  return PHASES.some((phase) => phase === state) ? ['inflight'] : [undefined];
}

function isWanted(record: CallRecord, { tool, state, sessionKey, isSeen }: CallSearch): boolean {
  const { toolNamespace, toolName, target } = record.request.envelope;
  if (sessionKey !== undefined && target.sessionKey !== sessionKey) return false;
  if (tool !== undefined && !`${toolNamespace}.${toolName}`.toLowerCase().includes(tool.toLowerCase())) return false;
  return isSeen(record) && (state === undefined || isIn(record, state));
}

function isIn(record: CallRecord, state: NonNullable<CallFilter['state']>): boolean {
  if (state === 'unresolved') return record.state !== 'inflight' && isUnresolved(record.outcome);
  return record.state === state || (record.state === 'inflight' && record.phase === state);
}
