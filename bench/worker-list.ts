/** The worker of the bare list. */
import { Redis } from 'ioredis';
import { processOptions, serve, workerAnswers } from './child.ts';
import { replyText } from './reply-text.ts';
import { noteRun } from './runs.ts';

const { storeUrl, prefix, concurrency } = processOptions();
const reader = new Redis(storeUrl);
const sender = new Redis(storeUrl);

async function work(): Promise<void> {
  for (;;) {
    const [, calls] = (await reader.call('BLMPOP', '0', '1', `${prefix}:calls`, 'LEFT', 'COUNT', concurrency)) as [
      string,
      string[],
    ];
    for (const call of calls) {
      const { key, bytes, inbox } = JSON.parse(call) as {
        readonly key: string;
        readonly bytes: number;
        readonly inbox: string;
      };
      noteRun();
      sender.rpush(inbox, JSON.stringify({ key, text: replyText(bytes) })).catch(() => {});
    }
  }
}

work().catch(() => {});
serve(async () => {
  reader.disconnect();
  await sender.quit();
}, workerAnswers);
