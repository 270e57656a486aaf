/** `/v1/sessions`: open, find, change and close sessions. */
import { z } from 'zod';
import type { Settings } from '../../../shared/config/config.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { sessionAccount } from '../../../shared/limits/budget.ts';
import { requireAllowedRoot } from '../../../shared/policy/workspace-root.ts';
import { channelTarget } from '../../../shared/sessions/channel-kinds.ts';
import {
  changeSessionSchema,
  type OpenSession,
  openSessionSchema,
  type SessionRecord,
} from '../../../shared/sessions/session.ts';
import { spent } from '../../../shared/store/limits/budgets.ts';
import { liesIn } from '../../../shared/util/file-path.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import type { Pawl } from '../../client.ts';
import type { Session } from '../../sessions/session.ts';
import { type Caller, checkTenant, permissionsOf } from '../core/access.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { callerName } from './approvals.ts';

export const sessionRoutes: readonly Route[] = [
  route('post /v1/sessions', {
    operationId: 'openSession',
    permission: 'use',
    summary: 'Opens a session.',
    body: openSessionSchema,
    responses: { 201: ['The session', 'Session'] },
    async handle({ pawl, body, caller }) {
      if (body.tenantId !== undefined) checkTenant(caller, body.tenantId, 'The tenantId');
      checkChannelTarget(caller, body.channel, pawl.settings);
      const parent = body.parent === undefined ? undefined : await sessionFor(pawl, caller, body.parent);
      const tenantId = caller.tenantId ?? body.tenantId;
      const workspaceRoot = workspaceRootFor(caller, body, pawl, tenantId ?? parent?.record.tenantId);
      const session = await pawl.openSession({ ...body, ...defined({ tenantId, workspaceRoot }) } as typeof body);
      return {
        status: 201,
        headers: { Location: `/v1/sessions/${encodeURIComponent(session.key)}` },
        body: session.record,
      };
    },
  }),
  route('get /v1/sessions', {
    operationId: 'listSessions',
    permission: 'use',
    summary: 'Sessions, the newest first.',
    query: z.strictObject({ limit: queryNumber({ max: 1_000, fallback: 100, unit: 'sessions' }) }),
    responses: { 200: ['Sessions', 'SessionList'] },
    answer: async ({ pawl, query, caller }) => ({ sessions: await pawl.sessions.list(query.limit, caller.tenantId) }),
  }),
  route('get /v1/sessions/{key}', {
    operationId: 'getSession',
    permission: 'use',
    summary: 'One session.',
    responses: { 200: ['The session', 'Session'] },
    async answer({ pawl, path, caller }) {
      const { record } = await sessionFor(pawl, caller, path.key);
      return { ...record, ...(await spentBy(pawl, record)) };
    },
  }),
  route('get /v1/sessions/{key}/messages', {
    operationId: 'listMessages',
    permission: 'use',
    summary: 'Messages of tools to the people of a session, whose channel is console or operator.',
    responses: { 200: ['Messages, the oldest first', 'MessageList'] },
    async answer({ pawl, path, caller }) {
      const { key } = await sessionFor(pawl, caller, path.key);
      return { messages: await pawl.backend.messages.list(key) };
    },
  }),
  route('patch /v1/sessions/{key}', {
    operationId: 'changeSession',
    permission: 'use',
    summary: 'Sets the state of a session and its descendants. Policy may allow a tool only in some states.',
    body: changeSessionSchema,
    responses: { 200: ['The session', 'Session'] },
    async answer({ pawl, path, body, caller }) {
      const session = await sessionFor(pawl, caller, path.key);
      return pawl.sessions.setState(session.key, body.state, callerName(caller));
    },
  }),
  route('delete /v1/sessions/{key}', {
    operationId: 'closeSession',
    permission: 'use',
    summary: 'Closes a session and its descendants, and cancels their calls.',
    responses: { 204: 'Closed' },
    async answer({ pawl, path, caller }) {
      const session = await sessionFor(pawl, caller, path.key);
      await pawl.sessions.close(session.key, callerName(caller));
    },
  }),
];

/** A remote channel receives the approval's buttons, so an agent may only name a target of the settings. Throws `PERMISSION_DENIED`. */
function checkChannelTarget(caller: Caller, channel: OpenSession['channel'], settings: Settings): void {
  const target = channel && channelTarget(channel);
  if (target === undefined || settings[target.allowed].includes(target.value)) return;
  if (permissionsOf(caller).includes('administer')) return;
  const { kind, field, allowed } = target;
  throw new PawlError(
    'PERMISSION_DENIED',
    `The ${field} of the ${kind} channel is not one of the setting \`${allowed}\`.`,
  );
}

/** The part of its own budget that the session and its descendants have spent. */
export async function spentBy(pawl: Pawl, { sessionKey, budget }: SessionRecord): Promise<{ readonly spent?: object }> {
  if (budget === undefined) return {};
  return { spent: await spent(pawl.backend.ledger.access, sessionAccount(sessionKey, budget).name) };
}

/**
 * An agent's workspace must lie inside PAWL_WORKSPACE_ROOT; without that setting it must be the server's folder. A tenant's workspace
 * lies in the tenant's own folder for every caller. Throws `PERMISSION_DENIED`.
 */
function workspaceRootFor(
  caller: Caller,
  { workspaceRoot: requestedRoot }: { readonly workspaceRoot?: string | undefined },
  pawl: Pawl,
  tenantId: string | undefined,
): string | undefined {
  if (requestedRoot === undefined) return undefined;
  const root = requireAllowedRoot(requestedRoot, tenantId, pawl.settings);
  if (caller.role !== 'agent' || tenantId !== undefined) return root;
  const allowed = pawl.sessions.workspaceRoot(undefined);
  const isNamed = pawl.settings.workspaceRoot !== undefined;
  if (isNamed ? liesIn(allowed, root) : root === allowed) return root;
  throw new PawlError(
    'PERMISSION_DENIED',
    isNamed
      ? 'The workspaceRoot must lie inside PAWL_WORKSPACE_ROOT.'
      : 'Without PAWL_WORKSPACE_ROOT an agent works in the folder of the server: leave out workspaceRoot.',
  );
}

/** A session that this caller may use. Throws `UNKNOWN_SESSION`, and `PERMISSION_DENIED` for another tenant's. */
export async function sessionFor(pawl: Pawl, caller: Caller, sessionKey: string): Promise<Session> {
  return requireTenant(caller, await pawl.session(sessionKey));
}

function requireTenant(caller: Caller, session: Session): Session {
  checkTenant(caller, session.record.tenantId, `The session ${JSON.stringify(session.key)}`);
  return session;
}

/** The session of this key, opened as a main session of the caller's tenant when there is none. */
export async function findOrOpenSession(
  pawl: Pawl,
  caller: Caller,
  target: {
    readonly sessionKey: string;
    readonly actorId?: string;
    readonly agentId?: string | undefined;
    readonly channel?: OpenSession['channel'];
  },
): Promise<Session> {
  const { sessionKey, actorId, agentId, channel } = target;
  const options = defined({ actorId, agentId, channel, tenantId: caller.tenantId });
  return requireTenant(caller, await pawl.sessions.findOrOpen({ sessionKey, ...options }));
}
