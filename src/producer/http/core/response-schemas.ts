/**
 * The schemas of the responses, for clients that are generated from `/openapi.json`. Their names are those of its components. Fields
 * may be added: a client ignores unknown ones.
 */
import { z } from 'zod';
import { APPROVAL_STATES } from '../../../shared/approvals/approval.ts';
import { SETTLEMENTS } from '../../../shared/calls/call-state.ts';
import { EFFECTS } from '../../../shared/retries/effects.ts';
import { SESSION_KINDS } from '../../../shared/sessions/channel-kinds.ts';
import { channelSchema, openSessionSchema } from '../../../shared/sessions/session.ts';
import { skillSchema } from '../../../shared/sessions/skill.ts';
import { workerRecordSchema } from '../../../shared/store/fleet/published-tools.ts';
import { AGENT_MESSAGES } from '../../../shared/tools/sub-agent.ts';
import {
  atMs,
  bulkResult,
  callbackSchema,
  callSummarySchema,
  count,
  deadLetterList,
  flag,
  json,
  redriveRecord,
  stateAndPhase,
  text,
  tier,
} from './call-schemas.ts';
import { groupSchemas } from './group-schemas.ts';
import { scheduleResponses } from './schedule-responses.ts';

/** A component that another module describes. */
const resultEnvelope = z.unknown().meta({ $ref: '#/components/schemas/ToolResultEnvelope' });

const completionAnswer = z.object({
  state: z.enum(['completed', 'pending']),
  expiresAtMs: atMs.optional().describe('The new expiry, when the request extended it.'),
});

const progress = z.object({ progress: z.number(), total: z.number().optional(), message: text.optional() });

const budget = z.object({ calls: z.number(), costUnits: z.number(), timeMs: z.number() });

const session = z.object({
  sessionKey: text,
  kind: z.enum(SESSION_KINDS),
  state: text.describe('`open`, a state that its owner set, or `closed` at its end.'),
  parent: text.optional(),
  ancestors: z.array(text).optional(),
  agentId: text.optional(),
  agent: z
    .object({ id: text, name: text, model: text.optional(), permissions: json.optional() })
    .optional()
    .describe('The agent, as described when the session was opened.'),
  actorId: text,
  tenantId: text.optional(),
  workspaceRoot: text,
  channel: channelSchema.optional(),
  skills: z.array(text).optional(),
  skillRules: z.array(json).optional(),
  budget: openSessionSchema.shape.budget,
  budgets: z.array(json).optional(),
  importance: openSessionSchema.shape.importance,
  callbackUrl: text.optional(),
  taint: z.array(z.object({ source: text, atMs })).optional(),
  shards: z.partialRecord(tier, count).optional(),
  createdAtMs: atMs,
});

const decided = { decidedAtMs: atMs.optional(), decidedBy: text.optional() };

const approval = z.object({
  id: text,
  callId: text,
  tool: text,
  namespace: text,
  toolVersion: text,
  tier,
  effects: z.enum(EFFECTS),
  annotations: json,
  params: json,
  shown: text.describe('The parameters, formatted for people.'),
  preview: z.object({ summary: text, details: text.optional() }).loose(),
  digest: text.describe('Must be sent with the decision.'),
  state: z.enum(APPROVAL_STATES),
  requestedBy: text.describe('The session’s actor.'),
  actorId: text.describe('The actor of the call, as its caller claims.'),
  session: text,
  sessionKind: text,
  workspaceRoot: text,
  agentId: text.optional(),
  tenantId: text.optional(),
  justification: text.optional(),
  shownIn: text,
  channel: text,
  taint: z.array(text),
  rule: text,
  reason: text,
  amendment: json.optional(),
  startAtMs: atMs.optional().describe('The start of a delayed call.'),
  planId: text.optional().describe('The approval is of this plan, whose nodes are `params.nodes`.'),
  createdAtMs: atMs,
  expiresAtMs: atMs,
  ...decided,
  decisionReason: text.optional(),
  decidedParams: json.optional(),
});

const listedApproval = approval.extend({
  shortened: z
    .literal(true)
    .optional()
    .describe(
      '`params`, `shown`, `preview` or `decidedParams` are truncated: `GET /v1/approvals/{id}` has them in full.',
    ),
  paramsBytes: count.optional().describe('With `shortened`: the size of the full parameters as JSON.'),
});

