// One worker may be wrong: several run the call, and the caller gets what most of them found.
import { connect, defineTool, startWorker } from 'pawl';
import { z } from 'zod';

/** A node whose source says `rate`. In a fleet each worker process has its own. */
const rateFrom = (rate: (currency: string) => number) =>
  defineTool({
    name: 'exchange_rate',
    version: '1.0.0',
    description: 'What one euro is worth.',
    tier: 'read-only',
    trustClass: 'ConsensusRequired',
    voters: 3,
    input: z.object({ currency: z.string() }),
    run: ({ currency }) => ({ output: { rate: rate(currency), readAtMs: Date.now() } }),
    // When it was read is no part of what they have to agree on.
    normalise: ({ rate }) => rate,
  });

const [first, second, third] = [1.08, 1.08, 9.99];
const nodes = [
  () => first,
  () => second,
  // This one's source is broken; of yen, each node has its own idea.
  () => third,
].map((rate, node) => rateFrom((currency) => (currency === 'JPY' ? 160 + node : rate())));
const workers = await Promise.all(nodes.map((tool) => startWorker({ tools: [tool] })));
const pawl = await connect();
const session = await pawl.openSession({ actorId: 'ada' });

const dollars = await session.call('exchange_rate', { currency: 'USD' });
const found = dollars.output?.content as { readonly rate: number } | undefined;
console.log(`dollars: ${found?.rate}, whatever one node says`);
const yen = await session.call('exchange_rate', { currency: 'JPY' });
console.log(`yen: ${yen.error?.code} after ${yen.attempts} workers`);

await pawl.close();
await Promise.all(workers.map((worker) => worker.close()));
