/**
 * The handles that a running tool gets, and no others. Assembling them has no effect yet: files, programs and
 * connections are opened when the tool uses a handle.
 */
import { PawlError } from '../../shared/errors/failure.ts';
import type { SandboxPolicy } from '../../shared/policy/sandbox-policy.ts';
import type { SessionKind } from '../../shared/sessions/channel-kinds.ts';
import { CHANNEL_ADVICE, SESSION_CAPABILITIES } from '../../shared/sessions/session.ts';
import {
  type Capability,
  type Channel,
  type DiffTracker,
  type Memory,
  type Processes,
  READ_ONLY_CAPABILITIES,
  type StoredMemory,
  type Terminals,
  type ToolCapabilities,
  type Workspace,
} from '../../shared/tools/capabilities.ts';
import type { Agents } from '../../shared/tools/sub-agent.ts';
import type { Tier } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { type SideEffectTracker, trackSideEffect } from '../attempt/side-effects.ts';
import type { Isolation } from '../sandbox/isolation.ts';
import { CallDiffTracker } from '../workspace/diff-tracker.ts';
import { openWorkspace } from '../workspace/workspace.ts';
import { forbiddenReason } from '../workspace/workspace-roots.ts';
import { checkHandleArguments, type HandleMethod } from './handle-arguments.ts';
import { openNetwork } from './network.ts';
import { openProcesses } from './processes.ts';

export interface CapabilityOptions {
  readonly session: {
    readonly kind: SessionKind;
    readonly workspaceRoot?: string;
    readonly taint?: readonly unknown[] | undefined;
    /** The reason why the session has no workspace here. Called at the first use of the workspace. */
    readonly refusalReason?: () => string | undefined;
  };
  /** The tool's declared capabilities. A tool that declares none gets what its session and tier allow. */
  readonly needs?: readonly Capability[];
  /** A tool of the read-only tier gets no handle that changes anything, whatever it declares. */
  readonly tier?: Tier;
  readonly callId: string;
  readonly signal: AbortSignal;
  /** Counts the steps that change something. */
  readonly attempt?: SideEffectTracker;
  /** The worker's environment; programs see an allow-list of it. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** `host` or `host:port`: private addresses that `fetch` may reach all the same. */
  readonly allowedHosts?: readonly string[];
  readonly sandbox?: SandboxPolicy | Isolation;
  readonly sandboxNetwork?: boolean;
  /** Absent where no program can outlive its call. */
  readonly terminals?: Terminals;
  readonly memory?: StoredMemory;
  readonly channel?: Channel;
  readonly agents?: Agents;
}

export interface GrantedCapabilities extends ToolCapabilities {
  /** Whether using the capability's handle can succeed. */
  has(capability: Capability): boolean;
  /** Throws `PERMISSION_DENIED`; the message names the missing capability and the reason. */
  demand(capability: Capability): void;
}

/** Every method of a handle that is not granted throws `PERMISSION_DENIED`. */
export function capabilitiesFor(options: CapabilityOptions): GrantedCapabilities {
  const { signal, callId, env, attempt = { sideEffects: 0 } } = options;
  const { workspaceRoot: root = '' } = options.session;
  const workspaceReason = workspaceRefusal(options.session);
  const missingReason = (capability: Capability): string | undefined =>
    withheldReason(capability, options) ?? absenceReason(capability, options, workspaceReason);
  const demand = (capability: Capability): void => {
    const reason = missingReason(capability);
    if (reason !== undefined) throw new PawlError('PERMISSION_DENIED', reason);
  };
  const guard = new Guard(demand, attempt);
  const network = openNetwork({ signal, attempt, allowedHosts: options.allowedHosts ?? [] });
  const { sandbox = 'preferred', sandboxNetwork: networkGranted = false } = options;
  const processes = openProcesses({ root, callId, signal, env, sandbox, network: networkGranted });
  const changes = new CallDiffTracker();
  const access = withheldReason('workspace:write', options) === undefined ? 'write' : 'read';
  const workspace = openWorkspace(root, access, signal);
  return {
    has: (capability) => missingReason(capability) === undefined,
    demand,
    workspace: new GuardedWorkspace(workspace, guard, changes),
    changes,
    processes: guardedProcesses(processes, guard),
    terminals: guardedTerminals(options.terminals, guard),
    memory: guardedMemory(options.memory, guard, options.session.taint !== undefined),
    channel: new GuardedChannel(options.channel, guard),
    agents: guardedAgents(options.agents, guard),
    fetch: async (input, init) => {
      demand('network');
      return network(input, init);
    },
  };
}

