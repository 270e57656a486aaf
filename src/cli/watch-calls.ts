/** `pawl calls watch`: new and changing calls, as a live table on a terminal and as lines in a pipe. */
import { setTimeout as sleep } from 'node:timers/promises';
import { callSummary } from '../producer/http/views.ts';
import { PawlError } from '../shared/failure.ts';
import type { CallRecord } from '../shared/store/call-record.ts';
import { CALL_COLUMNS, standingOf } from './calls.ts';
import { type CliContext, print, say, withPawl } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { count, moment, oneLine, table } from './print.ts';

export interface WatchCallsOptions {
  readonly session?: string;
  readonly limit: number;
  readonly json?: boolean;
}

const LOOK_EVERY_MS = 500;
const CLEAR_BELOW = '\u001b[J';
const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';

export async function watchCalls(context: CliContext, options: WatchCallsOptions): Promise<number> {
  const stop = new AbortController();
  const ignore = context.onInterrupt(() => stop.abort());
  const live = context.out.isTTY && options.json !== true;
  try {
    await withPawl(context, async (pawl) => {
      const { limit, session } = options;
      let show = live ? liveTable(context) : changedLines(context, options.json ?? false);
      let away = false;
      const look = async () => {
        try {
          const calls = await pawl.calls({ limit, ...(session === undefined ? {} : { sessionKey: session }) });
          if (away) say(context, 'Redis answers again');
          away = false;
          show(calls);
        } catch (error) {
          // Whoever watches an incident wants to see its end.
          if (!(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
          if (!away) say(context, `${error.message.replace(/\.$/, '')}; looking again and again`);
          away = true;
          // Its next table stands below these lines.
          if (live) show = liveTable(context);
        }
      };
      if (live) context.out.write(HIDE_CURSOR);
      else if (options.json !== true) say(context, 'watching; Ctrl-C ends');
      while (!stop.signal.aborted) {
        await look();
        await sleep(LOOK_EVERY_MS, undefined, { signal: stop.signal }).catch(() => {});
      }
    });
  } finally {
    if (live) context.out.write(SHOW_CURSOR);
    ignore();
  }
  return EXIT_CODES.success.code;
}

/** Draws the table over the last one. */
function liveTable(context: CliContext): (calls: readonly CallRecord[]) => void {
  let drawn = 0;
  return (calls) => {
    const { rows = 24, columns = 80 } = context.out;
    const lines = table(calls, CALL_COLUMNS).split('\n');
    const shown = lines.slice(0, Math.max(1, rows - 2)).map((line) => line.slice(0, columns - 1));
    const running = calls.filter(({ state }) => state === 'inflight').length;
    shown.push(`${count(calls.length, 'call')}, ${running} in flight; Ctrl-C ends`);
    const up = drawn === 0 ? '' : `\u001b[${drawn}A\r`;
    context.out.write(`${up}${CLEAR_BELOW}${shown.join('\n')}\n`);
    drawn = shown.length;
  };
}

/** One line for each call that is new or has changed since the last look. */
function changedLines(context: CliContext, asJson: boolean): (calls: readonly CallRecord[]) => void {
  let known = new Map<string, string>();
  return (calls) => {
    const seen = new Map(calls.map((call) => [call.callId, `${call.version} ${call.phase} ${call.state}`]));
    for (const call of calls.toReversed()) {
      if (known.get(call.callId) === seen.get(call.callId)) continue;
      print(context, asJson ? JSON.stringify(callSummary(call)) : lineOf(call));
    }
    known = seen;
  };
}

function lineOf(call: CallRecord): string {
  const { request, callId, attempts, updatedAtMs } = call;
  const { toolName, target } = request.envelope;
  return oneLine(
    `${moment(updatedAtMs)} ${callId} ${toolName} ${standingOf(call)} (${count(attempts.length, 'attempt')}) ${target.sessionKey}`,
  );
}
