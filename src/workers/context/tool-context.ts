/** The context (`ctx`) of a running tool, built from the session's kind, the tool's tier and its needs. */
import { turnOf } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { stackOf } from '../../shared/errors/classify-error.ts';
import { clip } from '../../shared/errors/failure.ts';
import { redact, redactFields, secretsIn } from '../../shared/errors/redaction.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { sessionAgent } from '../../shared/sessions/session-agent.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { traceField } from '../../shared/telemetry/log-events.ts';
import type { CapabilityOwner, Channels, MemoryStore } from '../../shared/tools/capabilities.ts';
import { checkedProgress } from '../../shared/tools/tool-answers.ts';
import type { AgentTool, ToolContext } from '../../shared/tools/tool-context.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { type Attempt, allParams, deadlineOf } from '../attempt/attempt-state.ts';
import { openTenantRoot } from '../workspace/workspace-roots.ts';
import { capabilitiesFor, type GrantedCapabilities, withheldReason } from './capabilities.ts';
import { type CheckpointDeps, checkpointsOf } from './checkpoints.ts';
import { type CompletionTokenDeps, completionOf } from './completion-token.ts';
import type { WorkerAgents } from './sub-agents.ts';
import type { TerminalHost } from './terminal-host.ts';

export interface ToolContextDeps extends CheckpointDeps, CompletionTokenDeps {
  readonly memory?: MemoryStore;
  readonly channels?: Channels;
  readonly terminals?: TerminalHost;
  readonly agents?: WorkerAgents;
  readonly settings: Settings;
  readonly ledger: CallLedger;
  readonly log: Logger;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** The tools that the session may call. */
  toolsOf(): Promise<readonly AgentTool[]>;
  /** A person approved that the call's programs run outside of the sandbox. */
  readonly escalated?: boolean;
}

const PROGRESS_INTERVAL_MS = 100;

export interface PreparedContext {
  readonly context: ToolContext;
  /** Sends the last progress report, which must not come after the outcome. */
  flushProgress(): void;
}

/** Throws `PERMISSION_DENIED` before the tool runs, when a capability that it needs is absent. */
export async function contextFor(
  attempt: Attempt,
  session: SessionRecord,
  deps: ToolContextDeps,
): Promise<PreparedContext> {
  const { envelope, started, running } = attempt;
  const { tool } = attempt.registered;
  const owner = ownerOf(attempt, session);
  const { demand, has: _, fetch, ...handles } = await grantedCapabilities(attempt, session, owner, deps);
  for (const need of tool.needs) demand(need);
  const traceparent = attempt.trace?.traceparent ?? envelope.trace.traceparent;
  const deadlineAtMs = deadlineOf(attempt);
  const agent = session.agent ?? sessionAgent(session.agentId, undefined);
  const progress = progressReports(attempt, deps);
  const context: ToolContext = {
    ...handles,
    fetch: attempt.trace?.tracedFetch(fetch) ?? fetch,
    ...owner,
    ...(agent !== undefined && { agent: { ...structuredClone(agent), tools: () => deps.toolsOf() } }),
    sessionKind: session.kind,
    attempt: attempt.number,
    fence: started.fence,
    idempotencyKey: started.request.idempotencyKey,
    signal: running.signal,
    ...(deadlineAtMs !== undefined && { deadlineAtMs }),
    trace: traceparent === undefined ? {} : { traceparent },
    config: attempt.policy.config ?? {},
    values: new Map(Object.entries(envelope.trace.baggage ?? {})),
    log: toolLog(attempt, session.sessionKey, traceparent, deps.log),
    progress: progress.report,
    ...checkpointsOf(attempt, deps),
    ...completionOf(attempt, deps),
  };
  return { context, flushProgress: progress.flush };
}

function ownerOf({ envelope, callId }: Attempt, session: SessionRecord): CapabilityOwner {
  const { sessionKey, agentId, tenantId } = session;
  const { actorId } = envelope.target;
  return { callId, sessionKey, actorId, ...defined({ agentId, tenantId, turnId: turnOf(envelope) }) };
}

