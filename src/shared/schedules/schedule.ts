/** A schedule: a call that is made again and again, at times of an interval or of a cron expression. */
import { z } from 'zod';
import { identifierSchema, laterParamsSchema } from '../calls/envelope.ts';
import { type Issue, invalidInput, type PawlError, reasonOf } from '../errors/failure.ts';
import { canonicalJson } from '../schema/canonical-json.ts';
import { WITH_RECEIVED, zodIssues } from '../schema/zod-issues.ts';
import { splitName, type ToolReference } from '../tools/tool.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { didYouMean } from '../util/text/nearest.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { isoMoment } from '../util/time.ts';
import { intervalMs, MAX_INTERVAL_MS, MIN_INTERVAL_MS, occurrencesOf, type Timing } from './occurrences.ts';
import { MISSED_RULES, type MissedRule, OVERLAPS, type Overlap } from './schedule-rules.ts';
import { isTimeZone } from './zone-time.ts';

/** The longest parameters of a schedule, as JSON text. */
const MAX_PARAMS_LENGTH = 64 * 1_024;

const scheduleIdSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, 'must be 1 to 100 letters, digits, ".", "_" or "-", not "." first');

const intervalSchema = z.unknown().transform((input, context): number | string => {
  const ms = typeof input === 'number' || typeof input === 'string' ? intervalMs(input) : undefined;
  if (ms !== undefined && Number.isInteger(ms) && ms >= MIN_INTERVAL_MS && ms <= MAX_INTERVAL_MS)
    return input as number | string;
  const range = `from ${MIN_INTERVAL_MS} ms to 366 days`;
  context.addIssue({
    code: 'custom',
    message: `must be milliseconds or a text such as "30s", "5m", "2h" or "1d", ${range}; got ${quoteValue(input)}`,
  });
  return z.NEVER;
});

const cronSchema = z.string().superRefine((cron, context) => {
  const fault = cronFault(cron);
  if (fault !== undefined) context.addIssue({ code: 'custom', message: fault });
});

