/**
 * Composition root of one of the demo's worker processes. Its arguments are the shop, as JSON, and the worker's number. It lives until
 * its standard input ends, so that it ends with the demo, however that ends.
 */
import { startWorker } from '../../src/main.ts';
import { baseTools } from '../../src/workers/tools/index.ts';
import { demoTools, type Shop } from './tools.ts';

// Ctrl-C reaches the whole terminal: the demo answers it, and then ends its workers.
process.on('SIGINT', () => {});

const shop = JSON.parse(process.argv[2] ?? '{}') as Shop;
const { checkStock, ...tools } = demoTools(shop);
// While other workers have a tool, failures on one worker alone do not open its circuit. So one worker has this tool, or the demo would
// depend on which workers its tries meet.
const stock = process.argv[3] === '1' ? [checkStock] : [];
const worker = await startWorker({ tools: [...baseTools, ...Object.values(tools), ...stock], concurrency: 4 });
process.stdout.on('error', () => {});
process.stdout.write('ready\n');
for await (const _ of process.stdin) {
  // Nothing is ever sent.
}
await worker.close(0);
