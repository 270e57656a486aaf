/** Local runners, and tools that do what a test says. */
import { onTestFinished } from 'vitest';
import { z } from 'zod';
import type { LocalRunnerOptions } from '../../src/local/compose-runner.ts';
import { fakeClock } from '../../src/local/fake-clock.ts';
import { createLocalRunner } from '../../src/local/run-tool.ts';
import type { LocalRunner } from '../../src/local/runner.ts';
import type { Effects } from '../../src/shared/retries/effects.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';
import type { ProbeAnswer } from '../../src/shared/tools/tool-result.ts';

export const MINUTE_MS = 60_000;

/** A tool that does what the test says, and counts. */
export function scripted(effects: Effects, script: (ctx: ToolContext, run: number) => unknown = () => undefined) {
  const contexts: ToolContext[] = [];
  const answers: ProbeAnswer<unknown>[] = [];
  const tool = defineTool({
    name: `work_${effects}`,
    version: '1.0.0',
    description: 'Does what a test says.',
    tier: effects === 'none' ? 'read-only' : 'workspace',
    effects,
    input: z.looseObject({}),
    run: async (_params, ctx) => {
      contexts.push(ctx);
      return { output: (await script(ctx, contexts.length)) ?? { run: contexts.length } };
    },
    ...(effects === 'probe' ? { probe: () => answers.shift() ?? { state: 'unknown' } } : {}),
  });
  return { tool, contexts, answers };
}

export function open(tools: readonly AnyTool[], options: Partial<LocalRunnerOptions> = {}): LocalRunner {
  const runner = createLocalRunner({ tools, ...options });
  onTestFinished(() => runner.close(0));
  return runner;
}

/** A runner whose time passes when the test says so. */
export function openTimeless(tool: AnyTool, options: Partial<LocalRunnerOptions> = {}) {
  const clock = fakeClock();
  return { clock, runner: createLocalRunner({ tools: [tool], clock, ...options }) };
}

export const unavailable = () => Object.assign(new Error('busy'), { status: 503 });