/** Reads the file system once, at the first use: most tools touch no file. */
function workspaceRefusal({ workspaceRoot, refusalReason }: CapabilityOptions['session']): () => string | undefined {
  let cached: { readonly reason: string | undefined } | undefined;
  return () => {
    cached ??= {
      reason: refusalReason?.() ?? (workspaceRoot === undefined ? undefined : forbiddenReason(workspaceRoot)),
    };
    return cached.reason;
  };
}

/** The reason why session, tier or declaration withhold the capability from the tool. */
export function withheldReason(
  capability: Capability,
  { session, needs = [], tier }: Pick<CapabilityOptions, 'session' | 'needs' | 'tier'>,
): string | undefined {
  if (!SESSION_CAPABILITIES[session.kind].includes(capability))
    return `A ${session.kind} session does not have the capability ${capability}.`;
  if (tier === 'read-only' && !READ_ONLY_CAPABILITIES.includes(capability))
    return `A tool of the read-only tier does not get the capability ${capability}.`;
  if (needs.length > 0 && !needs.includes(capability))
    return `The tool does not declare that it needs ${capability}; it declares ${needs.join(', ')}.`;
  return undefined;
}

function absenceReason(
  capability: Capability,
  { session, memory, channel, agents }: CapabilityOptions,
  workspaceReason: () => string | undefined,
): string | undefined {
  const inWorkspace = capability === 'workspace:read' || capability === 'workspace:write' || capability === 'processes';
  const refusal = inWorkspace ? workspaceReason() : undefined;
  if (refusal !== undefined) return refusal;
  if (inWorkspace && session.workspaceRoot === undefined)
    return `The session has no workspace, so the capability ${capability} is absent.`;
  if ((capability === 'memory:search' || capability === 'memory:store') && memory === undefined)
    return `No memory store is configured, so the capability ${capability} is absent.`;
  if (capability === 'agents' && agents === undefined) return 'Sub-agents need a fleet, and there is none here.';
  if (capability === 'channel' && channel === undefined)
    return `The session has no channel to people: ${CHANNEL_ADVICE}.`;
  return undefined;
}

/** Lets a method of a handle run only if its capability is granted. */
class Guard {
  readonly #demand: (capability: Capability) => void;
  readonly #attempt: SideEffectTracker;

  constructor(demand: (capability: Capability) => void, attempt: SideEffectTracker) {
    this.#demand = demand;
    this.#attempt = attempt;
  }

  /** The handle. Throws `PERMISSION_DENIED`. */
  handle<Handle>(capability: Capability, handle: Handle | undefined): Handle {
    this.#demand(capability);
    if (handle === undefined)
      throw new PawlError('PERMISSION_DENIED', `No handle for the capability ${capability} is available here.`);
    return handle;
  }

  /** The handle, for a call of one of its methods. Throws `RESULT_INVALID` for arguments that the method does not take. */
  admit<Handle>(
    capability: Capability,
    handle: Handle | undefined,
    method: HandleMethod,
    ...values: readonly unknown[]
  ): Handle {
    const granted = this.handle(capability, handle);
    checkHandleArguments(method, ...values);
    return granted;
  }

  /** Runs a step that changes something. */
  track<T>(step: () => Promise<T>): Promise<T> {
    return trackSideEffect(this.#attempt, step);
  }
}

// Classes instead of object literals: V8 gives each literal with a getter its own hidden class in the old space, and that
// class keeps everything alive that the call referenced.

class GuardedWorkspace implements Workspace {
  readonly #workspace: Workspace;
  readonly #guard: Guard;
  readonly #changes: DiffTracker;

  constructor(workspace: Workspace, guard: Guard, changes: DiffTracker) {
    this.#workspace = workspace;
    this.#guard = guard;
    this.#changes = changes;
  }

  get root(): string {
    return this.#guard.handle('workspace:read', this.#workspace).root;
  }

  // Fields, not methods: a tool may destructure the handle (`const { read } = ctx.workspace`).
  readonly read: Workspace['read'] = async (path, options) =>
    this.#guard.admit('workspace:read', this.#workspace, 'workspace.read', path, options).read(path, options);

  readonly list: Workspace['list'] = async (path) =>
    this.#guard.admit('workspace:read', this.#workspace, 'workspace.list', path).list(path);

  readonly write: Workspace['write'] = async (path, content, options) => {
    this.#guard.admit('workspace:write', this.#workspace, 'workspace.write', path, content, options);
    const [written] = await this.#commit([{ kind: 'write', path, content, ...options }]);
    return { created: written?.existed === false, bytes: Buffer.byteLength(content) };
  };

