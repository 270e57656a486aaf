/** Sessions form a tree; a session's kind decides which capabilities its calls get. */
import { resolve } from 'node:path';
import { z } from 'zod';
import { callbackUrlSchema } from '../callbacks/callback.ts';
import { identifierSchema } from '../calls/envelope.ts';
import { invalidInput, PawlError } from '../errors/failure.ts';
import { type Budget, budgetSchema, type SessionBudget } from '../limits/budget.ts';
import { PRIORITIES, type Priority } from '../queues/priority-names.ts';
import type { SessionShards } from '../queues/shards.ts';
import { WITH_RECEIVED, zodIssues } from '../schema/zod-issues.ts';
import { CAPABILITIES, type Capability, READ_ONLY_CAPABILITIES } from '../tools/capabilities.ts';
import { TIERS, type Tier } from '../tools/tool.ts';
import type { SessionAgent } from '../tools/tool-context.ts';
import { findUnserializable } from '../util/json/json-support.ts';
import { defined } from '../util/json/omit-undefined.ts';
import {
  CHANNEL_KINDS,
  channelTarget,
  REMOTE_CHANNELS,
  REMOTE_KINDS,
  SESSION_KINDS,
  type SessionKind,
} from './channel-kinds.ts';
import { sessionAgent, sessionAgentSchema } from './session-agent.ts';
import type { SkillRule } from './skill-rule.ts';

/**
 * The capabilities of each kind of session. A worker session reads, searches and fetches, and changes nothing. A branch reaches people
 * through its parent's channel.
 */
export const SESSION_CAPABILITIES: Readonly<Record<SessionKind, readonly Capability[]>> = {
  main: CAPABILITIES,
  branch: CAPABILITIES,
  worker: READ_ONLY_CAPABILITIES,
};

/** The tiers whose tools a session of this kind may call: a worker session only reads. */
export const SESSION_TIERS: Readonly<Record<SessionKind, readonly Tier[]>> = {
  main: TIERS,
  branch: TIERS,
  worker: ['read-only'],
};

export const channelSchema = z.looseObject({ kind: z.enum(CHANNEL_KINDS) }).superRefine((channel, context) => {
  const target = channelTarget(channel);
  if (target !== undefined && !target.isValid(target.value))
    context.addIssue({ code: 'custom', path: [target.field], message: target.expected });
});

/** The advice for a caller whose session has no channel and needs one. */
export const CHANNEL_ADVICE = `open a session with channel: { kind: 'operator' } (the operator's page), { kind: 'console' }${REMOTE_KINDS.map((kind) => ` or { kind: '${kind}', ${REMOTE_CHANNELS[kind].field} }`).join('')}`;
/** The final state of a session. Its owner sets any other state. */
const CLOSED = 'closed';
/** The state of a session whose owner names none. */
export const OPEN_STATE = 'open';

/** A state that the owner of a session sets, such as `planning`. A tool's policy may name the states in which the tool may be called. */
export const sessionStateSchema = z
  .string()
  .min(1)
  .max(64)
  .regex(/^[A-Za-z0-9_.-]+$/, 'must be letters, digits, _, . or -')
  .refine((state) => state !== CLOSED, { error: 'must be another state than closed: close the session instead' });

/** The body of `PATCH /v1/sessions/{key}`. */
export const changeSessionSchema = z.strictObject({ state: sessionStateSchema });

/** The body of `POST /v1/sessions`, and the options of `openSession`. */
export const openSessionSchema = z
  .strictObject({
    kind: z.enum(SESSION_KINDS).default('main'),
    sessionKey: identifierSchema.optional(),
    parent: identifierSchema.optional(),
    /** Default: the state of the parent session, or `open`. */
    state: sessionStateSchema.optional(),
    agentId: identifierSchema.optional(),
    agent: sessionAgentSchema.optional(),
    actorId: identifierSchema.optional(),
    tenantId: identifierSchema.optional(),
    workspaceRoot: z
      .string()
      .min(1)
      .max(4_096)
      .refine((path) => !path.includes('\0'), 'must hold no NUL character')
      .optional(),
    channel: channelSchema.optional(),
    skills: z.array(z.string().min(1).max(256)).max(64).optional(),
    budget: budgetSchema.optional(),
    /** The end of each of its calls is posted there. */
    callbackUrl: callbackUrlSchema.optional(),
    /** The default priority of its calls, and of those of the sessions below it. */
    importance: z.enum(PRIORITIES).optional(),
  })
  .refine(({ agentId, agent }) => agent === undefined || (agent.id ?? agentId) !== undefined, {
    error: 'must name the agent, here or as agentId',
    path: ['agent', 'id'],
  })
  .refine(({ agentId, agent }) => agentId === undefined || (agent?.id ?? agentId) === agentId, {
    error: 'must be the same as agentId',
    path: ['agent', 'id'],
  });
