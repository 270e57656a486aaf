/** `pawl audit`: lists the audit trail, and verifies that its records are unchanged. */
import { sinceSchema } from '../../producer/calls/audit.ts';
import type { Pawl } from '../../producer/client.ts';
import { auditView } from '../../producer/http/core/views.ts';
import { ChainCheck, faultText, type Verification } from '../../shared/audit/audit-chain.ts';
import { filesFrom, readLines, sinkName, type TrailFiles, trailFiles } from '../../shared/store/audit/audit-files.ts';
import type { AuditEntry } from '../../shared/store/audit/audit-trail.ts';
import { ChainSignatures } from '../../shared/store/audit/chain-signatures.ts';
import { auditFolder } from '../../shared/store/audit-service.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, pawlCommand, print, printList, say, usageError, withPawl } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { type Column, moment, prettyJson } from '../print.ts';

const COLUMNS: readonly Column<AuditEntry>[] = [
  { title: 'NUMBER', align: 'right', text: ({ seq }) => (seq === undefined ? '' : String(seq)) },
  { title: 'WHEN', text: ({ record }) => moment(record.atMs) },
  { title: 'WHAT', text: ({ record }) => record.type },
  { title: 'TOOL', text: ({ record }) => textOf(record['tool']) },
  { title: 'SESSION', text: ({ record }) => textOf(record['sessionKey']) },
  { title: 'WHO', text: ({ record }) => actorText(record) },
  { title: 'HOW', text: outcomeText },
];

interface ListAuditOptions {
  readonly session?: string;
  readonly tool?: string;
  readonly call?: string;
  readonly type?: string;
  readonly since?: string;
  readonly limit: number;
}

export async function listAudit(context: CliContext, options: ListAuditOptions): Promise<number> {
  const { session, tool, call, type, limit } = options;
  const sinceMs = options.since === undefined ? undefined : readSince(options.since);
  return withPawl(context, async (pawl) => {
    const records = await pawl.audit({ sessionKey: session, tool, callId: call, type, sinceMs, limit });
    const rows = records.toReversed();
    printList(context, { records: records.map(auditView) }, { rows, columns: COLUMNS, none: 'no such records' });
  });
}

interface VerifyAuditOptions {
  readonly folder?: string;
  /** The first record that must be there; earlier ones were archived. */
  readonly from?: number;
}

/** Verifies the files of the trail and its records in Redis. Exit code 1 when a record is not as it was written. */
export const verifyAudit = pawlCommand(async (context, pawl, options: VerifyAuditOptions) => {
  const folder = options.folder ?? auditFolder(pawl.settings);
  const target = { folder, isNamed: options.folder !== undefined, from: options.from };
  const trails = await verifyAll(pawl, target).catch((error: unknown) => {
    throw isFileError(error) ? usageError(`The files in ${folder} cannot be read: ${error.message}.`) : error;
  });
  const intact = trails.every(({ faults }) => faults.length === 0);
  if (context.json) print(context, prettyJson({ intact, trails }));
  else for (const trail of trails) printTrail(context, trail);
  if (trails.length === 0) say(context, `nothing was recorded yet (no files in ${folder}, no trail in Redis)`);
  return intact ? EXIT_CODES.success.code : EXIT_CODES.failed.code;
});

/** Whether the folder cannot be read: it is not a folder, or belongs to another user. */
function isFileError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error && ('path' in error || error.syscall === 'read');
}

interface CheckedTrail extends Verification {
  readonly trail: string;
  readonly files: number;
  /** Redis holds the head of this trail, so its end is known. */
  readonly current: boolean;
}

interface VerifyTarget {
  readonly folder: string;
  /** The operator named the folder, so it must have files. */
  readonly isNamed: boolean;
  readonly from: number | undefined;
}

