/** `pawl schedules`: lists, shows, writes and changes schedules. */
import type { PutSchedule } from '../../producer/schedules/schedule-service.ts';
import type { OccurrenceView, ScheduleView } from '../../producer/schedules/schedule-view.ts';
import { shortName } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, operatorName, pawlCommand, printList, printResult, say } from '../context.ts';
import { signingCommand, withSigningPawl } from '../doctor/signing-keys.ts';
import { readParams } from '../params.ts';
import { type Column, fieldLines, moment, table } from '../print.ts';

const changeOptions = () => ({ by: operatorName() });

const COLUMNS: readonly Column<ScheduleView>[] = [
  { title: 'SCHEDULE', text: ({ id }) => id },
  { title: 'TOOL', text: ({ namespace, tool }) => shortName({ namespace, name: tool }) },
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

export const listSchedules = pawlCommand(async (context, pawl) => {
  const schedules = await pawl.schedules.list();
  printList(context, { schedules }, { rows: schedules, columns: COLUMNS, none: 'there are no schedules' });
});

export const showSchedule = pawlCommand(async (context, pawl, id: string) => {
  show(context, await pawl.schedules.get(id));
});

interface PutScheduleOptions
  extends Pick<PutSchedule, 'cron' | 'timezone' | 'from' | 'until' | 'limit' | 'overlap' | 'missed'> {
  readonly tool: string;
  readonly session: string;
  readonly params: string;
  readonly every?: string;
}

export async function putSchedule(context: CliContext, id: string, options: PutScheduleOptions): Promise<number> {
  const { params, every, ...fields } = options;
  const parsedParams = await readParams(context, params);
  return withSigningPawl(context, async (pawl) => {
    const interval = every !== undefined && /^\d+$/.test(every) ? Number(every) : every;
    const schedule = defined({ ...fields, id, params: parsedParams, every: interval });
    const view = await pawl.schedules.put(schedule, changeOptions());
    if (!context.json) say(context, `${id} ${view.revision === 1 ? 'is new' : `was replaced (${view.revision})`}`);
    show(context, view);
  });
}

export const changeSchedule = signingCommand(
  async (context, pawl, action: 'pause' | 'resume' | 'run', id: string, { reason }: { reason?: string }) => {
    const view = await pawl.schedules[action](id, { ...changeOptions(), ...(reason !== undefined && { reason }) });
    const next = view.next[0] === undefined ? '' : `, next ${view.next[0]}`;
    printResult(context, view, escapeLine('callId' in view ? String(view.callId) : `${id} is ${view.state}${next}`));
  },
);

export const removeSchedule = signingCommand(async (context, pawl, id: string) => {
  await pawl.schedules.remove(id, changeOptions());
  printResult(context, { removed: id }, escapeLine(`${id} is removed; its calls continue`));
});

const EVENT_COLUMNS: readonly Column<OccurrenceView>[] = [
  { title: 'TIME', text: ({ at }) => at },
  {
    title: 'RESULT',
    text: ({ result, times, more }) => `${result}${times === undefined ? '' : ` ${times}`}${more ? '+' : ''}`,
  },
  { title: 'CALL', text: ({ callId = '' }) => callId },
  { title: 'REASON', text: ({ code, reason = '' }) => (code === undefined ? reason : `${code}: ${reason}`) },
];

function show(context: CliContext, view: ScheduleView): void {
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
  const recentLines = recent.length === 0 ? [] : ['', table(recent, EVENT_COLUMNS)];
  printResult(context, view, [...fieldLines(lines), ...recentLines].join('\n'));
}
