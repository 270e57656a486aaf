/** `pawl callbacks`: lists callbacks, sends one again, and prints their secrets. */
import type { CallbackView } from '../../../producer/callbacks/callback-service.ts';
import type { CallbackState } from '../../../shared/callbacks/callback-state.ts';
import { operatorName, pawlCommand, printList, printOrSay, printResult } from '../../context.ts';
import { type Column, moment } from '../../print.ts';

const COLUMNS: readonly Column<CallbackView>[] = [
  { title: 'ID', text: ({ id }) => id },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'SENT', align: 'right', text: ({ attempts }) => String(attempts) },
  {
    title: 'LAST',
    text: ({ lastStatus, lastError }) => (lastStatus === undefined ? (lastError ?? '') : String(lastStatus)),
  },
  { title: 'NEXT', text: ({ nextAtMs }) => (nextAtMs === undefined ? '' : moment(nextAtMs)) },
  { title: 'TOOL', text: ({ tool }) => tool },
  { title: 'URL', text: ({ url }) => url },
];

export const listCallbacks = pawlCommand(async (context, pawl, options: { limit: number; state?: CallbackState }) => {
  const { limit, state } = options;
  const listed = await pawl.callbacks.list({ limit, state });
  const none = state === undefined ? 'there are no callbacks' : `no callback is ${state}`;
  printList(context, listed, { rows: listed.callbacks, columns: COLUMNS, none });
});

export const replayCallback = pawlCommand(async (context, pawl, id: string) => {
  const replayed = await pawl.callbacks.replay(id, { by: operatorName() });
  printOrSay(context, replayed, `${id} is sent again, to ${replayed.url}`);
});

export const showCallbackSecret = pawlCommand(async (context, pawl, options: { tenant?: string }) => {
  const secrets = await pawl.callbacks.secrets(options.tenant);
  printResult(context, { secrets }, secrets.join('\n'));
});
