/** A17, cell by cell: the nine base tools times three session kinds, through producer and worker rules. */
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { createLocalRunner } from '../../src/local/run-tool.ts';
import { SESSION_KINDS, type SessionKind } from '../../src/shared/session.ts';
import { defineTool } from '../../src/shared/tool.ts';
import { baseTools } from '../../src/workers/tools/index.ts';
import { temporaryFolder } from '../helpers/context.ts';

/** The seed's table. */
const AVAILABLE: Readonly<Record<string, readonly SessionKind[]>> = {
  read: ['main', 'branch', 'worker'],
  write: ['main', 'branch'],
  edit: ['main', 'branch'],
  shell: ['main', 'branch'],
  message: ['main', 'branch'],
  memory_search: ['main', 'branch', 'worker'],
  memory_store: ['main', 'branch'],
  web_search: ['main', 'branch', 'worker'],
  web_fetch: ['main', 'branch', 'worker'],
};
const PARAMS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  read: { path: 'absent.txt' },
  write: { path: 'a.txt', content: 'x' },
  edit: { path: 'absent.txt', old_string: 'a', new_string: 'b' },
  shell: { command: ['true'] },
  message: { text: 'x' },
  memory_search: { query: 'x' },
  memory_store: { text: 'x' },
  web_search: { query: 'x' },
  web_fetch: { url: 'http://127.0.0.1:9/' },
};
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
    settings: { allowedHosts: ['127.0.0.1:9'] },
  });
  onTestFinished(() => runner.close(0));
  const result = await runner.run(name, PARAMS[name] ?? {}, { kind, retryBudget: { maxAttempts: 1 } });
  const available = AVAILABLE[name]?.includes(kind) === true;
  expect(result.error?.code === 'PERMISSION_DENIED', result.error?.message).toBe(!available);
  if (!available) expect(result.attempts).toBe(0);
});
