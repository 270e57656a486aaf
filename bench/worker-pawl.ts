/** A worker of Pawl with a tool that answers at once, and one that always fails. */
import { z } from 'zod';
import { defineTool, startWorker } from '../src/index.ts';
import { processOptions, serve } from './child.ts';
import { replyText } from './reply-text.ts';

const reply = defineTool({
  name: 'reply',
  version: '1.0.0',
  description: 'Answers with a text of the wanted length.',
  tier: 'read-only',
  input: z.object({ bytes: z.number().int().nonnegative() }),
  run: ({ bytes }) => ({ output: { text: replyText(bytes) } }),
});

const broken = defineTool({
  name: 'broken',
  version: '1.0.0',
  description: 'Always fails, so that its circuit opens.',
  tier: 'read-only',
  input: z.object({}),
  retry: { maxAttempts: 1 },
  circuit: { consecutiveFailures: 3, cooldownMs: 600_000 },
  run: () => {
    throw Object.assign(new Error('nobody is there'), { code: 'ECONNREFUSED' });
  },
});

const { redisUrl, prefix, ttlMs, concurrency } = processOptions();
const worker = await startWorker({
  tools: [reply, broken],
  concurrency,
  redisUrl,
  prefix,
  ttl: { doneMs: ttlMs, failedMs: ttlMs },
});
serve(() => worker.close(1_000), {});
