/** `pawl calls`: the ledger. */
import { type CallFilter, findCalls } from '../../producer/calls/find-calls.ts';
import type { Resolution } from '../../producer/calls/resolution.ts';
import { callSummary, callView } from '../../producer/http/core/views.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { readExactJson } from '../../shared/util/json/exact-json.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { type CliContext, pawlCommand, printList, printResult, say, usageError } from '../context.ts';
import { withSigningPawl } from '../doctor/signing-keys.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { type Column, duration } from '../print.ts';
import { SETTLEMENT_SENTENCES } from './call.ts';
import { resolutionSteps, storyOf, toolOf } from './call-story.ts';
import { type BulkOptions, resolveAll } from './dead-letters.ts';

interface ListCallsOptions extends CallFilter {
  readonly session?: string;
  readonly limit: number;
}

export const CALL_COLUMNS: readonly Column<CallRecord>[] = [
  { title: 'CALL', text: ({ callId }) => callId },
  { title: 'TOOL', text: toolOf },
  { title: 'STATE', text: callStatus },
  { title: 'ATTEMPTS', align: 'right', text: (record) => String(attemptsBegun(record)) },
  { title: 'AGE', align: 'right', text: ({ readAtMs, createdAtMs }) => duration(Math.max(0, readAtMs - createdAtMs)) },
  { title: 'SESSION', text: ({ request }) => request.envelope.target.sessionKey },
];

/** The attempts that have ended, and the one that runs. */
export function attemptsBegun({ attempts, state, phase }: CallRecord): number {
  return attempts.length + (state === 'inflight' && phase === 'running' ? 1 : 0);
}

/** `running`, `done`, `failed: TOOL_FAILED`. */
export function callStatus({ state, phase, outcome }: CallRecord): string {
  if (state === 'inflight') return phase ?? state;
  return outcome?.error === undefined || state === 'cancelled' ? state : `${state}: ${outcome.error.code}`;
}

export const listCalls = pawlCommand(async (context, pawl, options: ListCallsOptions) => {
  const { session, limit, tool, state } = options;
  const isAll = session === undefined && tool === undefined && state === undefined;
  const { ledger, shards } = pawl.backend;
  const { records: calls, complete } = await findCalls(shards.partitions(), ledger, {
    limit,
    tool,
    state,
    ...(session !== undefined && { sessionKey: session }),
    isVisible: () => true,
  });
  const json = { calls: calls.map(callSummary), ...(complete ? {} : { truncated: true }) };
  const none = isAll ? 'there are no calls' : 'there are no such calls';
  printList(context, json, { rows: calls, columns: CALL_COLUMNS, none });
  if (!complete) say(context, 'older calls were not searched');
});

export const showCall = pawlCommand(async (context, pawl, callId: string) => {
  const record = await pawl.read(callId);
  if (record === undefined) throw unknownCall(callId);
  const { approvalId, state } = record;
  const approval = approvalId === undefined ? undefined : await pawl.backend.approvals.read(approvalId);
  const tools = state === 'inflight' ? (await pawl.catalogue()).tools : undefined;
  printResult(context, callView(record), storyOf(record, defined({ approval, tools })));
});

/** Exit code 6 when the effect of the cancelled call may have happened, 1 when the call had ended already. */
export const runCancel = pawlCommand(async (context, pawl, callId: string) => {
  const { settlement, result } = await pawl.cancel(callId);
  const json = { callId, settlement, ...(result !== undefined && { result }) };
  printResult(context, json, `${callId} ${SETTLEMENT_SENTENCES[settlement]}`);
  if (!context.json && settlement !== 'too-late' && result?.status === 'error')
    for (const line of resolutionSteps(result.error, callId)) say(context, line);
  if (settlement === 'too-late') return EXIT_CODES.failed.code;
  return settlement === 'unsettled' ? EXIT_CODES.outcomeUnknown.code : EXIT_CODES.success.code;
});

interface ResolveCallOptions extends BulkOptions {
  readonly as: Resolution['as'];
  readonly output?: string;
}

/** Without --all they would have no effect, and the call would be resolved. */
const BULK_OPTIONS = ['dryRun', 'tool', 'code', 'session', 'circuit', 'since', 'until'] as const;

export async function resolveCall(
  context: CliContext,
  callId: string | undefined,
  options: ResolveCallOptions,
): Promise<number> {
  const resolution = resolutionOf(options);
  const { all, reason } = options;
  if (callId === undefined) {
    if (all !== true) throw usageError('Give the ID of a call, or --all with a --reason.');
    if (reason === undefined) throw usageError('--all needs a --reason, which is recorded in the audit trail.');
    return resolveAll(context, resolution, { ...options, reason });
  }
  if (all === true) throw usageError('Give the ID of a call or --all, not both.');
  const bulk = BULK_OPTIONS.find((name) => options[name] !== undefined);
  if (bulk !== undefined) throw usageError(`--${bulk === 'dryRun' ? 'dry-run' : bulk} belongs to --all.`);
  return withSigningPawl(context, async (pawl) => {
    const record = await pawl.calls.resolve(callId, resolution, undefined, reason);
    printResult(context, callView(record), `${callId} is now ${callStatus(record)}`);
  });
}

function resolutionOf({ as, output }: ResolveCallOptions): Resolution {
  if (output === undefined) return { as };
  if (as !== 'succeeded') throw usageError(`--output belongs to --as succeeded; this is --as ${as}.`);
  const read = readExactJson(output);
  if (read.kind === 'value') return { as, output: read.value };
  throw usageError(`--output ${read.problem}.`);
}

function unknownCall(callId: string): PawlError {
  return new PawlError(
    'UNKNOWN_CALL',
    `There is no call ${callId}, or its record has expired. 'pawl calls ls' lists the newest ones.`,
  );
}
