/** Resolves many calls in doubt at once, with one reason. */
import { isUnresolved } from '../../shared/calls/outcome.ts';
import { isRefusalError } from '../../shared/errors/failure.ts';
import { checkReason } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import {
  checkSelection,
  type DeadLetterFilter,
  matchesFilter,
  selectedIds,
} from '../../shared/store/dead-letters/dead-letter-index.ts';
import type { SkippedCall } from '../../shared/store/redrives/redrives.ts';
import { parseResolution, type Resolution } from '../calls/resolution.ts';

/** The most calls of one request, because each resolution takes a few round trips. */
const MAX_RESOLVED = 1_000;
const LIST_BATCH = 500;
const RESOLVE_BATCH = 16;

export type BulkResolution = Resolution & {
  /** Recorded in the audit trail with each call. */
  readonly reason: string;
  readonly by?: string | undefined;
  /** Calls of one tenant. Default: of all. */
  readonly tenantId?: string | undefined;
  readonly dryRun?: boolean | undefined;
} & ({ readonly ids: readonly string[] } | { readonly filter: DeadLetterFilter });

interface BulkResolutionDeps {
  readonly backend: Pick<Backend, 'ledger' | 'shards'>;
  /** Throws `COMPLETION_INVALID` for an output that does not fit the call's tool. */
  check(record: CallRecord, resolution: Resolution): Promise<unknown>;
  resolve(callId: string, resolution: Resolution, by: string | undefined, reason: string): Promise<unknown>;
}

/** Resolves at most 1,000 of the calls. Those that are neither started nor skipped are left for the next request. */
export async function resolveMany(
  deps: BulkResolutionDeps,
  resolution: BulkResolution,
): Promise<{ readonly matched: number; readonly started: number; readonly skipped: readonly SkippedCall[] }> {
  checkSelection('resolution', resolution, ['as', 'output']);
  const { tenantId, dryRun, by, reason, as, output } = resolution as BulkResolution & { readonly output?: unknown };
  const given = parseResolution(output === undefined ? { as } : { as, output });
  checkReason('reason', reason);
  const { ledger } = deps.backend;
  const { filter } = resolution as { readonly filter: DeadLetterFilter };
  const callIds = selectedIds(resolution) ?? (await inDoubt(deps, filter, tenantId));
  const skipped: SkippedCall[] = [];
  let started = 0;
  const resolveOne = async (callId: string) => {
    const record = await ledger.readBrief(callId);
    if (record === undefined || !belongsTo(record, tenantId)) return 'UNKNOWN_CALL';
    if (record.state === 'inflight' || !isUnresolved(record.outcome)) return 'CALL_NOT_RESOLVABLE';
    if (dryRun === true) await deps.check(record, given);
    else await deps.resolve(record.callId, given, by, reason);
    return undefined;
  };
  for (let offset = 0; offset < Math.min(callIds.length, MAX_RESOLVED); offset += RESOLVE_BATCH)
    await Promise.all(
      callIds.slice(offset, Math.min(offset + RESOLVE_BATCH, MAX_RESOLVED)).map(async (callId) => {
        const code = await resolveOne(callId).catch(codeOf);
        if (code !== undefined) skipped.push({ callId, code });
        else if (dryRun !== true) started += 1;
      }),
    );
  return { matched: callIds.length, started, skipped };
}

async function inDoubt(
  { backend: { ledger, shards } }: BulkResolutionDeps,
  filter: DeadLetterFilter,
  tenantId: string | undefined,
): Promise<string[]> {
  const matching: string[] = [];
  for (const partition of shards.partitions())
    for (let offset = 0, size = LIST_BATCH; size === LIST_BATCH; offset += LIST_BATCH) {
      const callIds = await ledger.index.list(partition, { limit: LIST_BATCH, offset, only: 'inDoubt' });
      size = callIds.length;
      const records = await Promise.all(callIds.map((callId) => ledger.readBrief(callId)));
      for (const record of records)
        if (record !== undefined && belongsTo(record, tenantId) && matches(record, filter))
          matching.push(record.callId);
    }
  return matching;
}

function matches(record: CallRecord, filter: DeadLetterFilter): boolean {
  const { callId, state, outcome, circuit, updatedAtMs, request } = record;
  const { toolNamespace, toolName, target } = request.envelope;
  const tool = `${toolNamespace}.${toolName}`;
  const facts = { callId, tool, circuit, session: target.sessionKey, failedAtMs: updatedAtMs };
  return (
    state !== 'inflight' &&
    isUnresolved(outcome) &&
    matchesFilter({ ...facts, code: outcome?.error?.code ?? '' }, filter)
  );
}

function belongsTo({ request }: CallRecord, tenantId: string | undefined): boolean {
  return tenantId === undefined || request.envelope.target.tenantId === tenantId;
}

function codeOf(error: unknown): string {
  if (isRefusalError(error)) return error.code;
  throw error;
}
