import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { contentOf, pending } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { startRig } from '../../producer/http/rig.ts';
import { startMcpFleet } from './mcp-rig.ts';
import { connectionTo, tap } from './wiretap.ts';

const TOKEN = 'a-token-of-the-service';

/** Another Pawl, which serves its tools at `/mcp`. */
async function otherPawl() {
  const [started, release] = [signal(), signal()];
  const add = defineTool({
    name: 'add',
    version: '1.0.0',
    description: 'Adds two numbers.',
    tier: 'read-only',
    input: z.object({ a: z.number(), b: z.number() }),
    output: z.object({ sum: z.number() }),
    run: ({ a, b }, ctx) => {
      ctx.progress({ progress: 1, total: 1, message: 'adding' });
      return { output: { sum: a + b } };
    },
  });
  const hold = defineTool({
    name: 'hold',
    version: '1.0.0',
    description: 'Waits until the test lets it go.',
    tier: 'workspace',
    input: z.object({}),
    run: async (_params, ctx) => {
      started.fire();
      const aborted = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve, { once: true }));
      await Promise.race([release.promise, aborted]);
      ctx.signal.throwIfAborted();
      return { output: 'held' };
    },
  });
  const rig = await startRig({
    tools: [add, hold],
    settings: { apiTokens: [{ token: TOKEN, role: 'agent' }] },
  });
  return { rig, started, release };
}

const authorization = { env: 'SERVICE_AUTHORIZATION' };
const environment = { SERVICE_AUTHORIZATION: `Bearer ${TOKEN}` };

describe('an MCP server over streamable HTTP, of the era 2026-07-28: another Pawl (C22)', () => {
  test('its tools are called with headers from the environment, and its results and progress come back', async () => {
    const { rig } = await otherPawl();
    const wire = await tap(rig.server.url);
    const fleet = await startMcpFleet({ settings: { allowedHosts: [wire.host] }, environment });
    const outcome = await fleet.bring('sums', connectionTo(wire.url, { authorization }), { readOnly: ['add'] });
    expect(outcome).toMatchObject({ state: 'declared', refused: [] });
    const stored = JSON.stringify(await fleet.pawl.registry.read('mcp.sums.add'));
    expect(stored).not.toContain(TOKEN);
    const progress: unknown[] = [];
    fleet.session.events.on('progress', ({ message }) => progress.push(message));
    const result = await fleet.session.call('add', { a: 2, b: 3 }, { namespace: 'mcp.sums' });
    expect(contentOf(result)).toEqual({ sum: 5 });
    expect(result.output?.metadata).toMatchObject({ tainted: true });
    expect(progress).toEqual(['adding']);
    expect((await fleet.session.call('add', { a: 2 }, { namespace: 'mcp.sums' })).error?.code).toBe('INVALID_PARAMS');
    expect(wire.seen.every((headers) => headers.authorization === environment.SERVICE_AUTHORIZATION)).toBe(true);
    expect(wire.seen.at(-1)).toMatchObject({ 'mcp-protocol-version': '2026-07-28', 'mcp-name': 'add' });
    expect(wire.seen.some((headers) => 'mcp-session-id' in headers)).toBe(false);
  });

  test('cancelling a call cancels it there, and the connection stays', async () => {
    const { rig, started } = await otherPawl();
    const wire = await tap(rig.server.url);
    const fleet = await startMcpFleet({ settings: { allowedHosts: [wire.host] }, environment });
    await fleet.bring('sums', connectionTo(wire.url, { authorization }));
    const { callId } = pending(await fleet.session.submit('hold', {}, { namespace: 'mcp.sums' }));
    await started.promise;
    expect(await fleet.session.cancel(callId)).toMatchObject({ settlement: 'unsettled' });
    await eventually(async () => (await rig.pawl.calls.list()).every(({ state }) => state === 'cancelled'));
    expect(contentOf(await fleet.session.call('add', { a: 1, b: 1 }, { namespace: 'mcp.sums' }))).toEqual({ sum: 2 });
  });

  test('whose connection breaks in the middle of a call: a typed error, and the next call has another one', async () => {
    const { rig, started } = await otherPawl();
    const wire = await tap(rig.server.url);
    const fleet = await startMcpFleet({ settings: { allowedHosts: [wire.host] }, environment });
    await fleet.bring('sums', connectionTo(wire.url, { authorization }));
    const held = pending(await fleet.session.submit('hold', {}, { namespace: 'mcp.sums' }));
    await started.promise;
    wire.cut();
    // The tool is `once`, so its outcome there is unknown.
    expect(await held.result).toMatchObject({ status: 'retriable_error', attempts: 1 });
    wire.mend();
    const add = () => fleet.session.call('add', { a: 1, b: 1 }, { namespace: 'mcp.sums' });
    await eventually(async () => contentOf(await add()));
  });

  test('that refuses the connection, or has a private address that policy does not allow, is reported so', async () => {
    const { rig } = await otherPawl();
    const url = `${rig.server.url}/mcp`;
    const { host } = new URL(url);
    const allowed = await startMcpFleet({ settings: { allowedHosts: [host] } });
    await expect(allowed.bring('sums', connectionTo(url))).rejects.toMatchObject({ status: 401 });
    const strict = await startMcpFleet({ environment });
    await expect(strict.bring('sums', connectionTo(url, { authorization }))).rejects.toThrow(
      'unless PAWL_ALLOWED_HOSTS (allowedHosts) names the host',
    );
  });
});
