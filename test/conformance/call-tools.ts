import { z } from 'zod';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { Circuit } from '../../src/shared/circuits/circuit-breaker.ts';
import type { SettingsInput } from '../../src/shared/config/config.ts';
import type { OpenSession } from '../../src/shared/sessions/session.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import type { ToolContext } from '../../src/shared/tools/tool-context.ts';
import type { ToolResult } from '../../src/shared/tools/tool-result.ts';
import { signal } from '../helpers/signal.ts';

export interface CallFront {
  openSession(open?: OpenSession): Promise<Session>;
  /** The circuit of a tool. */
  circuit(tool: string): Promise<Circuit | undefined>;
  setCircuit(action: 'force_open' | 'reset', tool: string): Promise<void>;
  close(): Promise<void>;
}

export interface OpenedFront {
  readonly front: CallFront;
  readonly session: Session;
}

export interface FrontOptions {
  readonly tools: readonly AnyTool[];
  readonly settings: Partial<SettingsInput>;
}

type Script = (ctx: ToolContext, run: number) => unknown;

export const COOLDOWN_MS = 150;
const tolerant = { consecutiveFailures: 1_000, rateMinimum: 1_000, rateSamples: 1_000 } as const;
const fragile = { consecutiveFailures: 3, cooldownMs: 60_000 } as const;
const briefly = { ...fragile, cooldownMs: COOLDOWN_MS } as const;

export const scripts = new Map<string, Script>();
export const runs = new Map<string, ToolContext[]>();

/** A tool that does what is written for the label among its parameters. */
function scriptedTool(name: string, change: Partial<Parameters<typeof defineTool>[0]> = {}) {
  return defineTool({
    name,
    version: '1.0.0',
    description: 'Does what a test says.',
    tier: 'workspace',
    effects: 'idempotent',
    retry: { baseMs: 2, maxDelayMs: 4 },
    circuit: tolerant,
    ...change,
    input: z.object({ label: z.string(), number: z.number().optional() }),
    run: async ({ label }, ctx): Promise<ToolResult<unknown>> => {
      const seen = runs.get(label) ?? [];
      runs.set(label, [...seen, ctx]);
      const output = await scripts.get(label)?.(ctx, seen.length + 1);
      return { output: output ?? { run: seen.length + 1 } };
    },
  });
}

export const work = scriptedTool('work');
export const once = scriptedTool('work_once', { effects: 'once' });
export const look = scriptedTool('look', { tier: 'read-only', effects: 'none' });
export const shared = scriptedTool('look_shared', { tier: 'read-only', effects: 'none' });
export const independent = scriptedTool('work_independent');
export const disabled = scriptedTool('work_disabled');
export const elevated = scriptedTool('work_elevated', { tier: 'elevated' });
export const small = scriptedTool('work_small', { maxResultBytes: 200 });
export const parcels = scriptedTool('work_parcels', { output: z.object({ parcels: z.number() }) as never });
export const opening = scriptedTool('work_opening', { circuit: fragile });
export const recovering = scriptedTool('work_recovering', { circuit: briefly });
export const relapsing = scriptedTool('work_relapsing', { circuit: briefly });
export const storming = scriptedTool('work_storming', {
  circuit: fragile,
  retry: { baseMs: 1, maxDelayMs: 1, maxAttempts: 10 },
});
export const forced = scriptedTool('work_forced');
export const budgeted = scriptedTool('work_budgeted');
export const ordinary = scriptedTool('work_ordinary');
export const sequential = scriptedTool('work_sequential', { parallel: false });
export const mixed = scriptedTool('work_mixed', { circuit: { ...tolerant, consecutiveFailures: 3 } });
export const writer = defineTool({
  name: 'write_note',
  version: '1.0.0',
  description: 'Writes a note.',
  tier: 'read-only',
  needs: ['workspace:write'],
  input: z.object({}),
  run: async (_params, ctx) => ({ output: await ctx.workspace.write('note', 'text') }),
});
export const TOOLS = [
  work,
  once,
  look,
  shared,
  independent,
  disabled,
  elevated,
  small,
  parcels,
  opening,
  recovering,
  relapsing,
  storming,
  forced,
  mixed,
  budgeted,
  ordinary,
  sequential,
  writer,
];

/** Of the tools that many tests share. */
const plenty = { retry: { budget: { floor: 1_000 } } };

export const SETTINGS: Partial<SettingsInput> = {
  tools: {
    work_independent: { onConflict: 'independent' },
    work_disabled: { enabled: false },
    look_shared: { scope: 'global' },
    work: plenty,
    look: plenty,
    work_once: plenty,
    work_storming: plenty,
    // Fewer than the attempts after which its circuit opens.
    work_budgeted: { retry: { budget: { floor: 3 } } },
  },
};

export const http = (status: number) => Object.assign(new Error(`HTTP ${status}`), { status });
export const refusedConnection = () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
export const timesRun = (label: string) => runs.get(label)?.length ?? 0;
export const always = (thrown: () => unknown) => () => {
  throw thrown();
};

/** A script that waits until it is let go; `begun` tells of its first run. */
export function held(label: string) {
  const [begun, gate] = [signal(), signal()];
  scripts.set(label, async (ctx) => {
    begun.fire();
    const stopped = signal();
    ctx.signal.addEventListener('abort', () => stopped.fail(ctx.signal.reason as Error), { once: true });
    await Promise.race([gate.promise, stopped.promise]);
    return { label };
  });
  return { begun: begun.promise, open: () => gate.fire() };
}
