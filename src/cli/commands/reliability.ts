/** `pawl reliability`: the switches of deduplication, retries and circuits. */
import type { Pawl } from '../../producer/client.ts';
import type { Reliability } from '../../producer/operations/reliability-service.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { type CliContext, pawlCommand, print, printResult, say, usageError, withPawl } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { type Column, moment, prettyJson, table } from '../print.ts';

const COLUMNS: readonly Column<Reliability['tools'][number]>[] = [
  { title: 'TOOL', text: ({ tool }) => tool },
  { title: 'LAYER', text: ({ modes }) => (modes.enabled ? 'on' : 'off') },
  { title: 'DEDUPE', text: ({ modes }) => modes.dedupe },
  { title: 'RETRY', text: ({ modes }) => modes.retry },
  { title: 'CIRCUITS', text: ({ modes }) => modes.circuits },
];

export async function listReliability(context: CliContext): Promise<number> {
  return withPawl(context, (pawl) => show(context, pawl));
}

export const setReliability = pawlCommand(
  async (context, pawl, enabled: boolean, { tool, reason }: { tool?: string; reason?: string }) => {
    await pawl.reliability.set(enabled, defined({ tool, reason }));
    return show(context, pawl);
  },
);

export async function flushCalls(
  context: CliContext,
  { call, session, tool, all }: { call?: string; session?: string; tool?: string; all?: boolean },
): Promise<number> {
  if (all !== true && call === undefined && session === undefined && tool === undefined)
    throw usageError('Give the calls to remove: --call ID, --session KEY, --tool NAME, or --all.');
  if (all === true && (call !== undefined || session !== undefined || tool !== undefined))
    throw usageError('--all goes without --call, --session and --tool.');
  if (call !== undefined && (session !== undefined || tool !== undefined))
    throw usageError('--call goes without --session and --tool.');
  return withPawl(context, async (pawl) => {
    const flushed = await pawl.calls.flush(defined({ callId: call, sessionKey: session, tool }));
    printResult(context, flushed, `forgot ${plural(flushed.flushed, 'call')}`);
    if (flushed.inflight > 0) say(context, `${plural(flushed.inflight, 'call')} in flight stayed`);
    const unknown = `${plural(flushed.unresolved, 'call')} with an unknown outcome stayed`;
    const advice = `'pawl calls resolve' settles them; one that was cancelled is forgotten with --call`;
    if (flushed.unresolved > 0) say(context, `${unknown}: ${advice}`);
  });
}

async function show(context: CliContext, pawl: Pawl): Promise<number> {
  const state = await pawl.reliability.read();
  if (context.json) {
    const { enabled, words, shadow } = state;
    const tools = state.tools.map(({ tool, modes }) => ({ tool, ...modes }));
    print(context, prettyJson({ enabled, operator: words, tools, shadow }));
    return EXIT_CODES.success.code;
  }
  print(context, table(state.tools, COLUMNS));
  const { all, tools } = state.words;
  const switches = Object.entries({ ...(all !== undefined && { 'all tools': all }), ...tools });
  for (const [subject, { enabled, atMs, reason }] of switches) {
    const because = reason === undefined ? '' : ` (${reason})`;
    say(context, `${subject}: ${enabled ? 'enabled' : 'disabled'} by an operator at ${moment(atMs)}${because}`);
  }
  for (const { kind, tool, count } of state.shadow)
    say(context, `shadow: ${tool} would have been ${kind} ${count} ${count === 1 ? 'time' : 'times'}`);
  return EXIT_CODES.success.code;
}
