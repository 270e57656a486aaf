/** A context for unit tests of a tool's function: real files in a temporary folder; logs, progress and checkpoints are recorded. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { completionToken, TOKEN_BYTES } from '../shared/calls/completion.ts';
import { resolveSettings } from '../shared/config/resolve-settings.ts';
import type { Effects } from '../shared/retries/effects.ts';
import { checkObject } from '../shared/schema/known-members.ts';
import type { SessionKind } from '../shared/sessions/channel-kinds.ts';
import type { Capability } from '../shared/tools/capabilities.ts';
import { formatCheckpoint } from '../shared/tools/checkpoint.ts';
import { pendingResult } from '../shared/tools/pending.ts';
import { checkedProgress } from '../shared/tools/tool-answers.ts';
import type { CallingAgent, Progress, ToolContext } from '../shared/tools/tool-context.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { type CapabilityOptions, capabilitiesFor } from '../workers/context/capabilities.ts';
import { TerminalHost } from '../workers/context/terminal-host.ts';
import { protectFolder } from '../workers/workspace/protected-paths.ts';

export interface TestContextOptions extends Pick<CapabilityOptions, 'tier' | 'memory' | 'channel' | 'agents'> {
  /** Default `main`. The handles refuse what this kind of session may not do. */
  readonly kind?: SessionKind;
  /** The tool's declared needs: with these, the handles refuse what a fleet's would. */
  readonly needs?: readonly Capability[];
  /** The tool's declared effects: `ctx.pending` refuses what they do not allow. Default `none`. */
  readonly effects?: Effects;
  /** Default: a new folder, removed by `dispose`. */
  readonly workspaceRoot?: string;
  readonly signal?: AbortSignal;
  /** The operator's configuration of the tool: `ctx.config`. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly turnId?: string;
  readonly agentId?: string;
  readonly agent?: CallingAgent;
  readonly tenantId?: string;
  readonly attempt?: number;
  readonly fence?: number;
  readonly idempotencyKey?: string;
  readonly sessionKey?: string;
  readonly actorId?: string;
  readonly deadlineAtMs?: number;
  /** The checkpoint of an earlier attempt: `ctx.lastCheckpoint`. */
  readonly lastCheckpoint?: unknown;
  /** `ctx.values`: the baggage of a call, such as `schedule` and `scheduledAt` of a scheduled one. */
  readonly values?: Readonly<Record<string, string>>;
  /** Private `host` or `host:port` that `ctx.fetch` may reach, such as a test's own server. */
  readonly allowedHosts?: readonly string[];
  /** Programs get an allow-list of this environment. Default: this process's environment. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

export interface LoggedLine {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly fields?: Readonly<Record<string, unknown>>;
}

export interface TestContext extends ToolContext, Disposable {
  readonly workspaceRoot: string;
  /** All reports of progress, in order. */
  readonly progressed: readonly Progress[];
  readonly logged: readonly LoggedLine[];
  /** All checkpoints in order, as the next attempt would get them. */
  readonly checkpoints: readonly unknown[];
  /** Ends running programs, and removes the workspace if this context created it. */
  dispose(): void;
}

const TEST_CALL = 'test-call';

export function testContext(options: TestContextOptions = {}): TestContext {
  checkObject('options', options);
  const { kind = 'main', sessionKey = 'test-session', signal = new AbortController().signal } = options;
  const workspaceRoot = options.workspaceRoot ?? mkdtempSync(join(tmpdir(), 'pawl-workspace-'));
  const env = options.environment ?? process.env;
  const callId = TEST_CALL;
  protectFolder(resolveSettings({}).dataDir);
  const terminalHost = new TerminalHost({ env });
  const dispose = () => {
    void terminalHost.close();
    if (options.workspaceRoot === undefined) rmSync(workspaceRoot, { recursive: true, force: true });
  };
  const { needs, tier, memory, channel, agents, allowedHosts } = options;
  const {
    has: _has,
    demand: _demand,
    ...handles
  } = capabilitiesFor({
    session: { kind, workspaceRoot },
    callId,
    signal,
    env,
    terminals: terminalHost.open({ callId, sessionKey, root: workspaceRoot, signal }),
    ...defined({ needs, tier, memory, channel, agents, allowedHosts }),
  });
  const progressed: Progress[] = [];
  const logged: LoggedLine[] = [];
  const checkpoints: unknown[] = [];
  return {
    ...handles,
    ...identityOf(options),
    callId,
    sessionKey,
    sessionKind: kind,
    signal,
    trace: {},
    config: options.config ?? {},
    values: new Map(Object.entries(options.values ?? {})),
    log: recordingLog(logged),
    progress: (report) => void progressed.push(checkedProgress('the tool', report)),
    checkpoint: async (value) => void checkpoints.push(JSON.parse(formatCheckpoint('the tool', value))),
    ...(options.lastCheckpoint !== undefined && { lastCheckpoint: options.lastCheckpoint }),
    ...completionOf(options),
    workspaceRoot,
    progressed,
    logged,
    checkpoints,
    dispose,
    [Symbol.dispose]: dispose,
  };
}

/** The caller and the attempt from the options; by default a first attempt. */
function identityOf(options: TestContextOptions) {
  const { agentId, agent, tenantId, turnId, deadlineAtMs } = options;
  return {
    actorId: options.actorId ?? 'test-actor',
    attempt: options.attempt ?? 1,
    fence: options.fence ?? 1,
    idempotencyKey: options.idempotencyKey ?? 'test-key',
    ...defined({ agentId, agent, tenantId, turnId, deadlineAtMs }),
  };
}

/** A token that cannot be completed. A local runner issues tokens that can. */
function completionOf({ effects = 'none' }: TestContextOptions): Pick<ToolContext, 'completionToken' | 'pending'> {
  const token = completionToken(TEST_CALL, Buffer.alloc(TOKEN_BYTES));
  return {
    completionToken: () => token,
    pending: (pending) => pendingResult({ name: 'the tool', effects }, token, pending),
  };
}

function recordingLog(lines: LoggedLine[]): ToolContext['log'] {
  const log = (level: LoggedLine['level']) => (message: string, fields?: LoggedLine['fields']) =>
    void lines.push({ level, message, ...defined({ fields }) });
  return { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') };
}
