/** A context for running one tool's function without a fleet: real files and programs, everything else recorded. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject, onTestFinished } from 'vitest';
import type { SessionKind } from '../../src/shared/sessions/channel-kinds.ts';
import { pendingResult } from '../../src/shared/tools/pending.ts';
import type { Progress, ToolContext } from '../../src/shared/tools/tool-context.ts';
import { type CapabilityOptions, capabilitiesFor } from '../../src/workers/context/capabilities.ts';

export interface TestContext extends ToolContext {
  readonly progressed: readonly Progress[];
  readonly logged: readonly { readonly level: string; readonly message: string }[];
  readonly checkpoints: readonly unknown[];
}

export type ContextOptions = Partial<Omit<CapabilityOptions, 'session'>> & {
  readonly kind?: SessionKind;
  /** Default: a new folder. */
  readonly workspaceRoot?: string;
  readonly attempt?: number;
  readonly fence?: number;
  readonly config?: Readonly<Record<string, unknown>>;
};

/** A folder that is removed when the test ends. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-test-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function testContext(options: ContextOptions = {}): TestContext {
  const { kind = 'main', workspaceRoot = temporaryFolder(), attempt = 1, fence = 1, config = {}, ...given } = options;
  const callId = given.callId ?? 'test-call';
  const signal = given.signal ?? new AbortController().signal;
  const capabilities = {
    env: process.env,
    sandbox: inject('sandbox'),
    ...given,
    session: { kind, workspaceRoot },
    callId,
    signal,
  };
  const progressed: Progress[] = [];
  const checkpoints: unknown[] = [];
  const logged: { level: string; message: string }[] = [];
  const log = (level: string) => (message: string) => void logged.push({ level, message });
  const { workspace, changes, processes, terminals, memory, channel, agents, fetch } = capabilitiesFor(capabilities);
  return {
    workspace,
    changes,
    processes,
    terminals,
    memory,
    channel,
    agents,
    fetch,
    callId,
    sessionKey: 'test-session',
    sessionKind: kind,
    actorId: 'test-actor',
    attempt,
    fence,
    idempotencyKey: 'test-key',
    signal,
    trace: {},
    config,
    values: new Map(),
    completionToken: () => 'pawlc_test',
    pending: (pending) => pendingResult({ name: 'the tool', effects: 'none' }, 'pawlc_test', pending),
    log: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
    progress: (progress) => void progressed.push(progress),
    checkpoint: async (value) => void checkpoints.push(value),
    checkpoints,
    progressed,
    logged,
  };
}
