/** A17, cell by cell: the nine base tools times three session kinds, through producer and worker rules. */
import { expect, inject, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { createLocalRunner } from '../../../src/local/run-tool.ts';
import { SESSION_KINDS } from '../../../src/shared/sessions/channel-kinds.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { baseTools } from '../../../src/workers/tools/index.ts';
import { AVAILABLE, PARAMS } from '../../conformance/availability.ts';
import { temporaryFolder } from '../../helpers/context.ts';

const memory = { open: () => ({ search: async () => [], store: async () => ({ id: 'm' }) }), close: async () => {} };
const channels = { open: async () => ({ kind: 'console', send: async () => {} }) };

/** For a tool that this build leaves out: what it needs is what the table is about. */
function standIn(name: string) {
  const reads = name === 'memory_search';
  return defineTool({
    name,
    version: '1.0.0',
    description: 'x',
    tier: reads ? 'read-only' : 'workspace',
    needs: [reads ? 'memory:search' : 'memory:store'],
    input: z.looseObject({}),
    run: async (_params, ctx) => ({ output: reads ? await ctx.memory.search('x') : await ctx.memory.store('x') }),
  });
}

const cells = Object.keys(AVAILABLE).flatMap((name) => SESSION_KINDS.map((kind) => [name, kind] as const));

test.each(cells)('A17, A18: %s in a %s session', async (name, kind) => {
  const tool = baseTools.find((each) => each.name === name) ?? standIn(name);
  const runner = createLocalRunner({
    tools: [tool],
    workspaceRoot: temporaryFolder(),
    memory,
    channels,
    settings: { allowedHosts: ['127.0.0.1:9'], sandbox: inject('sandbox') },
  });
  onTestFinished(() => runner.close(0));
  const result = await runner.run(name, PARAMS[name] ?? {}, { kind, retryBudget: { maxAttempts: 1 } });
  const available = AVAILABLE[name]?.includes(kind) === true;
  expect(result.error?.code === 'PERMISSION_DENIED', result.error?.message).toBe(!available);
  if (!available) expect(result.attempts).toBe(0);
});