const remembered = z.object({
  approvalId: text,
  session: text,
  tool: text,
  namespace: text,
  toolVersion: text,
  amendment: json,
  by: text,
  grantedAtMs: atMs,
  validUntilMs: atMs,
});

const similarApproval = z.object({
  id: text,
  state: z.enum(APPROVAL_STATES),
  summary: text,
  requestedBy: text,
  actorId: text,
  session: text,
  ...decided,
  reason: text.optional(),
});

const question = z.object({
  id: text,
  text,
  options: z.array(z.object({ value: text, label: text, description: text.optional() })).optional(),
  freeText: flag,
  callId: text,
  session: text,
  shownIn: text,
  channel: text,
  actorId: text,
  sessionActorId: text.optional().describe('The session’s actor, where the call names another one.'),
  agentId: text.optional(),
  tenantId: text.optional(),
  createdAtMs: atMs,
  expiresAtMs: atMs,
});

const tool = z.object({
  name: text,
  namespace: text,
  version: text,
  tier,
  effects: z.enum(EFFECTS),
  description: text,
  inputSchema: json,
  outputSchema: json.optional(),
  annotations: json,
  title: text.optional(),
  icon: z.unknown().optional(),
  examples: z.array(z.unknown()).optional(),
  variant: z.unknown().optional(),
  budget: json.optional(),
  parallel: flag.optional(),
  timeoutMs: z.number(),
  workers: count.describe('The number of workers that offer it.'),
  enabled: flag,
});

/** A declared tool, or the switch of a tool that is in the workers' code. */
const registryRecord = z.looseObject({
  kind: z.enum(['http', 'mcp', 'dynamic', 'code', 'removed']),
  name: text,
  namespace: text,
  revision: count,
  updatedAtMs: atMs,
  updatedBy: text,
});

const skill = z.object({
  ...skillSchema.shape,
  name: text,
  source: text.describe('`registry`, or the file that it was read from.'),
  updatedAtMs: atMs,
  updatedBy: text.optional(),
});

const circuit = z.object({
  key: text,
  tier,
  state: z.enum(['CLOSED', 'OPEN', 'HALF_OPEN', 'FORCED_OPEN']),
  failures: count,
  enforcement: z.enum(['enforced', 'shadow', 'observing', 'bypassed']),
  openedAtMs: atMs.optional(),
  cooldownMs: z.number().optional(),
  reason: text.optional(),
});

const counts = z.object({
  inflight: count,
  delayed: count.describe('Calls that start later.'),
  pending: count.describe('Calls that outside systems complete.'),
  calls: count,
});

const reliability = z.object({
  circuits: z.array(circuit),
  ledger: z.object({ ...counts.shape, tiers: z.record(tier, counts) }),
  switches: z.looseObject({ enabled: flag }),
  shadow: z.array(json),
});

const partitionCounts = {
  inflight: count,
  running: count,
  delayed: count,
  starting: count,
  pending: count,
  awaitingApproval: count,
  waiting: count,
};

const worker = z.object({ ...workerRecordSchema.shape, seenAtMs: atMs });

const shard = z.object({
  tier,
  shard: count,
  takesSessions: flag,
  waiting: count,
  running: count,
  kept: count,
  slot: count.optional(),
  node: text.optional(),
});

const clientCall = z.object({
  callId: text,
  fence: count,
  tool: text,
  arguments: json,
  attempt: count,
  sessionKey: text,
  actorId: text,
  agentId: text.optional(),
  tenantId: text.optional(),
  turnId: text.optional(),
  idempotencyKey: text,
  deadlineAtMs: atMs.optional(),
  timeoutMs: z.number(),
  traceparent: text.optional(),
});

const agentOrder = z.object({
  agentId: text,
  turn: count,
  type: z.enum(AGENT_MESSAGES),
  message: text.optional(),
  agentType: text.optional(),
  interrupt: flag.optional(),
  sessionKey: text.describe('The session of the agent, which owns its calls.'),
});

