import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../../src/index.ts';
import { startHttpServer } from '../../../../src/producer/http/server.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { contentOf, pending, startFleet } from '../../../helpers/fleet.ts';
import { eventually } from '../../../helpers/signal.ts';

test('an outside system completes a call over HTTP with the token alone: of 50 requests one does, 49 get a typed error', async () => {
  const tokens: string[] = [];
  const pay = defineTool({
    name: 'pay',
    version: '1.0.0',
    description: 'Asks a bank for a payment.',
    tier: 'workspace',
    effects: 'once',
    input: z.object({}),
    output: z.object({ paid: z.number() }),
    run: async (_params, ctx) => {
      tokens.push(ctx.completionToken());
      return ctx.pending({ expiresInMs: 3_600_000 });
    },
  });
  const apiTokens = [{ token: 'secret-token', role: 'operator' as const }];
  const fleet = await startFleet({ tools: [pay], settings: { apiTokens } });
  const server = await startHttpServer({ pawl: fleet.pawl, settings: fleet.settings, log: silentLogger, port: 0 });
  onTestFinished(() => server.close());
  const call = pending(await fleet.session.submit(pay, {}));
  await eventually(async () => (await fleet.pawl.read(call.callId))?.phase === 'pending');
  const post = async (token: string, body: object) => {
    const response = await fetch(`${server.url}/v1/completions/${token}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const { state, error } = (await response.json()) as { readonly state?: string; readonly error?: { code: string } };
    return [response.status, state ?? error?.code];
  };
  const [token = ''] = tokens;
  expect(await post(token, { progress: 0.5 })).toEqual([200, 'pending']);
  expect(await post(token, { extendMs: 1_000 })).toEqual([200, 'pending']);
  expect(await post(token, { status: 'success', output: 'much' })).toEqual([422, 'COMPLETION_INVALID']);
  expect(await post(token, {})).toEqual([400, 'CONTRACT_INVALID']);
  expect(await post('nonsense', { progress: 1 })).toEqual([404, 'UNKNOWN_COMPLETION']);
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, paid) => post(token, { status: 'success', output: { paid } })),
  );
  const won = answers.findIndex(([status]) => status === 200);
  expect(answers.filter(([, code]) => code === 'COMPLETION_USED')).toHaveLength(49);
  expect(contentOf(await call.result)).toEqual({ paid: won });
  const unauthenticated = await fetch(`${server.url}/v1/calls`);
  expect(unauthenticated.status).toBe(401);
  await unauthenticated.body?.cancel();
});
