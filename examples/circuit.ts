/** A service that keeps failing is left alone by the whole fleet, and tested one call at a time when it may be back. */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

let isDown = true;
let requests = 0;
const stock = defineTool({
  name: 'stock',
  version: '1.0.0',
  description: 'How many there are.',
  tier: 'read-only',
  retry: { maxAttempts: 1 },
  circuit: { consecutiveFailures: 3, cooldownMs: 3_000 }, // read-only tools otherwise: 8 failures, 20 s
  input: z.object({ item: z.string() }),
  run: async ({ item }) => {
    requests += 1;
    if (isDown) throw Object.assign(new Error('down'), { status: 503 });
    return { output: { item, count: 42 } };
  },
});

const worker = await startWorker({ tools: [stock] });
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });
session.events.on('circuit-open', ({ toolName }) => console.log(`${toolName} is refused: its circuit is open`));
const state = async () =>
  (await pawl.circuits.list()).find(({ key }) => key.includes('stock'))?.circuit.state ?? 'CLOSED';

for (let call = 0; call < 3; call += 1) await session.call(stock, { item: 'lamp' });
console.log(`after 3 failures: ${await state()}, ${requests} requests`);

const refused = await session.call(stock, { item: 'lamp' });
console.log(`then: ${refused.status}, still ${requests} requests`);

isDown = false;
await sleep((refused.error?.retryAfterMs ?? 0) + 20);
const probe = await session.call(stock, { item: 'lamp' });
console.log(`after the cooldown one probe: ${probe.status}, ${await state()}`);
const second = await session.call(stock, { item: 'lamp' });
console.log(`and a second one: ${second.status}, ${await state()}`);

await pawl.close();
await worker.close();
