/** Composition root of local runs, for development and tests. */
import { z } from 'zod';
import { checkedStore, type DedupeStore } from '../shared/calls/dedupe-store.ts';
import { checkHooks } from '../shared/calls/define-hook.ts';
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { resolveSettings } from '../shared/config/resolve-settings.ts';
import { PawlError, reasonOf } from '../shared/errors/failure.ts';
import type { Effects } from '../shared/retries/effects.ts';
import { checkObject } from '../shared/schema/known-members.ts';
import { InMemoryDedupeStore } from '../shared/store/dedupe/dedupe-memory.ts';
import { guardedLogger, logListenerFailure, notify } from '../shared/telemetry/listeners.ts';
import { silentLogger } from '../shared/telemetry/log.ts';
import { defineTool } from '../shared/tools/define-tool.ts';
import { isTool } from '../shared/tools/tool.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../shared/util/text/quote-value.ts';
import {
  backgroundSchedule,
  type Clock,
  type Random,
  type Schedule,
  systemClock,
  systemSchedule,
} from '../shared/util/time.ts';
import { protectFolder } from '../workers/workspace/protected-paths.ts';
import type { LocalRunnerOptions, RunnerDeps } from './compose-runner.ts';
import { checkedChannels, checkedMemory } from './program-handles.ts';
import { LocalRunner } from './runner.ts';

/** A runner of tools in this process. Close it when done. Throws `CONFIGURATION`. */
export function createLocalRunner(options: LocalRunnerOptions): LocalRunner {
  checkObject('options', options);
  const { hooks = [] } = options;
  const log = guardedLogger(options.log ?? silentLogger);
  checkHooks(hooks);
  if (!Array.isArray(options.tools))
    throw new PawlError('CONFIGURATION', 'A local runner needs `tools`: a list of what defineTool returns.');
  const invalidIndex = options.tools.findIndex((tool) => !isTool(tool));
  if (invalidIndex !== -1) throw notATool(invalidIndex, options.tools[invalidIndex]);
  const clock: Clock & { readonly schedule?: Schedule } = options.clock ?? systemClock;
  const schedule = clock.schedule ?? systemSchedule;
  const backpressure = (pressure: object) =>
    log.warn({ event: 'dedupe_backpressure', ...pressure }, 'the dedupe store is full of calls in flight');
  const settings = resolveSettings({ options: options.settings ?? {} });
  protectFolder(settings.dataDir);
  return new LocalRunner({
    tools: options.tools,
    settings,
    store:
      options.store === undefined
        ? new InMemoryDedupeStore({ clock, onBackpressure: backpressure })
        : checkedStore(options.store),
    clock,
    schedule,
    background: clock.schedule ?? backgroundSchedule,
    sleep: checkedSleep(options.sleep ?? ((ms) => new Promise((resolve) => schedule(resolve, ms)))),
    random: checkedRandom(options.random ?? Math.random),
    log,
    workspaceRoot: options.workspaceRoot ?? process.cwd(),
    environment: options.environment ?? process.env,
    hooks,
    ...defined({
      memory: options.memory && checkedMemory(options.memory),
      channels: options.channels && checkedChannels(options.channels),
      approve: options.approve,
    }),
    onEvent: (event) => notify(options.onEvent, event, (error) => logListenerFailure(log, 'onEvent', error)),
  });
}

type Sleep = RunnerDeps['sleep'];

function checkedSleep(sleep: Sleep): Sleep {
  return async (ms) => {
    try {
      await sleep(ms);
    } catch (error) {
      throw new PawlError('CONFIGURATION', `\`sleep\` of the runner failed: ${reasonOf(error)}`);
    }
  };
}

/** Without the check, what is no number would make a delay without an end. */
function checkedRandom(random: Random): Random {
  return () => {
    let value: unknown;
    try {
      value = random();
    } catch (error) {
      throw new PawlError('CONFIGURATION', `\`random\` of the runner failed: ${reasonOf(error)}`);
    }
    if (typeof value === 'number' && value >= 0 && value <= 1) return value;
    throw new PawlError('CONFIGURATION', `\`random\` of the runner must answer 0 to 1; got ${quoteValue(value)}.`);
  };
}

/** The value is not a tool: for example, a test may import a name that a module does not export. */
function notATool(index: number, value: unknown): PawlError {
  const type = value === null ? 'null' : typeof value;
  return new PawlError(
    'CONFIGURATION',
    `tools[${index}] must be a tool, as defineTool({ … }) returns it; got ${type === 'object' ? 'another object' : type}.`,
  );
}

/** The identity of an execution: the key, in its session and of its actor. */
export interface ToolIdempotencyKey {
  readonly tool: string;
  readonly idempotencyKey: string;
  readonly sessionKey: string;
  readonly actorId: string;
  /** The same key with other parameters is a conflict. */
  readonly params?: Readonly<Record<string, unknown>>;
  /** The effects of a second execution. Default `once`. */
  readonly effects?: Exclude<Effects, 'probe'>;
  /** How long the function may take; its signal aborts then. Default 30,000. */
  readonly timeoutMs?: number;
}

/**
 * Executes a function once for each key of a store. A caller that asks meanwhile waits for the same outcome; a later one gets it from
 * the record. Resolves with an envelope for every outcome.
 */
export async function runWithToolIdempotency<Output>(
  store: DedupeStore,
  key: ToolIdempotencyKey,
  execute: (signal: AbortSignal) => Promise<Output> | Output,
): Promise<ToolResultEnvelope<Output>> {
  checkObject('key', key);
  const tool = defineTool({
    name: key.tool,
    version: '0.0.0',
    description: 'A function under an idempotency key.',
    tier: 'system',
    effects: key.effects ?? 'once',
    input: z.looseObject({}),
    run: async (_params, { signal }) => ({ output: await execute(signal) }),
    ...(key.timeoutMs !== undefined && { timeoutMs: key.timeoutMs }),
  });
  const runner = createLocalRunner({ tools: [tool], store });
  try {
    const { idempotencyKey, sessionKey, actorId, params = {} } = key;
    return await runner.run(tool, { ...params }, { idempotencyKey, sessionKey, actorId });
  } finally {
    await runner.close();
  }
}
