/** `pawl sessions`: opens, lists, shows and closes sessions. */
import { callSummary } from '../../producer/http/core/views.ts';
import { spentBy } from '../../producer/http/routes/sessions.ts';
import type { Budget } from '../../shared/limits/budget.ts';
import type { Priority } from '../../shared/queues/priority-names.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import {
  type CHANNEL_KINDS,
  REMOTE_CHANNELS,
  REMOTE_KINDS,
  type RemoteChannel,
  type SessionKind,
} from '../../shared/sessions/session-kinds.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, print, say, withPawl } from '../context.ts';
import { requireTrustedKeys } from '../doctor/signing-keys.ts';
import { type Column, fieldLines, moment, prettyJson, table } from '../print.ts';
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

export interface OpenSessionOptions extends Readonly<Partial<Record<RemoteChannel, string>>> {
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
  readonly json?: boolean;
}

export async function openSession(context: CliContext, options: OpenSessionOptions): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
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
    print(context, options.json === true ? prettyJson(record) : escapeLine(record.sessionKey));
  });
}

export async function listSessions(context: CliContext, options: { limit: number; json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const sessions = await pawl.sessions.list(options.limit);
    if (options.json === true) print(context, prettyJson({ sessions }));
    else if (sessions.length === 0) say(context, 'there are no sessions');
    else print(context, table(sessions, COLUMNS));
  });
}

export async function showSession(context: CliContext, key: string, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const { record } = await pawl.session(key);
    const sessionView = { ...record, ...(await spentBy(pawl, record)) };
    const calls = await pawl.calls.list({ sessionKey: key, limit: CALLS_SHOWN });
    if (options.json === true) {
      print(context, prettyJson({ ...sessionView, calls: calls.map(callSummary) }));
      return;
    }
    const fields = Object.entries({ ...sessionView, createdAtMs: undefined, opened: moment(record.createdAtMs) });
    const texts = fields.map(
      ([name, value]) => [name, typeof value === 'string' ? value : (JSON.stringify(value) ?? '')] as const,
    );
    print(context, fieldLines(texts).join('\n'));
    print(context, calls.length === 0 ? '\nno calls' : `\n${table(calls, CALL_COLUMNS)}`);
  });
}

export async function setSessionState(
  context: CliContext,
  key: string,
  state: string,
  options: { json?: boolean },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    const record = await pawl.sessions.setState(key, state);
    if (options.json === true) print(context, prettyJson(record));
    else print(context, escapeLine(`${key} is ${record.state}`));
  });
}

export async function closeSession(context: CliContext, key: string, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    await pawl.sessions.close(key);
    if (options.json === true) print(context, prettyJson({ sessionKey: key, state: 'closed' }));
    else print(context, `${escapeLine(key)} is closed; its calls in flight were cancelled`);
  });
}
