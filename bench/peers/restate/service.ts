import { service } from '@restatedev/restate-sdk';
import { replyText } from '../../reply-text.ts';
import { noteRun } from '../../runs.ts';

/** As long as the other sides keep theirs. */
const KEPT = { seconds: 5 };

export const calls = service({
  name: 'calls',
  handlers: {
    reply: async (_context: unknown, { bytes }: { readonly bytes: number }) => {
      noteRun();
      return { text: replyText(bytes) };
    },
  },
  options: { idempotencyRetention: KEPT, journalRetention: { seconds: 0 } },
});
export type Calls = typeof calls;
