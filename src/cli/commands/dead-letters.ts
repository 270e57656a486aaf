/** `pawl dead-letters`: calls that failed for good, run again or discarded; and `pawl calls resolve --all`. */
import { sinceSchema } from '../../producer/calls/audit.ts';
import type { Resolution } from '../../producer/calls/resolution.ts';
import type { Pawl } from '../../producer/client.ts';
import type { BulkAnswer, DeadLetter } from '../../producer/dead-letters/dead-letter-service.ts';
import { deadLetterView, redriveView } from '../../producer/http/core/views.ts';
import type { DeadLetterFilter } from '../../shared/store/dead-letters/dead-letter-index.ts';
import type { RedriveRecord } from '../../shared/store/redrives/redrives.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, pawlCommand, printList, printResult, say, usageError, withPawl } from '../context.ts';
import { withSigningPawl } from '../doctor/signing-keys.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { type Column, moment } from '../print.ts';
import { toolOf } from './call-story.ts';

/** The interval at which a waiting command reads the progress of its redrive. */
const POLL_MS = 1_000;
const MAX_LISTED_SKIPPED = 20;

type FilterOptions = Readonly<Partial<Record<'tool' | 'code' | 'session' | 'circuit' | 'since' | 'until', string>>>;

export interface BulkOptions extends FilterOptions {
  readonly all?: boolean;
  readonly dryRun?: boolean;
  readonly reason?: string;
  readonly perSecond?: number;
}

const COLUMNS: readonly Column<DeadLetter>[] = [
  { title: 'CALL', text: ({ record }) => record.callId },
  { title: 'TOOL', text: ({ record }) => toolOf(record) },
  { title: 'CODE', text: ({ record }) => record.outcome?.error?.code ?? '' },
  { title: 'ATTEMPTS', align: 'right', text: ({ record }) => String(record.attempts.length) },
  { title: 'FAILED', text: ({ failedAtMs }) => moment(failedAtMs) },
  { title: 'SESSION', text: ({ record }) => record.request.envelope.target.sessionKey },
  { title: 'MESSAGE', text: ({ record }) => record.outcome?.error?.message ?? '' },
];

const REDRIVE_COLUMNS: readonly Column<RedriveRecord>[] = [
  { title: 'REDRIVE', text: ({ redriveId }) => redriveId },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'MATCHED', align: 'right', text: ({ matched }) => String(matched) },
  { title: 'STARTED', align: 'right', text: ({ started }) => String(started) },
  { title: 'SKIPPED', align: 'right', text: ({ skipped }) => String(skipped) },
  { title: 'BY', text: ({ by }) => by },
  { title: 'BEGAN', text: ({ createdAtMs }) => moment(createdAtMs) },
];

export async function listDeadLetters(
  context: CliContext,
  options: FilterOptions & { readonly limit: number; readonly next?: string },
): Promise<number> {
  const filterAt = filterOf(options);
  return withPawl(context, async (pawl) => {
    const filter = filterAt(pawl.backend.clock.now());
    const { limit, next } = options;
    const page = await pawl.deadLetters.list({ ...filter, limit, next });
    const { deadLetters: rows, ...rest } = page;
    const none = 'there are no such dead letters';
    printList(context, { deadLetters: rows.map(deadLetterView), ...rest }, { rows, columns: COLUMNS, none });
    if (context.json || rows.length === 0) return;
    const { counts } = page;
    if (counts !== undefined)
      say(context, `${plural(counts.total, 'dead letter')}: ${countsText(counts.codes)} · ${countsText(counts.tools)}`);
    if (page.next !== undefined) say(context, `more with --next ${page.next}`);
  });
}

/** Waits for the end of the redrive. A command that is interrupted leaves it to a front door. */
export async function redrive(context: CliContext, ids: readonly string[], options: BulkOptions): Promise<number> {
  const selectionAt = selectionOf(ids, options);
  return withSigningPawl(context, async (pawl) => {
    const selection = selectionAt(pawl.backend.clock.now());
    const { perSecond, dryRun, reason } = options;
    let result = await pawl.deadLetters.redrive({ ...selection, perSecond, dryRun, reason });
    for (const { redriveId } = result; redriveId !== undefined && result.state === 'running'; ) {
      say(context, `${result.started + result.skipped.length} of ${result.matched}…`);
      const { matched, started, skipped, state } = await pawl.deadLetters.progress(redriveId, { waitMs: POLL_MS });
      result = { matched, started, skipped, redriveId, state };
    }
    report(context, result, dryRun === true ? 'would be redriven' : 'redriven', options);
    return exitCodeOf(ids, result);
  });
}

export async function discard(context: CliContext, ids: readonly string[], options: BulkOptions): Promise<number> {
  const { dryRun, reason } = options;
  const selectionAt = selectionOf(ids, options);
  return withPawl(context, async (pawl) => {
    const selection = { ...selectionAt(pawl.backend.clock.now()), dryRun, reason };
    const result = await pawl.deadLetters.discard(selection);
    report(context, result, dryRun === true ? 'would be discarded' : 'discarded', options);
    return exitCodeOf(ids, result);
  });
}