export const responseSchemas = {
  ...groupSchemas,
  CompletionAnswer: completionAnswer,
  CallUnderWay: z.object({ callId: text, requestId: text, ...stateAndPhase }),
  CallList: z.object({ calls: z.array(callSummarySchema), truncated: flag.optional() }),
  Call: callSummarySchema.extend({
    fence: count,
    params: json.describe('Without secrets.'),
    idempotencyKey: text.optional(),
    deadlineAtMs: atMs.optional(),
    startedAtMs: atMs.optional(),
    traceparent: text.optional(),
    result: resultEnvelope.optional(),
    progress: progress.optional(),
  }),
  DeadLetterList: deadLetterList,
  BulkAnswer: bulkResult.extend({ redriveId: text.optional(), state: redriveRecord.shape.state.optional() }),
  RedriveList: z.object({ redrives: z.array(redriveRecord.extend({ skippedCount: count })) }),
  Redrive: redriveRecord.extend({ skipped: bulkResult.shape.skipped }),
  CallbackList: z.object({ callbacks: z.array(callbackSchema), truncated: flag.optional() }),
  Callback: callbackSchema,
  Cancellation: z.object({ settlement: z.enum(SETTLEMENTS), result: resultEnvelope.optional() }),
  Session: session.extend({ spent: budget.optional() }),
  SessionList: z.object({ sessions: z.array(session) }),
  MessageList: z.object({
    messages: z.array(
      z.object({ text, format: z.enum(['text', 'markdown']).optional(), from: text, callId: text, sentAtMs: atMs }),
    ),
  }),
  Approval: approval,
  ApprovalWithSimilar: approval.extend({ similar: z.array(similarApproval) }),
  ApprovalList: z.object({ approvals: z.array(listedApproval) }),
  RememberedApprovalList: z.object({ remembered: z.array(remembered) }),
  QuestionList: z.object({ questions: z.array(question) }),
  AnsweredQuestion: question.extend({ answer: text.optional(), dismiss: z.literal(true).optional(), by: text }),
  ToolList: z.union([
    z.object({ tools: z.array(tool) }),
    z
      .looseObject({ provider: text, tools: z.array(json), reports: z.array(json), names: json })
      .describe('With `provider`.'),
  ]),
  ToolStanding: tool.partial().extend({
    enabled: flag,
    revision: count.optional(),
    kind: registryRecord.shape.kind.optional(),
    spec: registryRecord.optional(),
  }),
  RegistryRecord: registryRecord,
  RevisionList: z.object({ revisions: z.array(registryRecord) }),
  ...scheduleResponses,
  SkillList: z.object({ skills: z.array(skill) }),
  Skill: skill,
  Reliability: reliability,
  ReliabilityChange: reliability.extend({
    changed: z.array(circuit).optional(),
    flushed: count.optional(),
    inflight: count.optional(),
    unresolved: count.optional(),
  }),
  CircuitHistory: z.object({ changes: z.array(json) }),
  AuditRecords: z.object({
    records: z.array(z.looseObject({ type: text, atMs, seq: count.optional(), seal: text.optional() })),
  }),
  Caller: z.object({
    role: text,
    tenantId: text.optional(),
    permissions: z.array(text),
    traceUrl: text.optional(),
  }),
  Fleet: z.object({
    workers: z.array(worker),
    tiers: z.array(
      z.object({
        tier,
        workers: count,
        slots: count,
        ...partitionCounts,
        inDoubt: count,
        oldestWaitMs: z.number(),
        stale: count,
      }),
    ),
  }),
  ShardList: z.object({ shards: z.array(shard) }),
  Drain: z.object({ id: text, asked: z.literal('drain') }),
  ToolClient: z.object({ clientId: text, tools: z.array(text), leaseMs: z.number() }),
  ToolClientNews: z.object({ call: clientCall.optional(), cancelled: z.array(text), leaseMs: z.number() }),
  ProgressWanted: z.object({ wanted: flag }),
  AgentNews: z.object({ order: agentOrder.optional() }),
  AgentReplied: z.object({ replied: flag }),
  WholeOutput: z.object({ content: z.unknown() }),
  Description: z.looseObject({ openapi: text }),
} satisfies Readonly<Record<string, z.ZodType>>;

export type ResponseName = keyof typeof responseSchemas | 'ToolResultEnvelope';
