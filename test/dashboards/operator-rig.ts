/** A server, a worker and their tools for tests of the operator’s page. */
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { z } from 'zod';
import { ToolError } from '../../src/shared/errors/failure.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import { message } from '../../src/workers/tools/message.ts';
import { requestUserInput } from '../../src/workers/tools/request-user-input.ts';
import { signal } from '../helpers/signal.ts';
import { startRig } from '../producer/http/rig.ts';

function fleetTools(): { readonly tools: readonly AnyTool[]; readonly release: () => void } {
  const release = signal();
  const weather = defineTool({
    name: 'get_weather',
    version: '1.4.0',
    description: 'Current weather of a city.',
    tier: 'read-only',
    input: z.object({ city: z.string(), token: z.string().optional() }),
    run: ({ city }) => ({ output: { city, celsius: 21 } }),
  });
  const flaky = defineTool({
    name: 'sync_orders',
    version: '2.0.1',
    description: 'Fails once, then works.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ since: z.string() }),
    run: (_params, ctx) => {
      if (ctx.attempt === 1) throw Object.assign(new Error('the service is busy'), { status: 503 });
      return { output: { orders: 128 } };
    },
  });
  const charge = defineTool({
    name: 'charge_card',
    version: '1.0.0',
    description: 'Charges a card, once.',
    tier: 'workspace',
    effects: 'once',
    input: z.object({ amount: z.number() }),
    run: () => {
      throw new ToolError('the connection broke off', { code: 'OUTCOME_UNKNOWN' });
    },
  });
  const index = defineTool({
    name: 'rebuild_index',
    version: '1.0.0',
    description: 'Takes until it is let go.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({}),
    async run(_params, ctx) {
      ctx.progress({ progress: 3, total: 8, message: 'shards' });
      const aborted = new Promise<never>((_resolve, reject) => {
        ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason as Error), { once: true });
      });
      await Promise.race([release.promise, aborted]);
      return { output: 'rebuilt' };
    },
  });
  return { tools: [weather, flaky, charge, index, message, requestUserInput], release: () => release.fire() };
}

/** Opens the session `trip`, whose calls wait for an operator where they need one. */
export async function rig(settings = {}, token?: string) {
  const { tools, release } = fleetTools();
  const started = await startRig({ tools, tiers: ['read-only', 'workspace', 'system'], settings });
  const headers = token === undefined ? {} : { token };
  const session = { sessionKey: 'trip', actorId: 'ada', channel: { kind: 'operator' } };
  expect((await started.ask('/v1/sessions', { method: 'POST', json: session, ...headers })).status).toBe(201);
  const traceparent = `00-${'4bf92f3577b34da6a3ce929d0e0e4736'}-00f067aa0ba902b7-01`;
  const call = async (tool: string, params: object = {}, wait = 8_000) =>
    (await started.call({ tool, session: 'trip', params, traceparent }, { wait, ...headers })).body;
  return { ...started, call, release };
}

/** The rows of a table with this text. */
export const row = (page: Page, text: string | RegExp) => page.getByRole('row').filter({ hasText: text });