export type OpenSession = z.input<typeof openSessionSchema>;

/** Text from outside that a session has read. It may steer the model that makes the session's calls. */
export interface Taint {
  readonly source: string;
  /** The time of Redis' clock, before the text could be read. */
  readonly atMs: number;
}

/** The most taints of one session. More of them change nothing. */
const MAX_TAINTS = 32;

/** A session as stored. Only `state` and `taint` change after opening. */
export interface SessionRecord {
  readonly sessionKey: string;
  readonly kind: SessionKind;
  /** `open`, or the state that its owner set; `closed` is final. */
  readonly state: string;
  readonly parent?: string;
  /** The keys of the sessions above it, the outermost first. */
  readonly ancestors?: readonly string[];
  readonly agentId?: string;
  readonly agent?: SessionAgent;
  readonly actorId: string;
  readonly tenantId?: string;
  readonly workspaceRoot: string;
  readonly channel?: z.output<typeof channelSchema>;
  readonly skills?: readonly string[];
  /** The rules of its skills, and of those of the sessions above it, about its tools. */
  readonly skillRules?: readonly SkillRule[];
  readonly budget?: Budget;
  /** Its own budget and those of the sessions above it. */
  readonly budgets?: readonly SessionBudget[];
  readonly importance?: Priority;
  readonly callbackUrl?: string;
  /** The taint only grows, and the sessions below inherit it. */
  readonly taint?: readonly Taint[];
  /** The shard of its calls in each tier. */
  readonly shards?: SessionShards;
  readonly createdAtMs: number;
}

/** The session after it has read text from these sources; the same record if it is tainted by all of them already. */
export function withTaint(record: SessionRecord, sources: readonly string[], atMs: number): SessionRecord {
  const { taint = [] } = record;
  const newSources = sources.filter((source) => !taint.some((seen) => seen.source === source));
  const accepted = newSources.slice(0, MAX_TAINTS - taint.length);
  return accepted.length === 0
    ? record
    : { ...record, taint: [...taint, ...accepted.map((source) => ({ source, atMs }))] };
}

export function mergeTaint(record: SessionRecord, other: SessionRecord | undefined): SessionRecord {
  const { taint = [] } = other ?? {};
  return taint.reduce((marked, { source, atMs }) => withTaint(marked, [source], atMs), record);
}

/** Throws `CONTRACT_INVALID` with every fault. */
export function parseOpenSession(open: OpenSession): z.output<typeof openSessionSchema> {
  const problem = 'The session cannot be opened';
  const { agent, channel }: Partial<OpenSession> = open ?? {};
  // The schemas of these two end where the stack does.
  const found = findUnserializable({ agent, channel });
  if (found === undefined) return parseOrThrow(openSessionSchema, open, problem);
  const issue = { path: found.path.slice(1), message: `must be JSON-serializable; got ${found.kind}` };
  throw invalidInput(problem, [issue], 'the options');
}

/** Throws `CONTRACT_INVALID` for a state that a session cannot have. */
export function parseSessionState(state: string): string {
  return parseOrThrow(changeSessionSchema, { state }, 'The session cannot have this state').state;
}

function parseOrThrow<Schema extends z.ZodType>(schema: Schema, value: unknown, problem: string): z.output<Schema> {
  const result = schema.safeParse(value, WITH_RECEIVED);
  if (result.success) return result.data;
  throw invalidInput(problem, zodIssues(result.error), 'the options');
}

/** The largest number of ancestors, because a record names them all. */
const MAX_ANCESTORS = 100;