  readonly commit: Workspace['commit'] = async (changes) => {
    this.#guard.admit('workspace:write', this.#workspace, 'workspace.commit', changes);
    return this.#commit(changes);
  };

  readonly #commit: Workspace['commit'] = async (changes) => {
    const committed = await this.#guard.track(() => this.#workspace.commit(changes));
    changes.forEach((change, index) => {
      const before = committed[index]?.before;
      const after = change.kind === 'remove' ? undefined : Buffer.from(change.content);
      this.#changes.note({ path: change.path, ...defined({ before, after }) });
    });
    return committed;
  };

  readonly search: Workspace['search'] = async (search) =>
    this.#guard.admit('workspace:read', this.#workspace, 'workspace.search', search).search(search);
}

function guardedProcesses(processes: Processes, guard: Guard): Processes {
  return {
    run: async (request) => {
      guard.admit('processes', processes, 'processes.run', request);
      return guard.track(() => processes.run(request));
    },
  };
}

function guardedTerminals(terminals: Terminals | undefined, guard: Guard): Terminals {
  return {
    start: async (request) => {
      const handle = guard.admit('processes', terminals, 'terminals.start', request);
      return guard.track(() => handle.start(request));
    },
    write: async (terminalId, chars, waitMs) => {
      const handle = guard.admit('processes', terminals, 'terminals.write', terminalId, chars, waitMs);
      return guard.track(() => handle.write(terminalId, chars, waitMs));
    },
  };
}

function guardedAgents(agents: Agents | undefined, guard: Guard): Agents {
  const handleFor = (method: keyof Agents, ...values: readonly unknown[]): Agents =>
    guard.admit('agents', agents, `agents.${method}`, ...values);
  return {
    // One call starts one agent, however often it is attempted.
    spawn: async (message, agentType) => handleFor('spawn', message, agentType).spawn(message, agentType),
    send: async (agentId, message, interrupt) => {
      const handle = handleFor('send', agentId, message, interrupt);
      return guard.track(() => handle.send(agentId, message, interrupt));
    },
    resume: async (agentId) => {
      const handle = handleFor('resume', agentId);
      return guard.track(() => handle.resume(agentId));
    },
    look: async (agentIds) => handleFor('look', agentIds).look(agentIds),
    haveAnswered: async (agentIds) => handleFor('haveAnswered', agentIds).haveAnswered(agentIds),
    close: async (agentId) => {
      const handle = handleFor('close', agentId);
      return guard.track(() => handle.close(agentId));
    },
  };
}

/** A tainted session stores tainted records, so that storing a text does not make it trusted. */
function guardedMemory(memory: StoredMemory | undefined, guard: Guard, tainted: boolean): Memory {
  return {
    search: async (query, options) =>
      guard.admit('memory:search', memory, 'memory.search', query, options).search(query, options),
    store: async (text, options) => {
      const store = guard.admit('memory:store', memory, 'memory.store', text, options);
      return guard.track(() => store.store(text, tainted ? { ...options, tainted } : options));
    },
    get: async (id) => {
      const store = guard.admit('memory:search', memory, 'memory.get', id);
      if (store.get === undefined)
        throw new PawlError('PERMISSION_DENIED', 'This memory store does not support reading by ID.');
      return store.get(id);
    },
    forget: async (id) => {
      const store = guard.admit('memory:store', memory, 'memory.forget', id);
      if (store.forget === undefined)
        throw new PawlError('PERMISSION_DENIED', 'This memory store does not support forget.');
      return guard.track(async () => store.forget?.(id) ?? false);
    },
  };
}

class GuardedChannel implements Channel {
  readonly #channel: Channel | undefined;
  readonly #guard: Guard;

  constructor(channel: Channel | undefined, guard: Guard) {
    this.#channel = channel;
    this.#guard = guard;
  }

  get kind(): string {
    return this.#guard.handle('channel', this.#channel).kind;
  }

  // These are fields for the same reason as in the workspace's handle.
  readonly send: Channel['send'] = async (message) => {
    const channel = this.#guard.admit('channel', this.#channel, 'channel.send', message);
    return this.#guard.track(() => channel.send(message));
  };

  readonly ask: NonNullable<Channel['ask']> = async (question) => {
    const channel = this.#guard.admit('channel', this.#channel, 'channel.ask', question);
    if (channel.ask === undefined)
      throw new PawlError('PERMISSION_DENIED', `The session's ${channel.kind} channel cannot bring answers back.`);
    return channel.ask(question);
  };
}
