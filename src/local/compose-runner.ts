/** Composes a local runner: the producer's submitter and the worker's executor, over one ledger of this process. */
import { cancelCall } from '../producer/calls/cancel.ts';
import { composeSubmitter } from '../producer/calls/compose-submitter.ts';
import { ResultWaiters } from '../producer/calls/result-waiters.ts';
import type { DispatchEvent } from '../producer/calls/submission.ts';
import type { CallSubmitter } from '../producer/calls/submit-call.ts';
import { CircuitAdmin } from '../producer/circuits/circuit-admin.ts';
import { CircuitView } from '../producer/circuits/circuit-cache.ts';
import { CompletionService } from '../producer/completions/completion-service.ts';
import { type ResolvedTool, unknownTool } from '../producer/tools/tool-catalogue.ts';
import type { DedupeStore } from '../shared/calls/dedupe-store.ts';
import type { Hook } from '../shared/calls/define-hook.ts';
import type { Settings, SettingsInput } from '../shared/config/config.ts';
import { SwitchCache } from '../shared/config/switches.ts';
import { secretsOf } from '../shared/errors/redaction.ts';
import { needsResourceLock } from '../shared/limits/resource-lock.ts';
import { publishedTool } from '../shared/store/fleet/catalogue.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import type { WorkerEvent } from '../shared/telemetry/call-events.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import { loggedHooks } from '../shared/telemetry/logged-hooks.ts';
import type { Channels, MemoryStore } from '../shared/tools/capabilities.ts';
import { type AnyTool, qualifiedName, TIERS } from '../shared/tools/tool.ts';
import type { Clock, Random, Schedule } from '../shared/util/time.ts';
import { type RegisteredTool, register } from '../workers/attempt/attempt-state.ts';
import { toolsForAgent } from '../workers/context/agent-tools.ts';
import { TerminalHost } from '../workers/context/terminal-host.ts';
import { AttemptLocks } from '../workers/execution/acquire-resource.ts';
import { Executor } from '../workers/execution/execute-job.ts';
import { type Approve, LocalApprovals } from './approvals.ts';
import { LocalCircuits } from './circuits.ts';
import { LocalGroups } from './groups.ts';
import { LocalLedger, type LocalLedgerDeps } from './ledger.ts';
import type { LocalResourceLocks } from './resource-locks.ts';
import type { LocalSessions } from './sessions.ts';

export interface LocalRunnerOptions {
  readonly tools: readonly AnyTool[];
  /** Default: in memory, 25,000 records. Runners that share a store share their calls. */
  readonly store?: DedupeStore;
  /** With `schedule`, the runner's timers are the clock's: see `fakeClock`. */
  readonly clock?: Clock & { readonly schedule?: Schedule };
  /** Waits between two attempts. Default: on the clock. */
  readonly sleep?: (ms: number) => Promise<void>;
  readonly random?: Random;
  /** The workspace of sessions that name no other folder. Default: the current folder. */
  readonly workspaceRoot?: string;
  /** The same settings as for a fleet; the environment and the configuration file are not read. */
  readonly settings?: Partial<SettingsInput>;
  readonly log?: Logger;
  /** Programs of tools get an allow-list of this environment. Default: this process's environment. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Hooks of every kind, because the producer and the worker are one process. */
  readonly hooks?: readonly Hook[];
  readonly memory?: MemoryStore;
  readonly channels?: Channels;
  /** Decides on calls that need an approval: of the tier `elevated`, or where policy asks. Default: they are denied. */
  readonly approve?: Approve;
  /** Receives the events of all calls. */
  readonly onEvent?: (event: DispatchEvent | WorkerEvent) => void;
}

type Optional = 'hooks' | 'memory' | 'channels' | 'approve';

/** The options with their defaults. */
export interface RunnerDeps
  extends Pick<LocalRunnerOptions, Optional>,
    Required<Omit<LocalRunnerOptions, Optional | 'settings'>> {
  readonly settings: Settings;
  readonly schedule: Schedule;
  /** Schedules the runner's periodic work; must not keep the process alive. */
  readonly background: Schedule;
}

/** The ID of this process, used as the inbox and the worker ID. */
const LOCAL_INBOX = 'local';

export type ComposedRunner = ReturnType<typeof composeRunner>;

/** The tools of this process, as a worker registers them and as a producer finds them. */
class LocalTools {
  readonly #registered: ReadonlyMap<string, RegisteredTool>;
  readonly #resolved: ReadonlyMap<string, ResolvedTool>;

  /** Throws `CONFIGURATION` for tools that cannot be offered together. */
  constructor(tools: readonly AnyTool[], nowMs: number) {
    this.#registered = register(tools);
    this.#resolved = new Map(
      [...this.#registered.values()].map(({ tool, validate }) => [
        qualifiedName(tool),
        { ...publishedTool(tool, nowMs), workers: 1, validate },
      ]),
    );
  }

  registered(namespace: string, name: string): RegisteredTool | undefined {
    return this.#registered.get(`${namespace}.${name}`);
  }

  peek(namespace: string, name: string): ResolvedTool | undefined {
    return this.#resolved.get(`${namespace}.${name}`);
  }

  /** Throws `UNKNOWN_TOOL`. */
  find(namespace: string, name: string): ResolvedTool {
    const tool = this.peek(namespace, name);
    if (tool === undefined) throw unknownTool(this.published(), namespace, name);
    return tool;
  }

  published(): readonly ResolvedTool[] {
    return [...this.#resolved.values()];
  }
}

