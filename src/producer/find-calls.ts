/** Looking for calls by what they are: walks the places' indexes from the newest call on, page by page. */
import { type CallState, PHASES, type Phase, UNKNOWN_CODES } from '../shared/call.ts';
import type { CallRecord } from '../shared/store/call-record.ts';
import type { Place } from '../shared/store/keys.ts';
import type { Ledger } from '../shared/store/ledger.ts';

export interface CallFilter {
  /** A part of `namespace.name`. */
  readonly tool?: string | undefined;
  /** `unresolved`: the outcome is unknown, and somebody should find it out. */
  readonly state?: CallState | Phase | 'unresolved' | undefined;
}

export interface CallSearch extends CallFilter {
  readonly limit: number;
  readonly sessionKey?: string;
  isSeen(record: CallRecord): boolean;
}

const PAGE = 200;
/** Calls of one place that are looked at, at most. */
const MAX_LOOKED_AT = 5_000;

/** The newest first; `complete` unless older calls were not looked at. */
export async function findCalls(
  places: readonly Place[],
  ledger: Pick<Ledger, 'list' | 'glance'>,
  search: CallSearch,
): Promise<{ readonly records: readonly CallRecord[]; readonly complete: boolean }> {
  const { limit, sessionKey, state } = search;
  // An index of its own is shorter than that of all calls.
  const isInFlight = state === 'inflight' || PHASES.some((phase) => phase === state);
  const only = isInFlight ? 'inflight' : state === 'unresolved' ? 'inDoubt' : undefined;
  const ofPlace = async (place: Place) => {
    const found: CallRecord[] = [];
    // A page is as large as the answer, unless most of it will be left out.
    const page = search.tool === undefined && search.state === undefined ? Math.max(limit, 20) : PAGE;
    for (let offset = 0; offset < MAX_LOOKED_AT; offset += page) {
      const callIds = await ledger.list(place, {
        limit: page,
        offset,
        only,
        ...(sessionKey === undefined ? {} : { sessionKey }),
      });
      const records = await Promise.all(callIds.map((callId) => ledger.glance(callId)));
      for (const record of records) if (record !== undefined && isWanted(record, search)) found.push(record);
      if (callIds.length < page || found.length >= limit) return { found, complete: true };
    }
    return { found, complete: false };
  };
  const looked = await Promise.all(places.map(ofPlace));
  const records = looked
    .flatMap(({ found }) => found)
    .sort((one, other) => other.createdAtMs - one.createdAtMs)
    .slice(0, limit);
  return { records, complete: looked.every(({ complete }) => complete) };
}

function isWanted(record: CallRecord, { tool, state, isSeen }: CallSearch): boolean {
  const { toolNamespace, toolName } = record.request.envelope;
  if (tool !== undefined && !`${toolNamespace}.${toolName}`.toLowerCase().includes(tool.toLowerCase())) return false;
  return isSeen(record) && (state === undefined || isIn(record, state));
}

function isIn(record: CallRecord, state: NonNullable<CallFilter['state']>): boolean {
  if (state === 'unresolved')
    return record.state === 'failed' && UNKNOWN_CODES.includes(record.outcome?.error?.code ?? '');
  return record.state === state || (record.state === 'inflight' && record.phase === state);
}
