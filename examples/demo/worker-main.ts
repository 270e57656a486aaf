/**
 * Composition root of one of the demo's worker processes. Its only argument is the shop, as JSON. It lives until its standard
 * input ends, so that it ends with the demo, however that ends.
 */
import { startWorker } from '../../src/main.ts';
import { baseTools } from '../../src/workers/tools/index.ts';
import { demoTools, listOf, type Shop } from './tools.ts';

// Ctrl-C reaches the whole terminal: the demo answers it, and then ends its workers.
process.on('SIGINT', () => {});

const shop = JSON.parse(process.argv[2] ?? '{}') as Shop;
const worker = await startWorker({ tools: [...baseTools, ...listOf(demoTools(shop))], concurrency: 4 });
process.stdout.on('error', () => {});
process.stdout.write('ready\n');
for await (const _ of process.stdin) {
  // Nothing is ever sent.
}
await worker.close(0);
