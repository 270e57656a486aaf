/**
 * What a running tool gets to see and use (A8 to A10), built from the session's kind, the tool's tier and its needs.
 */

import { turnOf } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { clip } from '../../shared/errors/failure.ts';
import { redact, redactFields, secretsIn } from '../../shared/errors/redaction.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { sessionAgent } from '../../shared/sessions/session-agent.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { traceField } from '../../shared/telemetry/log-events.ts';
import type { AgentTool, CapabilityOwner, Channels, MemoryStore, ToolContext } from '../../shared/tools/tool.ts';
import { checkedProgress } from '../../shared/tools/tool-answers.ts';
import { type Attempt, allParams, deadlineOf } from '../attempt/attempt-state.ts';
import { openTenantRoot } from '../workspace/workspace-roots.ts';
import { capabilitiesFor } from './capabilities.ts';
import type { WorkerAgents } from './sub-agents.ts';
import type { TerminalHost } from './terminal-host.ts';
import { lineOf } from './tool-log.ts';

export interface ToolContextDeps {
  readonly memory?: MemoryStore;
  readonly channels?: Channels;
  readonly terminals?: TerminalHost;
  readonly agents?: WorkerAgents;
  readonly settings: Settings;
  readonly ledger: CallLedger;
  readonly log: Logger;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** What the session may call. */
  toolsOf(): Promise<readonly AgentTool[]>;
  /** A person has let the call's programs run outside of the sandbox (C25). */
  readonly escalated?: boolean;
}

const PROGRESS_INTERVAL_MS = 100;

export interface PreparedContext {
  readonly context: ToolContext;
  /** Sends the last report of progress, which must not come after the outcome. */
  flushProgress(): void;
}

/** Throws `PERMISSION_DENIED` when the tool needs a capability that is absent, before it runs. */
export async function contextFor(
  begun: Attempt,
  session: SessionRecord,
  parts: ToolContextDeps,
): Promise<PreparedContext> {
  const { envelope, started, callId, running } = begun;
  const { tool } = begun.registered;
  const { settings, ledger, log, escalated = false } = parts;
  const refusedRoot = openTenantRoot(session, settings);
  const turnId = turnOf(envelope);
  const owner: CapabilityOwner = {
    callId,
    sessionKey: session.sessionKey,
    actorId: envelope.target.actorId,
    ...(session.agentId === undefined ? {} : { agentId: session.agentId }),
    ...(session.tenantId === undefined ? {} : { tenantId: session.tenantId }),
    ...(turnId === undefined ? {} : { turnId }),
  };
  const ownMemory = parts.memory?.open(owner);
  const { signal } = running;
  const ownChannel = await parts.channels?.open(owner, signal);
  const { sessionKey, workspaceRoot: root } = session;
  const ownTerminals = parts.terminals?.open({ callId, sessionKey, root, signal, escalated });
  const ownAgents = parts.agents?.open({ callId, generation: begun.generation, session });
  const { workspace, changes, processes, terminals, memory, channel, agents, fetch, demand } = capabilitiesFor({
    session: refusedRoot === undefined ? session : { kind: session.kind, taint: session.taint, refusedRoot },
    needs: tool.needs,
    tier: tool.tier,
    callId,
    signal,
    attempt: running,
    env: parts.environment,
    allowedHosts: settings.allowedHosts,
    sandbox: escalated ? 'off' : settings.sandbox,
    sandboxNetwork: settings.sandboxNetwork === 'on',
    ...(ownTerminals === undefined ? {} : { terminals: ownTerminals }),
    ...(ownAgents === undefined ? {} : { agents: ownAgents }),
    ...(ownMemory === undefined ? {} : { memory: ownMemory }),
    ...(ownChannel === undefined ? {} : { channel: ownChannel }),
  });
  for (const need of tool.needs) demand(need);
  const traceparent = begun.trace?.traceparent ?? envelope.trace.traceparent;
  const fields = { callId, toolName: envelope.toolName, sessionKey: session.sessionKey, ...traceField(traceparent) };
  let known = { of: running.params, secrets: secretsIn(allParams(begun)) };
  const cleaned = (message: string, more?: object): [fields: object, message: string] => {
    const line = lineOf(message, more);
    // A hook may have made others of them since.
    if (known.of !== running.params) known = { of: running.params, secrets: secretsIn(allParams(begun)) };
    const { secrets } = known;
    return [{ ...fields, ...redactFields(line.fields, secrets) }, redact(line.text, secrets)];
  };
  const progressReports = throttled((progress) => {
    const event = { type: 'progress', callId, ...progress };
    ledger.renewLease(callId, started.fence, settings.lockDurationMs, event).catch(() => {});
  });
  const deadlineAtMs = deadlineOf(begun);
  const agent = session.agent ?? sessionAgent(session.agentId, undefined);
  const context: ToolContext = {
    workspace,
    changes,
    processes,
    terminals,
    memory,
    channel,
    agents,
    fetch: begun.trace?.traced(fetch) ?? fetch,
    ...owner,
    ...(agent === undefined ? {} : { agent: { ...agent, tools: () => parts.toolsOf() } }),
    sessionKind: session.kind,
    attempt: begun.attempt,
    fence: started.fence,
    idempotencyKey: started.request.idempotencyKey,
    signal: running.signal,
    ...(deadlineAtMs === undefined ? {} : { deadlineAtMs }),
    trace: traceparent === undefined ? {} : { traceparent },
    config: begun.policy.config ?? {},
    values: new Map(Object.entries(envelope.trace.baggage ?? {})),
    log: {
      debug: (message, more) => log.debug(...cleaned(message, more)),
      info: (message, more) => log.info(...cleaned(message, more)),
      warn: (message, more) => log.warn(...cleaned(message, more)),
      error: (message, more) => log.error(...cleaned(message, more)),
    },
    // The newest reports are kept: a tool that passes on all that its program writes would fill Redis with them.
    progress: (report) => {
      const { message, ...numbers } = checkedProgress(tool.name, report);
      progressReports.add({ ...numbers, ...(message === undefined ? {} : { message: clip(message) }) });
    },
  };
  return { context, flushProgress: progressReports.flush };
}

/** At most one report per interval; the last one is never lost. */
function throttled(tell: (value: object) => void): { add(value: object): void; flush(): void } {
  let pending: object | undefined;
  let timer: NodeJS.Timeout | undefined;
  const flush = () => {
    if (pending !== undefined) tell(pending);
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
