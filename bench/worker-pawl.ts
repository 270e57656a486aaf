/** A worker of Pawl. */
import { startWorker } from '../src/index.ts';
import { processOptions, serve, workerAnswers } from './child.ts';
import { broken, clock, list, reply, slow } from './tools.ts';

const { storeUrl: redisUrl, prefix, ttlMs, concurrency } = processOptions();
const worker = await startWorker({
  tools: [reply, list, slow, clock, broken],
  concurrency,
  redisUrl,
  prefix,
  ttl: { doneMs: ttlMs, failedMs: ttlMs },
});
serve(() => worker.close(1_000), workerAnswers);
