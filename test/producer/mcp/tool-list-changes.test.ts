/** Clients that listen for changes of the tool list: many of them, and over an outage of Redis. */
import { tmpdir } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { Pawl } from '../../../src/producer/client.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { startWire } from '../../helpers/proxy.ts';
import { eventually } from '../../helpers/signal.ts';
import { createWorld } from '../../helpers/world.ts';
import { type Rig, startRig, testTools } from '../http/rig.ts';
import { MODERN, MODERN_META } from './mcp-client.ts';

/** Resolves when the server has acknowledged the subscription. */
async function listen({ server }: Rig, id = 1): Promise<{ notices(): number }> {
  const closed = new AbortController();
  onTestFinished(() => closed.abort());
  const params = { notifications: { toolsListChanged: true }, _meta: MODERN_META };
  const response = await fetch(`${server.url}/mcp`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': MODERN,
      'mcp-method': 'subscriptions/listen',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method: 'subscriptions/listen', params }),
    signal: closed.signal,
  });
  expect(response.headers.get('content-type'), `subscription ${id}`).toContain('text/event-stream');
  let text = '';
  const readAll = async () => {
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) text += decoder.decode(chunk, { stream: true });
  };
  readAll().catch(() => {});
  await eventually(() => text.includes('notifications/subscriptions/acknowledged'));
  return { notices: () => text.split('notifications/tools/list_changed').length - 1 };
}

test('a client is notified of a change that this server could not see while Redis was out of reach', async () => {
  const wire = await startWire((await createWorld()).redisUrl);
  const rig = await startRig({ ...testTools(), redisUrl: wire.url });
  const { redisUrl, prefix } = rig.world;
  const settings = resolveSettings({ options: { redisUrl, prefix } });
  const elsewhere = await Pawl.open({ settings, log: silentLogger, defaultWorkspaceRoot: tmpdir() });
  onTestFinished(() => elsewhere.close());
  const { notices } = await listen(rig);
  await elsewhere.registry.patch('echo', { enabled: false }, { by: 'test' });
  await eventually(() => notices() === 1, { what: 'the news of the first change' });
  wire.cut();
  await eventually(async () => (await rig.ask('/readyz')).status === 503);
  await elsewhere.registry.patch('echo', { enabled: true }, { by: 'test' });
  wire.heal();
  await eventually(() => notices() === 2, { what: 'the news of the second change' });
});

test('more clients than the SDK takes by default are notified when tools come or go', async () => {
  const rig = await startRig(testTools());
  for (let id = 0; id < 1_024; id += 64)
    await Promise.all(Array.from({ length: 64 }, (_, index) => listen(rig, id + index)));
  const { notices } = await listen(rig, 1_024);
  await rig.pawl.registry.patch('echo', { enabled: false }, { by: 'test' });
  await eventually(() => notices() > 0, { what: 'the news of the change' });
});