export const listRedrives = pawlCommand(async (context, pawl, options: { limit: number }) => {
  const rows = await pawl.deadLetters.redrives({ limit: options.limit });
  const none = 'there were no redrives in the last week';
  printList(context, { redrives: rows.map(redriveView) }, { rows, columns: REDRIVE_COLUMNS, none });
});

export const stopRedrive = pawlCommand(async (context, pawl, redriveId: string) => {
  const progress = await pawl.deadLetters.stop(redriveId);
  const text = `${redriveId} is ${progress.state}: ${progress.started} of ${progress.matched} were redriven`;
  printResult(context, redriveView(progress), text);
});

/** Resolves all calls in doubt that match a filter, in as many requests as needed. */
export async function resolveAll(
  context: CliContext,
  resolution: Resolution,
  options: BulkOptions & { readonly reason: string },
): Promise<number> {
  const filterAt = filterOf(options);
  return withSigningPawl(context, async (pawl) => {
    const filter = filterAt(pawl.backend.clock.now());
    const result = await resolveInBatches(pawl, { ...resolution, reason: options.reason }, filter, options.dryRun);
    const as = `${options.dryRun === true ? 'would be resolved' : 'resolved'} as ${resolution.as}`;
    report(context, result, as, options);
  });
}

async function resolveInBatches(
  pawl: Pawl,
  resolution: Resolution & { readonly reason: string },
  filter: DeadLetterFilter,
  dryRun: boolean | undefined,
): Promise<BulkAnswer> {
  const total = { matched: 0, started: 0, skipped: [] as BulkAnswer['skipped'] };
  for (;;) {
    const { matched, started, skipped } = await pawl.calls.resolveMany({ ...resolution, filter, dryRun });
    total.matched = total.started + matched;
    total.started += started;
    total.skipped = skipped;
    if (dryRun === true || started === 0 || started + skipped.length >= matched) return total;
  }
}

function report(context: CliContext, result: BulkAnswer, verb: string, { dryRun }: BulkOptions): void {
  const { matched, started, skipped } = result;
  const doneCount = dryRun === true ? matched - skipped.length : started;
  const lines = [
    `${doneCount} of ${plural(matched, 'call')} ${verb}, ${skipped.length} skipped`,
    ...skipped.slice(0, MAX_LISTED_SKIPPED).map(({ callId, code }) => escapeLine(`  ${callId}  ${code}`)),
  ];
  if (skipped.length > MAX_LISTED_SKIPPED)
    lines.push(`  and ${skipped.length - MAX_LISTED_SKIPPED} more: --json lists them`);
  printResult(context, result, lines.join('\n'));
}

/** A command that names calls fails where one of them is skipped. */
function exitCodeOf(ids: readonly string[], { skipped }: BulkAnswer): number {
  return EXIT_CODES[ids.length > 0 && skipped.length > 0 ? 'failed' : 'success'].code;
}

/** Checks a selection, and gives it at a time of Redis' clock. A command without IDs and filter would select all dead letters, so it needs `--all`. */
function selectionOf(ids: readonly string[], options: BulkOptions) {
  const filterAt = filterOf(options);
  const isFiltered = Object.keys(filterAt(0)).length > 0;
  if (ids.length > 0 && (isFiltered || options.all === true))
    throw usageError('Give IDs of calls, or a filter or --all, but not both.');
  if (ids.length === 0 && !isFiltered && options.all !== true)
    throw usageError('Give IDs of calls, a filter such as --tool, or --all. With --dry-run nothing changes.');
  return (nowMs: number) => (ids.length > 0 ? { ids } : { filter: filterAt(nowMs) });
}

/** Checks a filter, and gives it at a time of Redis' clock, from which ages count. */
function filterOf({ tool, code, session, circuit, since, until }: FilterOptions): (nowMs: number) => DeadLetterFilter {
  const [sinceAt, untilAt] = [parseTime('--since', since), parseTime('--until', until)];
  return (nowMs) => defined({ tool, code, session, circuit, sinceMs: sinceAt?.(nowMs), untilMs: untilAt?.(nowMs) });
}

function parseTime(option: string, text: string | undefined): ((nowMs: number) => number) | undefined {
  if (text === undefined) return undefined;
  const age = /^(\d{1,6})(s|m|h|d)$/.exec(text);
  if (age !== null) return (nowMs) => nowMs - Number(age[1]) * UNITS[age[2] as keyof typeof UNITS];
  const { data, error } = sinceSchema.safeParse(text);
  if (data !== undefined) return () => data;
  throw usageError(`${option} ${error?.issues[0]?.message}, or an age such as 90m; got ${JSON.stringify(text)}.`);
}

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

function countsText(counts: Readonly<Record<string, number>>): string {
  return Object.entries(counts)
    .sort(([, one], [, other]) => other - one)
    .map(([name, count]) => `${count} ${name}`)
    .join(', ');
}