/**
 * The record of a session that is opened below another, or at the root. Throws `PERMISSION_DENIED`, `SESSION_CLOSED`, and
 * `CONTRACT_INVALID` for one that would be too deep.
 */
export function newSession(
  { sessionKey, workspaceRoot, actorId, agentId, agent, ...options }: z.output<typeof openSessionSchema>,
  parent: SessionRecord | undefined,
  defaults: Pick<SessionRecord, 'sessionKey' | 'workspaceRoot' | 'createdAtMs'>,
  skillRule?: SkillRule,
): SessionRecord {
  if (parent?.state === 'closed') throw sessionClosed(parent.sessionKey);
  if (parent?.kind === 'worker' && options.kind !== 'worker')
    throw new PawlError('PERMISSION_DENIED', 'A worker session can only open worker sessions.');
  if (parent?.tenantId !== undefined && parent.tenantId !== (options.tenantId ?? parent.tenantId))
    throw new PawlError('PERMISSION_DENIED', 'A session must belong to the tenant of its parent session.');
  const ancestors = parent === undefined ? [] : [...(parent.ancestors ?? []), parent.sessionKey];
  if (ancestors.length > MAX_ANCESTORS)
    throw new PawlError('CONTRACT_INVALID', `A session has at most ${MAX_ANCESTORS} sessions above it.`, {
      issues: [{ path: 'parent', message: `has ${MAX_ANCESTORS} sessions above it already` }],
    });
  const inherited =
    parent === undefined
      ? {}
      : {
          ancestors,
          agentId: parent.agentId,
          agent: parent.agent,
          tenantId: parent.tenantId,
          importance: parent.importance,
          taint: parent.taint,
        };
  const ownAgent = sessionAgent(agentId, agent);
  const key = sessionKey ?? defaults.sessionKey;
  const ownBudget = options.budget === undefined ? [] : [{ sessionKey: key, budget: options.budget }];
  const budgets = [...(parent?.budgets ?? []), ...ownBudget];
  const skillRules = [...(parent?.skillRules ?? []), ...(skillRule === undefined ? [] : [skillRule])];
  return defined({
    ...inherited,
    ...defined(options),
    ...(ownAgent !== undefined && { agentId: ownAgent.id, agent: ownAgent }),
    budgets: budgets.length === 0 ? undefined : budgets,
    skillRules: skillRules.length === 0 ? undefined : skillRules,
    sessionKey: key,
    state: options.state ?? parent?.state ?? OPEN_STATE,
    actorId: actorId ?? parent?.actorId ?? 'anonymous',
    workspaceRoot:
      workspaceRoot === undefined ? (parent?.workspaceRoot ?? defaults.workspaceRoot) : resolve(workspaceRoot),
    createdAtMs: defaults.createdAtMs,
  });
}

export function sessionTaken(sessionKey: string): PawlError {
  const issues = [{ path: 'sessionKey', message: `is taken: ${JSON.stringify(sessionKey)}` }];
  const message = `There is already a session ${JSON.stringify(sessionKey)}: name it in calls to continue it, or choose another key.`;
  return new PawlError('CONTRACT_INVALID', message, { issues });
}

export function sessionClosed(sessionKey: string): PawlError {
  return new PawlError('SESSION_CLOSED', `The session ${JSON.stringify(sessionKey)} is closed.`);
}

export function sessionForged(sessionKey: string): PawlError {
  return new PawlError(
    'SIGNATURE_INVALID',
    `The record of the session ${JSON.stringify(sessionKey)} is not signed with a key of PAWL_SIGNING_KEYS, so it cannot be used. Use another session, or restore the key that signed it.`,
  );
}

/** The session, if the target's tenant may call in it. Throws `SESSION_CLOSED` and `PERMISSION_DENIED`. */
export function requireUsable(
  record: SessionRecord,
  target: { readonly tenantId?: string | undefined },
): SessionRecord {
  if (record.state === 'closed') throw sessionClosed(record.sessionKey);
  if (record.tenantId === target.tenantId) return record;
  const subject = `The session ${JSON.stringify(record.sessionKey)}`;
  throw new PawlError('PERMISSION_DENIED', `${subject} belongs to another tenant.`);
}
