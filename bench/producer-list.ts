/**
 * A producer without any promise: a bare Redis list takes each call to a worker, another one its answer back. No job, no record, no
 * retry, and what a process held when it died is lost. What this costs, every system on Redis pays before its first promise.
 */
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { processOptions, serve } from './child.ts';
import { runLoad } from './load.ts';

/** Answers taken at a time. */
const MOST = 64;

const { storeUrl, prefix } = processOptions();
const sender = new Redis(storeUrl);
const reader = new Redis(storeUrl);
const inbox = `${prefix}:inbox:${randomUUID()}`;
const waiting = new Map<string, (text: string) => void>();

async function read(): Promise<void> {
  for (;;) {
    const [, answers] = (await reader.call('BLMPOP', '0', '1', inbox, 'LEFT', 'COUNT', MOST)) as [string, string[]];
    for (const answer of answers) {
      const { key, text } = JSON.parse(answer) as { readonly key: string; readonly text: string };
      waiting.get(key)?.(text);
      waiting.delete(key);
    }
  }
}

async function call(key: string, bytes: number): Promise<string> {
  const answered = new Promise<string>((resolve) => waiting.set(key, resolve));
  await sender.rpush(`${prefix}:calls`, JSON.stringify({ key, bytes, inbox }));
  return answered;
}

read().catch(() => {});
serve(
  async () => {
    reader.disconnect();
    await sender.quit();
  },
  { load: (load) => runLoad(call, load) },
);