/** One of a field's items: `*`, a value, a range, each with or without a step. In days also `L`, in weekdays `5L` and `5#3`. */
const CRON_ITEM = /^(?:[*?]|(?:\d{1,2}|[a-z]{3})(?:-(?:\d{1,2}|[a-z]{3}))?)(?:\/\d+)?$/i;
const LAST_DAY = /^L$/i;
const NTH_WEEKDAY = /^(?:[0-7]|[a-z]{3})(?:L|#[1-5])$/i;

/** The parser reads past what it does not understand: `1-` and `*L` mean `*` to it. */
function misreadItem(fields: readonly string[]): string | undefined {
  const items = fields.flatMap((field, index) =>
    field.split(',').map((item) => ({ item, fromEnd: fields.length - index })),
  );
  return items.find(
    ({ item, fromEnd }) =>
      !CRON_ITEM.test(item) && !(fromEnd === 3 && LAST_DAY.test(item)) && !(fromEnd === 1 && NTH_WEEKDAY.test(item)),
  )?.item;
}

/** The fault of a cron expression; undefined for a usable one. */
function cronFault(cron: string): string | undefined {
  const fields = cron.trim().split(/\s+/);
  const shape = 'must have 5 fields (minute hour day month weekday), or 6 with seconds first';
  if (fields.length < 5 || fields.length > 6 || cron.trim() === '') return `${shape}; got ${JSON.stringify(cron)}`;
  // `H` has another value in each process.
  if (fields.some((field) => /(?:^|,)H/i.test(field))) return 'must name its times: "H" stands for a random one';
  const misread = misreadItem(fields);
  if (misread !== undefined)
    return `is no cron expression: ${JSON.stringify(misread)} is no value, range or step; it ${shape}`;
  const neverComes = `names a day that never comes: ${JSON.stringify(cron)}`;
  try {
    return occurrencesOf({ cron }).after(0) === undefined ? neverComes : undefined;
  } catch (error) {
    const reason = reasonOf(error);
    // The parser's words for a day that its month does not have.
    return /explicit day of month/i.test(reason) ? neverComes : `is no cron expression: ${reason}; it ${shape}`;
  }
}

const timezoneSchema = z.string().superRefine((zone, context) => {
  if (isTimeZone(zone)) return;
  const hint = didYouMean(zone, Intl.supportedValuesOf('timeZone'));
  context.addIssue({
    code: 'custom',
    message: `must be a time zone such as "Europe/Berlin" or "UTC"; got ${JSON.stringify(zone)}${hint && ` (${hint})`}`,
  });
});

const LATEST_MS = Date.UTC(9_999, 0);

const momentSchema = z
  .unknown()
  .transform((input, context): number => {
    const atMs = typeof input === 'string' ? isoMoment(input) : input instanceof Date ? input.getTime() : input;
    if (typeof atMs === 'number' && Number.isInteger(atMs) && atMs >= 0 && atMs <= LATEST_MS) return atMs;
    context.addIssue({
      code: 'custom',
      message: `must be a moment such as "2026-11-26T09:00:00Z", or milliseconds since the epoch; got ${quoteValue(input)}`,
    });
    return z.NEVER;
  })
  .meta({ type: ['string', 'integer'], description: 'ISO 8601 with an offset, or milliseconds since the epoch.' });

const scheduleFields = {
  /** `name` or `namespace.name`. */
  tool: z.string().min(1).max(256),
  params: laterParamsSchema(MAX_PARAMS_LENGTH).default({}),
  session: identifierSchema,
  every: intervalSchema.optional().meta({
    type: ['string', 'integer'],
    description: 'Such as `30s`, `5m`, `1h30m` or `1d`, or milliseconds; at least a second.',
  }),
  cron: cronSchema.optional().describe('5 fields, or 6 with seconds first.'),
  timezone: timezoneSchema.optional().describe('Of `cron`. Default: UTC.'),
  from: momentSchema.optional(),
  until: momentSchema.optional(),
  limit: z.number().int().min(1).optional().describe('So many calls at most.'),
  overlap: z.enum(OVERLAPS).default('skip'),
  missed: z.enum(MISSED_RULES).default('run-latest'),
};

/** The body of `PUT /v1/schedules/{id}`. */
export const scheduleSchema = z.strictObject(scheduleFields).superRefine((schedule, context) => {
  for (const issue of contradictions(schedule)) context.addIssue({ code: 'custom', ...issue });
});

interface TimeInputs {
  /** Milliseconds, or a text such as `30s`, `5m`, `1h30m` or `1d`. */
  readonly every?: number | string | undefined;
  /** ISO 8601 with an offset, milliseconds since the epoch, or a Date. */
  readonly from?: string | number | Date | undefined;
  readonly until?: string | number | Date | undefined;
}

/** A schedule as its owner asks for it, with a tool by name. */
export type ScheduleRequest = Omit<z.input<typeof scheduleSchema>, keyof TimeInputs> &
  TimeInputs & { readonly id: string };
export type CheckedSchedule = z.output<typeof scheduleSchema> & { readonly id: string };

/** Faults of several fields together. */
function contradictions({
  every,
  cron,
  timezone,
  from,
  until,
}: Partial<z.output<z.ZodObject<typeof scheduleFields>>>): { readonly path: string[]; readonly message: string }[] {
  const faults: { readonly path: string[]; readonly message: string }[] = [];
  const add = (name: string, message: string) => void faults.push({ path: [name], message });
  if (every !== undefined && cron !== undefined) add('cron', 'must not stand beside every: give one of them');
  if (every === undefined && cron === undefined) add('every', 'must be given, or cron');
  if (every !== undefined && cron === undefined && timezone !== undefined)
    add('timezone', 'belongs to cron: an interval takes the same time in every zone');
  if (from !== undefined && until !== undefined && from > until) add('until', 'must not be before from');
  return faults;
}

/** Throws `CONTRACT_INVALID` with the path of every fault. */
export function parseSchedule({ id, ...input }: ScheduleRequest): CheckedSchedule {
  const name = scheduleIdSchema.safeParse(id, WITH_RECEIVED);
  const fields = scheduleSchema.safeParse(input, WITH_RECEIVED);
  const nameIssues = name.success ? [] : zodIssues(name.error).map((issue) => ({ ...issue, path: 'id' }));
  const fieldIssues = fields.success ? [] : zodIssues(fields.error);
  if (!name.success || !fields.success) throw invalidSchedule([...nameIssues, ...fieldIssues]);
  return { id: name.data, ...fields.data };
}

export function invalidSchedule(issues: readonly Issue[]): PawlError {
  return invalidInput('The schedule cannot be used', issues, 'the schedule');
}

/** A schedule as stored. */
export interface ScheduleRecord extends Timing {
  readonly id: string;
  /** 1 for a new schedule, one more with each that replaced it. */
  readonly revision: number;
  /** The revision that changed its call last: the tool, the parameters or the session. */
  readonly callRevision: number;
  readonly tool: ToolReference;
  readonly params: Readonly<Record<string, unknown>>;
  readonly sessionKey: string;
  readonly tenantId?: string;
  readonly limit?: number;
  readonly overlap: Overlap;
  readonly missed: MissedRule;
  /** Its calls do not occur until it is resumed. */
  readonly paused?: {
    readonly atMs: number;
    readonly by: string;
    readonly reason?: string;
    /** The schedule paused itself: a new session for it, or `resume`, lets it go on. */
    readonly itself?: true;
  };
  /** The submitter of its calls, who cannot approve them. */
  readonly submittedBy?: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly updatedBy: string;
}

interface Authorship {
  readonly by: string;
  readonly submittedBy?: string | undefined;
  readonly tenantId: string | undefined;
  readonly nowMs: number;
}

/** The record of a new schedule, or of one that replaces another. */
export function scheduleRecord(
  { tool: name, session: sessionKey, from: fromMs, until: untilMs, ...rest }: CheckedSchedule,
  before: ScheduleRecord | undefined,
  { by, submittedBy, tenantId, nowMs }: Authorship,
): ScheduleRecord {
  const tool = splitName(name);
  const revision = (before?.revision ?? 0) + 1;
  const isSameCall = before !== undefined && callOf(before) === callOf({ tool, params: rest.params, sessionKey });
  return defined({
    ...rest,
    sessionKey,
    fromMs,
    untilMs,
    tool,
    tenantId,
    submittedBy,
    revision,
    callRevision: isSameCall ? before.callRevision : revision,
    // A schedule that paused itself had no session to call in; this one has.
    paused: before?.paused?.itself === true ? undefined : before?.paused,
    createdAtMs: before?.createdAtMs ?? nowMs,
    updatedAtMs: nowMs,
    updatedBy: by,
  });
}

function callOf({ tool, params, sessionKey }: Pick<ScheduleRecord, 'tool' | 'params' | 'sessionKey'>): string {
  return canonicalJson([tool, params, sessionKey]);
}

export function hasSameTiming(one: ScheduleRecord, other: ScheduleRecord): boolean {
  const times = ({ every, cron, timezone, fromMs, untilMs, limit }: ScheduleRecord) =>
    JSON.stringify([every, cron, timezone, fromMs, untilMs, limit]);
  return times(one) === times(other);
}

/** The idempotency key of an occurrence: the same in every process, so that no occurrence runs twice. */
export function occurrenceKey(scheduleId: string, atMs: number): string {
  return `schedule:${scheduleId}:${new Date(atMs).toISOString()}`;
}
