// Tools that are declared while the system runs: connectors to a service, changed, switched off and rolled back without a restart.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect, startWorker } from 'pawl';

// The service: it knows a secret, and the weather.
const service = createServer((request, response) => {
  const [, city] = /^\/v1\/(\w+)$/.exec(request.url ?? '') ?? [];
  const allowed = request.headers.authorization === 'Bearer of-the-service';
  response.writeHead(allowed ? 200 : 401, { 'content-type': 'application/json' });
  response.end(JSON.stringify(allowed ? { city, now: { celsius: 21, wind: 3 } } : { error: 'who are you?' }));
});
await new Promise<void>((listening) => service.listen(0, '127.0.0.1', listening));
const host = `127.0.0.1:${(service.address() as AddressInfo).port}`;

// Secrets stay with workers; the declaration only names them.
process.env['PAWL_SECRET_WEATHER'] = 'of-the-service';
const worker = await startWorker({ tools: [], tiers: ['read-only'], allowedHosts: [host] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const weather = (result: string) => ({
  kind: 'http' as const,
  version: '1.0.0',
  description: 'Current weather of a city.',
  inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  routing: {
    method: 'GET' as const,
    url: `http://${host}/v1/{city}`,
    headers: { authorization: 'Bearer {secret:token}' },
    secrets: { token: { env: 'PAWL_SECRET_WEATHER' } },
    result,
  },
});
const call = async (key: string) => {
  const { output, error } = await session.call('weather', { city: 'Paris' }, { idempotencyKey: key });
  return output === undefined ? error?.code : JSON.stringify(output.content);
};

console.log(`before: ${await call('1')}`);
await pawl.registry.put('weather', weather('{city: city, celsius: now.celsius}'));
console.log(`declared: ${await call('2')}`);
await pawl.registry.put('weather', weather('now'));
console.log(`changed: ${await call('3')}`);
await pawl.registry.rollback('weather', 1);
console.log(`rolled back: ${await call('4')}`);
await pawl.registry.patch('weather', { enabled: false });
console.log(`switched off: ${await call('5')}`);
const history = await pawl.registry.history('weather');
console.log(`revisions: ${history.map(({ revision }) => revision).join(' ')}`);
const isThere = JSON.stringify(history).includes('of-the-service');
console.log(`the secret is in the registry: ${isThere}`);

await pawl.close();
await worker.close();
service.close();