async function verifyAll(pawl: Pawl, { folder, isNamed, from }: VerifyTarget): Promise<readonly CheckedTrail[]> {
  const inFiles = await trailFiles(folder);
  // Otherwise a misspelt folder would count as intact, because Redis alone would be checked.
  if (isNamed && inFiles.length === 0) throw usageError(`--folder ${folder} holds no files of an audit trail.`);
  const head = await pawl.backend.trail.head();
  const hasHead = head === undefined || inFiles.some(({ trail }) => trail === head.trail);
  const trails: readonly TrailFiles[] = hasHead ? inFiles : [...inFiles, { trail: head.trail, files: [] }];
  const checked: CheckedTrail[] = [];
  for (const each of trails) checked.push(await verifyTrail(pawl, folder, each, from));
  return checked;
}

async function verifyTrail(
  pawl: Pawl,
  folder: string,
  { trail, files: allFiles }: TrailFiles,
  from?: number,
): Promise<CheckedTrail> {
  const { backend } = pawl;
  const position = (await backend.trail.positions()).get(sinkName(folder));
  // Without files, only the newest records can be checked, because Redis keeps no others.
  const oldest = allFiles.length > 0 ? undefined : (await backend.trail.recordsFrom(trail, 0))[0]?.seq;
  const { files, first } = from === undefined ? { files: allFiles, first: oldest ?? 1 } : filesFrom(allFiles, from);
  const check = new ChainCheck(new ChainSignatures(backend.signatures), {
    seq: first - 1,
    seal: first === 1 ? trail : undefined,
  });
  for await (const line of readLines(files)) check.addLine(line);
  if (position?.trail === trail) check.reaches(position.seq);
  // The head is read last: files grow while they are read, and never beyond the head.
  const head = await backend.trail.head();
  const current = head?.trail === trail;
  while (current && check.last < head.seq) {
    const records = await backend.trail.recordsFrom(trail, check.last + 1);
    for (const record of records) if (record.seq <= head.seq) check.add(record);
    if (records.length === 0) break;
  }
  return { trail, files: files.length, current, ...check.end(current ? head : undefined) };
}

const SHOWN_FAULTS = 50;

function printTrail(context: CliContext, { trail, files, current, records, first, last, faults }: CheckedTrail): void {
  const location = files === 0 ? 'in Redis' : `in ${plural(files, 'file')}${current ? ' and Redis' : ''}`;
  const range = records === 0 ? 'no records' : `${plural(records, 'record')}, ${first} to ${last}`;
  const state = faults.length === 0 ? 'intact' : 'NOT INTACT';
  print(context, escapeLine(`trail ${trail}: ${range}, ${location}: ${state}`));
  for (const fault of faults.slice(0, SHOWN_FAULTS)) print(context, escapeLine(`  ${faultText(fault)}`));
  if (faults.length > SHOWN_FAULTS) print(context, `  and ${faults.length - SHOWN_FAULTS} more`);
  if (!current) print(context, '  Redis goes on with another trail: how far this one went is not known');
}

function readSince(text: string): number {
  const parsed = sinceSchema.safeParse(text);
  if (parsed.success) return parsed.data;
  throw usageError(`--since ${parsed.error.issues[0]?.message ?? 'is not a moment'}; got ${JSON.stringify(text)}.`);
}

/** The actor of a record, and the session's actor as well if the call names another one. */
function actorText({ by, actorId, sessionActorId, worker }: AuditEntry['record']): string {
  const actor = textOf(by ?? actorId ?? worker);
  const sessionActor = textOf(sessionActorId);
  return by !== undefined || sessionActor === '' || sessionActor === actor
    ? actor
    : `${sessionActor}, in the name of ${actor}`;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function overrideTexts({ type, circuits, callId, reason }: AuditEntry['record']): readonly unknown[] {
  if (type !== 'override') return [];
  return [...(Array.isArray(circuits) ? circuits : []), callId, ...(typeof reason === 'string' ? [`(${reason})`] : [])];
}

function outcomeText({ record }: AuditEntry): string {
  const words = [
    record['answer'],
    record['status'],
    record['state'],
    record['what'],
    record['action'],
    record['change'],
  ];
  return [...words, record['code'], ...overrideTexts(record)].filter((word) => typeof word === 'string').join(' ');
}
