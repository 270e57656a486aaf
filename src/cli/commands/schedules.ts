/** `pawl schedules`: lists, shows, writes and changes schedules. */
import type { PutSchedule } from '../../producer/schedules/schedule-service.ts';
import type { OccurrenceView, ScheduleView } from '../../producer/schedules/schedule-view.ts';
import type { MissedRule, Overlap } from '../../shared/schedules/schedule-rules.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, operatorName, print, say, withPawl } from '../context.ts';
import { requireTrustedKeys } from '../doctor/signing-keys.ts';
import { readParams } from '../params.ts';
import { type Column, fieldLines, moment, prettyJson, table } from '../print.ts';

const changeOptions = () => ({ by: operatorName() });

const COLUMNS: readonly Column<ScheduleView>[] = [
  { title: 'SCHEDULE', text: ({ id }) => id },
  { title: 'TOOL', text: ({ namespace, tool }) => `${namespace}.${tool}` },
  { title: 'TIMES', text: timesOf },
  { title: 'SESSION', text: ({ session }) => session },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'NEXT', text: ({ next }) => next[0] ?? '' },
  { title: 'LAST', text: ({ last }) => (last === undefined ? '' : `${last.at} ${last.result}`) },
];

function timesOf({ every, cron, timezone }: ScheduleView): string {
  if (cron === undefined) return `every ${typeof every === 'number' ? `${every} ms` : every}`;
  return timezone === undefined ? cron : `${cron} ${timezone}`;
}

export async function listSchedules(context: CliContext, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const schedules = await pawl.schedules.list();
    if (options.json === true) print(context, prettyJson({ schedules }));
    else if (schedules.length === 0) say(context, 'there are no schedules');
    else print(context, table(schedules, COLUMNS));
  });
}

export async function showSchedule(context: CliContext, id: string, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    show(context, await pawl.schedules.get(id), options);
  });
}

export interface PutScheduleOptions {
  readonly tool: string;
  readonly session: string;
  readonly params: string;
  readonly every?: string;
  readonly cron?: string;
  readonly timezone?: string;
  readonly from?: string;
  readonly until?: string;
  readonly limit?: number;
  readonly overlap?: Overlap;
  readonly missed?: MissedRule;
  readonly json?: boolean;
}

export async function putSchedule(context: CliContext, id: string, options: PutScheduleOptions): Promise<number> {
  const { params, json, every, ...fields } = options;
  const parsedParams = await readParams(context, params);
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    const interval = every !== undefined && /^\d+$/.test(every) ? Number(every) : every;
    const schedule = defined<PutSchedule>({ ...fields, id, params: parsedParams, every: interval });
    const view = await pawl.schedules.put(schedule, changeOptions());
    if (json !== true) say(context, `${id} ${view.revision === 1 ? 'is new' : `was replaced (${view.revision})`}`);
    show(context, view, { json: json === true });
  });
}

export async function changeSchedule(
  context: CliContext,
  action: 'pause' | 'resume' | 'run',
  id: string,
  { reason, json }: { reason?: string; json?: boolean },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    const view = await pawl.schedules[action](id, { ...changeOptions(), ...(reason !== undefined && { reason }) });
    if (json === true) print(context, prettyJson(view));
    else if ('callId' in view) print(context, escapeLine(String(view.callId)));
    else
      print(context, escapeLine(`${id} is ${view.state}${view.next[0] === undefined ? '' : `, next ${view.next[0]}`}`));
  });
}

export async function removeSchedule(context: CliContext, id: string, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    await pawl.schedules.remove(id, changeOptions());
    if (options.json === true) print(context, prettyJson({ removed: id }));
    else print(context, escapeLine(`${id} is removed; its calls continue`));
  });
}

const EVENT_COLUMNS: readonly Column<OccurrenceView>[] = [
  { title: 'TIME', text: ({ at }) => at },
  {
    title: 'RESULT',
    text: ({ result, times, more }) => `${result}${times === undefined ? '' : ` ${times}`}${more ? '+' : ''}`,
  },
  { title: 'CALL', text: ({ callId = '' }) => callId },
  { title: 'REASON', text: ({ code, reason = '' }) => (code === undefined ? reason : `${code}: ${reason}`) },
];

function show(context: CliContext, view: ScheduleView, { json = false }: { json?: boolean }): void {
  if (json) {
    print(context, prettyJson(view));
    return;
  }
  const { recent, next, counts, params, last: _, createdAtMs, updatedAtMs, pausedAtMs, ...fields } = view;
  const visibleFields = {
    ...fields,
    params: JSON.stringify(params),
    counts: Object.entries(counts)
      .map(([name, count]) => `${count} ${name}`)
      .join(', '),
    next: next.join(', '),
    paused: pausedAtMs === undefined ? '' : moment(pausedAtMs),
    created: moment(createdAtMs),
    updated: moment(updatedAtMs),
  };
  const lines = Object.entries(visibleFields).map(([name, value]) => [name, String(value ?? '')] as const);
  print(context, fieldLines(lines).join('\n'));
  if (recent.length > 0) print(context, `\n${table(recent, EVENT_COLUMNS)}`);
}