/** Throws `CONFIGURATION` for tools that cannot be offered together. */
export function composeRunner(
  parts: RunnerDeps,
  sessions: LocalSessions,
  resourceLocks: LocalResourceLocks,
  callbacks: Pick<LocalLedgerDeps, 'onJob' | 'onStop'>,
) {
  const { settings, store, clock, schedule, log } = parts;
  const onError = (error: Error) => log.warn({ error: error.message }, 'dedupe store');
  const tools = new LocalTools(parts.tools, clock.now());
  const circuitView = new CircuitView(clock);
  const breakers = new LocalCircuits(clock, (broadcast) => circuitView.learn(broadcast));
  const retentionMs = settings.ttl.doneMs;
  const onEvent: LocalLedgerDeps['onEvent'] = (event) => results.deliver(event);
  const ledger = new LocalLedger({ store, circuits: breakers, schedule, retentionMs, ...callbacks, onEvent, onError });
  const results = new ResultWaiters(ledger, LOCAL_INBOX, onError);
  const core = coreOf(parts, { tools, ledger, breakers, sessions }, (callId) => groups.callOf(callId));
  const submitter = submitterOf(core, circuitView, results);
  const cancel = (callId: string) => cancelCall({ ledger, results, inboxId: LOCAL_INBOX, settings, schedule }, callId);
  const groups = new LocalGroups({
    submitter,
    ledger,
    catalogue: core.catalogue,
    results,
    clock,
    keptMs: retentionMs,
    cancel,
    ...(core.approvals !== undefined && { approvals: core.approvals.plans }),
    onError: (error) => log.warn({ error: error.message }, 'a batch or plan has stopped'),
  });
  return {
    tools,
    ledger,
    results,
    submitter,
    cancel,
    groups,
    executor: executorOf(core, resourceLocks),
    terminals: core.terminals,
    completions: completionsOf(core),
    circuits: new CircuitAdmin(
      { breakers, ledger, tools: async () => [...tools.published()] },
      TIERS.map(homePartition),
    ),
  };
}

type Core = ReturnType<typeof coreOf>;

/** The parts that the submitter and the executor share. */
function coreOf(
  parts: RunnerDeps,
  own: {
    readonly tools: LocalTools;
    readonly ledger: LocalLedger;
    readonly breakers: LocalCircuits;
    readonly sessions: LocalSessions;
  },
  callOf: LocalGroups['callOf'],
) {
  const { settings, schedule, log, environment, approve, clock } = parts;
  const { sandbox, sandboxNetwork } = settings;
  const { tools } = own;
  return {
    ...parts,
    ...own,
    catalogue: {
      peek: (namespace: string, name: string) => tools.peek(namespace, name),
      find: async (namespace: string, name: string) => tools.find(namespace, name),
    },
    callOf,
    usesLocks: parts.tools.some(needsResourceLock),
    switches: new SwitchCache(settings.reliability),
    hooks: loggedHooks(parts.hooks, log, schedule),
    ...(approve !== undefined && { approvals: new LocalApprovals({ approve, schedule, clock, callOf, log }) }),
    terminals: new TerminalHost({ env: environment, sandbox, network: sandboxNetwork === 'on' }),
  };
}

function completionsOf({ settings, environment, ledger, sessions }: Core): CompletionService {
  return new CompletionService({
    records: ledger.completions,
    settings,
    secrets: secretsOf(settings, environment),
    read: (callId) => ledger.completable(callId),
    taint: async (sessionKey, source) => sessions.taint(sessionKey, source, await ledger.now()),
    audit: () => {},
    onCompletion: () => {},
  });
}

function submitterOf(core: Core, circuits: CircuitView, results: ResultWaiters): CallSubmitter {
  const { sessions } = core;
  return composeSubmitter({
    ...core,
    circuits,
    results,
    inboxId: LOCAL_INBOX,
    sessions: {
      peekOf: (envelope) => sessions.ofCall(envelope),
      resolve: async (envelope) => sessions.ofCall(envelope),
    },
  });
}

function executorOf(core: Core, resourceLocks: LocalResourceLocks): Executor {
  const { settings, log, tools, ledger, breakers, sessions, approvals } = core;
  return new Executor({
    ...core,
    ...(approvals !== undefined && { gate: approvals }),
    backend: { ledger, completions: ledger.completions, breakers },
    workerId: LOCAL_INBOX,
    // There is no other node to leave the job to.
    nodeCircuits: { run: async (_tool, _policy, job) => (await job()).value, failsInARow: () => false },
    ...(core.usesLocks ? { locks: new AttemptLocks(resourceLocks, log) } : {}),
    isAlone: true,
    toolNamed: (namespace, name) => tools.registered(namespace, name),
    sessionOf: async (sessionKey) => sessions.peek(sessionKey),
    toolsOf: async (session) => {
      const current = sessions.peek(session.sessionKey) ?? session;
      return toolsForAgent(current, tools.published(), { settings, toolPolicyFor: () => undefined });
    },
    taint: async (sessionKey, source, atMs) => sessions.taint(sessionKey, source, atMs),
    lastPublished: async () => ({ workers: [], seenAtMs: 0 }),
  });
}
