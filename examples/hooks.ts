/** Hooks: rewrite a call, carry values to its tool, deny it, watch it; and a model that is asked again when its arguments are refused. */
import { defineHook, defineTool, HOOK_KINDS, type Hook } from 'pawl';
import { createLocalRunner } from 'pawl/testing';
import { z } from 'zod';

const mail = defineTool({
  name: 'send_mail',
  version: '1.0.0',
  description: 'Sends a letter.',
  tier: 'system',
  effects: 'keyed',
  input: z.object({ to: z.email(), letters: z.number().int().max(3).default(1) }),
  run: ({ to, letters }, ctx) => {
    console.log(`seen by the tool: ${to} from ${ctx.values.get('origin')}`);
    return { output: { letters } };
  },
});

const addressBook = defineHook({
  name: 'address-book',
  tools: ['send_mail'],
  beforeCall: ({ params }) => ({
    ...(params['to'] === 'ada' ? { params: { ...params, to: 'ada@example.org' } } : {}),
    carry: { origin: 'mail' },
  }),
  afterAttempt: ({ ending }) =>
    ending.kind === 'value' ? { result: { ...ending.result, display: '1 letter sent' } } : undefined,
});
const officeHours = defineHook({
  name: 'office-hours',
  beforeCall: ({ params }) => (String(params['to']).endsWith('@moon') ? { deny: 'the moon has no mail' } : undefined),
});
let seen: string[] = [];
const recorder = {
  name: 'recorder',
  ...Object.fromEntries(
    HOOK_KINDS.map((kind) => [
      kind,
      ({ reason = '' }: { reason?: unknown }) => void seen.push(`${kind} ${reason}`.trim()),
    ]),
  ),
} as Hook;

const runner = createLocalRunner({ tools: [mail], hooks: [recorder, addressBook, officeHours] });
const session = await runner.openSession({ kind: 'main' });

const sent = await session.call('send_mail', { to: 'ada' });
console.log(`shown to the caller: ${sent.output?.metadata?.['display']}`);

seen = [];
const denied = await session.call('send_mail', { to: 'armstrong@moon' });
console.log(`denied: ${denied.error?.message}`);
console.log(`recorder: ${seen.join(', ')}`);

// A model's arguments are refused: it gets the reason, and is asked again, at most twice.
let asked = 0;
const result = await session.callWithReask(
  'send_mail',
  { to: 'ada', letters: 9 },
  {
    ask: ({ params }) => {
      asked += 1;
      return { ...params, letters: 3 };
    },
  },
);
console.log(`the model was asked ${asked} time: ${result.status}`);
await runner.close();
