/** The end of a call is posted to a URL. The receiver verifies the signature, and takes each message once. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

const SECRET = `whsec_${Buffer.from('only the fleet and the receiver know this').toString('base64')}`;

/** Throws for a message that the fleet did not sign, or that is older than five minutes. */
function verify(
  headers: IncomingHttpHeaders,
  body: string,
): { type: string; data: { callId: string; status: string } } {
  const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signatures = '' } = headers;
  if (Math.abs(Date.now() / 1_000 - Number(timestamp)) > 300) throw new Error('too old');
  const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64');
  const mac = Buffer.from(`v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`);
  const given = String(signatures)
    .split(' ')
    .map((signature) => Buffer.from(signature));
  if (!given.some((one) => one.length === mac.length && timingSafeEqual(one, mac))) throw new Error('not signed');
  return JSON.parse(body);
}

const seen = new Set<string>();
const told = Promise.withResolvers<void>();
let requests = 0;
const receiver = createServer(async (request, response) => {
  let body = '';
  for await (const part of request) body += part;
  requests += 1;
  if (requests === 1) return void response.writeHead(503).end(); // down: the message comes again, under the same ID
  const { type, data } = verify(request.headers, body);
  const id = String(request.headers['webhook-id']);
  if (!seen.has(id)) console.log(`${type}: ${data.status}`);
  seen.add(id);
  response.writeHead(204).end();
  told.resolve();
});
await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
const callbackUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/settled`;

const report = defineTool({
  name: 'write_report',
  version: '1.0.0',
  description: 'Writes a report.',
  tier: 'system',
  effects: 'keyed',
  input: z.object({ month: z.string() }),
  run: async ({ month }) => ({ output: `report of ${month}` }),
});
// Private addresses are refused, unless the operator allows them.
const settings = { callbackSecrets: [SECRET], allowedHosts: ['127.0.0.1'] };
const worker = await startWorker({ tools: [report], ...settings });
const pawl = await connect(settings);
const session = await pawl.openSession({ actorId: 'ada' });

const { callId } = await session.submit(report, { month: 'May' }, { idempotencyKey: 'may', callbackUrl });
console.log('submitted; nothing waits for it');
await told.promise;
console.log(`requests: ${requests}, messages: ${seen.size}`);
const { callbacks } = await pawl.callbacks.list();
console.log(`about this call: ${callbacks.every((callback) => callback.callId === callId)}`);

await pawl.close();
await worker.close();
receiver.close();
