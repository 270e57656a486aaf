/** Testing tools without a fleet: no Redis, no workers, the same rules. See docs/testing.md. */
import { checkObject } from './shared/schema/known-members.ts';
import './node-version.ts';
import './shared/store/redis/own-files.ts';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LocalRunnerOptions } from './local/compose-runner.ts';
import { createLocalRunner } from './local/run-tool.ts';
import type { RunOptions } from './local/runner.ts';
import type { ToolResultEnvelope } from './shared/calls/envelope.ts';
import type { AnyTool, InputOf, OutputOf } from './shared/tools/tool.ts';
import { defined } from './shared/util/json/omit-undefined.ts';

export type { Approve, LocalApprovalRequest, LocalDecision } from './local/approvals.ts';
export type { LocalRunnerOptions } from './local/compose-runner.ts';
export { type FakeClock, fakeClock } from './local/fake-clock.ts';
export {
  type ReliableExecution,
  ToolReliabilityMiddleware,
  toolCallErrorClassifier,
} from './local/reliability-middleware.ts';
export {
  createLocalRunner,
  runWithToolIdempotency,
  type ToolIdempotencyKey,
} from './local/run-tool.ts';
export type { LocalRunner, RunOptions } from './local/runner.ts';
export { type LoggedLine, type TestContext, type TestContextOptions, testContext } from './local/test-context.ts';
export {
  DEDUPE_DEFAULTS,
  type DedupeAttempt,
  type DedupeRecord,
  type DedupeStore,
} from './shared/calls/dedupe-store.ts';
export type { ClassificationOverrides } from './shared/errors/classify-error.ts';
export { type InMemoryDedupeOptions, InMemoryDedupeStore } from './shared/store/dedupe/dedupe-memory.ts';
export { type RedisDedupeOptions, RedisDedupeStore } from './shared/store/dedupe/dedupe-redis.ts';

export type RunToolOptions = RunOptions & Omit<Partial<LocalRunnerOptions>, 'tools'>;

/**
 * Calls a tool once and gives the envelope that its caller would get: parameters, permission, capabilities, time limit, retries and
 * result are checked as in a fleet. Does not wait between two attempts. Without a `workspaceRoot`, works in a new folder and removes it
 * afterwards.
 */
export async function runTool<T extends AnyTool>(
  tool: T,
  params: InputOf<T>,
  options: RunToolOptions = {},
): Promise<ToolResultEnvelope<OutputOf<T>>> {
  checkObject('options', options);
  const { store, clock, sleep = async () => {}, random, settings, log, environment, onEvent, ...others } = options;
  const { hooks, memory, channels, approve, ...rest } = others;
  const { workspaceRoot, ...call } = rest;
  const folder = workspaceRoot ?? mkdtempSync(join(tmpdir(), 'pawl-workspace-'));
  try {
    const runner = createLocalRunner({
      tools: [tool],
      sleep,
      workspaceRoot: folder,
      ...defined({ store, clock, random, settings, log, environment, onEvent, hooks, memory, channels, approve }),
    });
    return await runner.run(tool, params, call).finally(() => runner.close(0));
  } finally {
    if (workspaceRoot === undefined) rmSync(folder, { recursive: true, force: true });
  }
}
