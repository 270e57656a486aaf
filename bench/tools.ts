/** The tools of Pawl's workers. Most loads call `reply`. */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { defineTool } from '../src/index.ts';
import { cpuMs } from './child.ts';
import { replyText } from './reply-text.ts';
import { noteRun } from './runs.ts';

export const reply = defineTool({
  name: 'reply',
  version: '1.0.0',
  description: 'Answers with a text of the wanted length.',
  tier: 'read-only',
  input: z.object({ bytes: z.number().int().nonnegative(), ms: z.number().nonnegative(), note: z.string().optional() }),
  run: ({ bytes, ms }) => {
    noteRun();
    if (ms > 0) return sleep(ms).then(() => ({ output: { text: replyText(bytes) } }));
    return { output: { text: replyText(bytes) } };
  },
});

export const list = defineTool({
  name: 'list',
  version: '1.0.0',
  description: 'Answers with a list of texts.',
  tier: 'read-only',
  input: z.object({ length: z.number().int().nonnegative() }),
  output: z.object({ items: z.array(z.string()) }),
  run: ({ length }) => ({ output: { items: Array.from({ length }, (_, at) => `item ${at}`) } }),
});

export const slow = defineTool({
  name: 'slow',
  version: '1.0.0',
  description: 'Takes its time.',
  tier: 'read-only',
  input: z.object({ ms: z.number().nonnegative() }),
  run: async ({ ms }) => {
    noteRun();
    await sleep(ms);
    return { output: {} };
  },
});

export const clock = defineTool({
  name: 'clock',
  version: '1.0.0',
  description: 'Says when it began to run, in wall-clock milliseconds, and the CPU time of its process until then.',
  tier: 'read-only',
  input: z.object({}),
  run: () => ({ output: { startedAtMs: performance.timeOrigin + performance.now(), cpuMs: cpuMs() } }),
});

export const broken = defineTool({
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
