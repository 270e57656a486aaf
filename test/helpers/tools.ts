/** Tools for the tests of this folder and of `../workers`, with strings to pull. */
import { z } from 'zod';
import type { Effects } from '../../src/shared/retries/effects.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';
import type { ToolResult } from '../../src/shared/tools/tool-result.ts';
import { eventually, signal } from './signal.ts';

export const echo = defineTool({
  name: 'echo',
  version: '1.0.0',
  description: 'Says what it is told.',
  tier: 'read-only',
  input: z.object({ text: z.string() }),
  run: ({ text }) => ({ output: { text }, display: `said ${text}` }),
});

/** A tool that does what the test says, and counts. */
export function scripted<Output>(
  name: string,
  run: (attempt: ToolContext, params: Record<string, unknown>) => ToolResult<Output> | Promise<ToolResult<Output>>,
  change: Partial<Omit<Parameters<typeof defineTool>[0], 'name' | 'input' | 'run' | 'output'>> & {
    readonly effects?: Effects;
  } = {},
) {
  const contexts: ToolContext[] = [];
  const tool = defineTool({
    name,
    version: '1.0.0',
    description: `Does what the test of ${name} says.`,
    tier: 'workspace',
    effects: 'idempotent',
    input: z.looseObject({}),
    ...change,
    run: (params, ctx) => {
      contexts.push(ctx);
      return run(ctx, params);
    },
  });
  return { tool, contexts };
}

/** A tool whose every run waits until the test lets it go, or the attempt is ended. */
export function gated(name = 'gate', change: Parameters<typeof scripted>[2] = {}) {
  const gate = signal();
  const { tool, contexts } = scripted(
    name,
    async (ctx) => {
      const stopped = signal();
      const stop = () => stopped.fail(ctx.signal.reason as Error);
      if (ctx.signal.aborted) stop();
      else ctx.signal.addEventListener('abort', stop, { once: true });
      await Promise.race([gate.promise, stopped.promise]);
      return { output: { attempt: ctx.attempt } };
    },
    change,
  );
  const arrived = (runs = 1) => eventually(() => contexts.length >= runs, { what: `run ${runs} of ${name}` });
  return { tool, contexts, open: () => gate.fire(), arrived };
}

/** An error as an HTTP client throws it. */
export function httpError(status: number, members: object = {}): Error {
  return Object.assign(new Error(`HTTP ${status}`), { status, ...members });
}

/** Counts its runs, so that an earlier result is told from a new one. `once`: a second run of the same call would be a fault. */
export function countingTool(outputOf = (run: number) => `run ${run}`) {
  let runs = 0;
  const tool = defineTool({
    name: 'read',
    version: '1.0.0',
    description: 'Says how often it ran.',
    tier: 'workspace',
    effects: 'once',
    input: z.object({ path: z.string() }),
    run() {
      runs += 1;
      return { output: outputOf(runs) };
    },
  });
  return { tool, runs: () => runs };
}