async function grantedCapabilities(
  { callId, generation, running, registered: { tool } }: Attempt,
  session: SessionRecord,
  owner: CapabilityOwner,
  deps: ToolContextDeps,
): Promise<GrantedCapabilities> {
  const { settings, escalated = false } = deps;
  const { signal } = running;
  const { sessionKey, workspaceRoot: root } = session;
  const memory = deps.memory?.open(owner);
  const { needs, tier } = tool;
  const isWithheld = withheldReason('channel', { session, needs, tier }) !== undefined;
  const channel = isWithheld ? undefined : await deps.channels?.open(owner, signal);
  const terminals = deps.terminals?.open({ callId, sessionKey, root, signal, escalated });
  const agents = deps.agents?.open({ callId, generation, session });
  return capabilitiesFor({
    session: { ...session, refusalReason: () => openTenantRoot(session, settings) },
    needs,
    tier,
    callId,
    signal,
    attempt: running,
    env: deps.environment,
    allowedHosts: settings.allowedHosts,
    sandbox: escalated ? 'off' : settings.sandbox,
    sandboxNetwork: settings.sandboxNetwork === 'on',
    ...defined({ terminals, agents, memory, channel }),
  });
}

/** A log whose lines have the call's ID and none of its secrets. */
function toolLog(
  attempt: Attempt,
  sessionKey: string,
  traceparent: string | undefined,
  log: Logger,
): ToolContext['log'] {
  const { callId, envelope, running } = attempt;
  const fields = { callId, toolName: envelope.toolName, sessionKey, ...traceField(traceparent) };
  let cached: { readonly params: unknown; readonly secrets: readonly string[] } | undefined;
  const redactLine = (message: string, extraFields?: object): [fields: object, message: string] => {
    const line = toolLogLine(message, extraFields);
    // Few tools log. A hook may have replaced the parameters.
    if (cached === undefined || cached.params !== running.params)
      cached = { params: running.params, secrets: secretsIn(allParams(attempt)) };
    const { secrets } = cached;
    return [{ ...fields, ...redactFields(line.fields, secrets) }, redact(line.text, secrets)];
  };
  return {
    debug: (message, extraFields) => log.debug(...redactLine(message, extraFields)),
    info: (message, extraFields) => log.info(...redactLine(message, extraFields)),
    warn: (message, extraFields) => log.warn(...redactLine(message, extraFields)),
    error: (message, extraFields) => log.error(...redactLine(message, extraFields)),
  };
}

/** Progress reports are throttled: a tool that reports all output of its program would fill Redis. */
function progressReports(
  { callId, started, registered: { tool } }: Attempt,
  { ledger, settings }: ToolContextDeps,
): { readonly report: ToolContext['progress']; flush(): void } {
  const reports = throttled((progress) => {
    const event = { type: 'progress', callId, ...progress };
    ledger.renewLease(callId, started.fence, settings.lockDurationMs, event).catch(() => {});
  });
  return {
    report: (report) => {
      const { message, ...numbers } = checkedProgress(tool.name, report);
      reports.add({ ...numbers, ...(message !== undefined && { message: clip(message) }) });
    },
    flush: reports.flush,
  };
}

/** Emits at most one report per interval, and never loses the last one. */
function throttled(emit: (value: object) => void): { add(value: object): void; flush(): void } {
  let pending: object | undefined;
  let timer: NodeJS.Timeout | undefined;
  const flush = () => {
    if (pending !== undefined) emit(pending);
    pending = undefined;
  };
  const tick = () => {
    timer = undefined;
    if (pending === undefined) return;
    flush();
    timer = setTimeout(tick, PROGRESS_INTERVAL_MS).unref();
  };
  return {
    add: (value) => {
      pending = value;
      if (timer === undefined) tick();
    },
    flush,
  };
}

/**
 * Turns a tool's log call into a log line. Not every tool is type-checked, so it accepts an error in place of the text or the fields, and
 * the fields before the text, as pino does.
 */
function toolLogLine(message: unknown, fields: unknown): { readonly text: string; readonly fields: object } {
  if (typeof message !== 'object' || message === null) return { text: String(message), fields: withStacks(fields) };
  const text = typeof fields === 'string' ? fields : message instanceof Error ? message.message : '';
  return { text, fields: withStacks(message) };
}

/** JSON writes an error as {}, so its stack is logged instead. */
function withStacks(fields: unknown): object {
  if (fields === undefined || fields === null) return {};
  if (fields instanceof Error) return { error: stackOf(fields) };
  if (typeof fields !== 'object') return { fields };
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? stackOf(value) : value]),
  );
}
