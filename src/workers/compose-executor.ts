/** Builds a worker's executor and its approval gate from the parts of the worker. */
import { ApprovalHooks } from '../shared/approvals/approval-hooks.ts';
import type { Hooks } from '../shared/calls/hooks.ts';
import { needsResourceLock } from '../shared/limits/resource-lock.ts';
import type { SessionRecord } from '../shared/sessions/session.ts';
import type { Backend } from '../shared/store/backend.ts';
import { type PublishedTool, publishedToolId } from '../shared/store/fleet/catalogue.ts';
import type { DiskBarrier } from '../shared/store/redis/fsync-barrier.ts';
import { loggedHooks } from '../shared/telemetry/logged-hooks.ts';
import type { AnyTool } from '../shared/tools/tool.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { systemSchedule } from '../shared/util/time.ts';
import { ApprovalGate } from './approvals/approval-gate.ts';
import type { WorkerChannels } from './approvals/channels.ts';
import { UsedApprovals } from './approvals/used-approvals.ts';
import type { RegisteredTool } from './attempt/attempt-state.ts';
import type { DeclaredTools } from './connectors/declared-tools.ts';
import { toolsForAgent } from './context/agent-tools.ts';
import { WorkerAgents } from './context/sub-agents.ts';
import { AttemptLocks } from './execution/acquire-resource.ts';
import { Executor } from './execution/execute-job.ts';
import type { CallLookups, ExecutorDeps, FleetState, WorkerTools } from './execution/executor-deps.ts';
import type { WorkerSessions } from './execution/session-cache.ts';
import { lastPublished } from './execution/version-check.ts';
import { settleWithJob } from './outcome/settle-port.ts';
import type { WorkerHeartbeat } from './worker-heartbeat.ts';
import { servedTools, type WorkerOptions } from './worker-options.ts';

interface WorkerExecutorDeps
  extends Pick<
    ExecutorDeps,
    'workerId' | 'clock' | 'nodeCircuits' | 'switches' | 'forced' | 'limits' | 'solitude' | 'terminals' | 'onEvent'
  > {
  readonly options: WorkerOptions;
  readonly backend: Backend;
  readonly tools: ReadonlyMap<string, RegisteredTool>;
  readonly declared: DeclaredTools;
  readonly sessions: WorkerSessions;
  readonly channels: WorkerChannels;
  readonly disk: DiskBarrier | undefined;
  readonly unconfined: boolean;
  /** Knows the other workers of the fleet. */
  readonly heartbeat: WorkerHeartbeat;
}

export function composeExecutor({ options, backend, disk, ...deps }: WorkerExecutorDeps): Executor {
  const { settings, log, environment, memory, tracing } = options;
  const hooks = loggedHooks(options.hooks, log, systemSchedule);
  return new Executor({
    ...deps,
    settings,
    backend,
    random: options.random ?? Math.random,
    log,
    environment,
    hooks,
    ...defined({ memory, traces: tracing?.traces }),
    agents: new WorkerAgents(backend),
    ...(disk !== undefined && { onDisk: (callId: string) => disk.wait(callId) }),
    gate: approvalGate(options, backend, hooks, deps.channels),
    audit: backend.audit,
    ...(servedTools(options).some(needsResourceLock) ? { locks: new AttemptLocks(backend.locks, log) } : {}),
    successes: settleWithJob,
    ...workerTools(deps),
    ...fleetView(backend, deps.heartbeat),
    ...callLookups(options, backend, deps),
  });
}

function approvalGate(options: WorkerOptions, backend: Backend, hooks: Hooks, channels: WorkerChannels): ApprovalGate {
  const { settings, log } = options;
  const { approvals, standingApprovals, ledger, audit } = backend;
  return new ApprovalGate({
    settings,
    approvals,
    standingApprovals,
    ledger,
    used: new UsedApprovals(settings.dataDir),
    audit,
    hooks: new ApprovalHooks(hooks, async (callId) => (await ledger.readBrief(callId))?.request.envelope.requestId),
    log,
    announce: (record) => channels.announce(record),
    callOf: (callId) => approvals.callAsItRan(callId),
  });
}

function workerTools({ tools, declared }: Pick<WorkerExecutorDeps, 'tools' | 'declared'>): WorkerTools {
  return {
    toolNamed: (namespace, name) => tools.get(`${namespace}.${name}`) ?? declared.toolNamed(namespace, name),
    toolOf: (request) => declared.toolOf(request),
    toolPolicyFor: (tool) => declared.toolPolicyFor(tool),
  };
}

function fleetView(backend: Backend, heartbeat: WorkerHeartbeat): FleetState {
  return {
    othersWith: (tool: AnyTool) => heartbeat.othersWith(publishedToolId(tool)),
    lastPublished: async (request) => lastPublished(request, await backend.catalogue.read()),
  };
}

function callLookups(
  { settings }: WorkerOptions,
  backend: Backend,
  { declared, sessions }: Pick<WorkerExecutorDeps, 'declared' | 'sessions'>,
): CallLookups {
  const toolPolicyFor = (tool: PublishedTool) => declared.toolPolicyFor(tool);
  return {
    callOf: (callId) => backend.approvals.callAsItRan(callId),
    sessionOf: (sessionKey) => sessions.find(sessionKey),
    toolsOf: async (session: SessionRecord) => {
      const { tools } = await backend.catalogue.read();
      // The session's state may have changed since the attempt began.
      const current = (await sessions.find(session.sessionKey)) ?? session;
      return toolsForAgent(current, [...tools, ...declared.offers()], { settings, toolPolicyFor });
    },
    taint: (sessionKey, source, atMs) => sessions.taint(sessionKey, source, atMs),
  };
}
