/** `pawl sessions`: opens, lists, shows and closes sessions. */
import { callSummary } from '../../producer/http/core/views.ts';
import { spentBy } from '../../producer/http/routes/sessions.ts';
import type { Budget } from '../../shared/limits/budget.ts';
import type { Priority } from '../../shared/queues/priority-names.ts';
import {
  type CHANNEL_KINDS,
  REMOTE_CHANNELS,
  REMOTE_KINDS,
  type RemoteChannel,
  type SessionKind,
} from '../../shared/sessions/channel-kinds.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { pawlCommand, printList, printResult } from '../context.ts';
import { signingCommand } from '../doctor/signing-keys.ts';
import { type Column, fieldLines, moment, table } from '../print.ts';
import { CALL_COLUMNS } from './calls.ts';

const COLUMNS: readonly Column<SessionRecord>[] = [
  { title: 'SESSION', text: ({ sessionKey }) => sessionKey },
  { title: 'KIND', text: ({ kind }) => kind },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'ACTOR', text: ({ actorId }) => actorId },
  { title: 'OPENED', text: ({ createdAtMs }) => moment(createdAtMs) },
  { title: 'WORKSPACE', text: ({ workspaceRoot }) => workspaceRoot },
];
const CALLS_SHOWN = 20;

interface OpenSessionOptions extends Readonly<Partial<Record<RemoteChannel, string>>> {
  readonly kind: SessionKind;
  readonly key?: string;
  readonly parent?: string;
  readonly state?: string;
  readonly actor?: string;
  readonly agent?: string;
  readonly agentName?: string;
  readonly model?: string;
  readonly tenant?: string;
  readonly importance?: Priority;
  readonly workspace?: string;
  readonly channel?: (typeof CHANNEL_KINDS)[number];
  readonly skill?: readonly string[];
  /** Unchecked; `openSession` validates it. */
  readonly budget?: Budget;
}

export const openSession = signingCommand(async (context, pawl, options: OpenSessionOptions) => {
  const { key, parent, actor, agent, tenant, importance, workspace, kind, skill, budget } = options;
  const { agentName: name, model, state } = options;
  const remote = REMOTE_KINDS.find((each) => options[each] !== undefined);
  const channel = options.channel ?? remote;
  const { record } = await pawl.openSession({
    kind,
    ...defined({ sessionKey: key, parent, state, actorId: actor, agentId: agent }),
    ...(name === undefined && model === undefined ? {} : { agent: defined({ name, model }) }),
    ...defined({ tenantId: tenant, importance, workspaceRoot: workspace }),
    ...(channel !== undefined && {
      channel: { kind: channel, ...(remote && { [REMOTE_CHANNELS[remote].field]: options[remote] }) },
    }),
    ...(skill !== undefined && { skills: [...skill] }),
    ...(budget !== undefined && { budget }),
  });
  printResult(context, record, escapeLine(record.sessionKey));
});

export const listSessions = pawlCommand(async (context, pawl, options: { limit: number }) => {
  const sessions = await pawl.sessions.list(options.limit);
  printList(context, { sessions }, { rows: sessions, columns: COLUMNS, none: 'there are no sessions' });
});

export const showSession = pawlCommand(async (context, pawl, key: string) => {
  const { record } = await pawl.session(key);
  const spent = await spentBy(pawl, record);
  const sessionView = { ...record, ...spent };
  const calls = await pawl.calls.list({ sessionKey: key, limit: CALLS_SHOWN });
  const callLines = calls.length === 0 ? 'no calls' : table(calls, CALL_COLUMNS);
  const json = { ...sessionView, calls: calls.map(callSummary) };
  printResult(context, json, [...describeSession(record, spent), '', callLines].join('\n'));
});

/** The facts of a session, one on each line; those that it does not have are left out. */
function describeSession(record: SessionRecord, { spent }: { readonly spent?: object }): string[] {
  const { agentId = '', agent, channel, skills = [], taint = [], budget } = record;
  const json = (value: object | undefined) => (value === undefined ? '' : JSON.stringify(value));
  const { kind: channelKind = '', ...target } = channel ?? {};
  return fieldLines([
    ['session', record.sessionKey],
    ['kind', record.kind],
    ['state', record.state],
    ['parent', record.parent ?? ''],
    ['actor', record.actorId],
    ['agent', json(agent) || agentId],
    ['tenant', record.tenantId ?? ''],
    ['workspace', record.workspaceRoot],
    ['channel', [channelKind, ...Object.values(target)].join(' ')],
    ['importance', record.importance ?? ''],
    ['skills', skills.join(', ')],
    ['callbacks to', record.callbackUrl ?? ''],
    ['budget', json(budget)],
    ['spent', json(spent)],
    ['read from', taint.map(({ source }) => source).join(', ')],
    ['opened', moment(record.createdAtMs)],
  ]);
}

export const setSessionState = signingCommand(async (context, pawl, key: string, state: string) => {
  const record = await pawl.sessions.setState(key, state);
  printResult(context, record, escapeLine(`${key} is ${record.state}`));
});

export const closeSession = pawlCommand(async (context, pawl, key: string) => {
  await pawl.sessions.close(key);
  const text = `${escapeLine(key)} is closed; its calls in flight were cancelled`;
  printResult(context, { sessionKey: key, state: 'closed' }, text);
});
