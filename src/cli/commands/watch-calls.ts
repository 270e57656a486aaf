/** `pawl calls watch`: new and changing calls, as a live table on a terminal and as lines in a pipe. */
import { setTimeout as sleep } from 'node:timers/promises';
import { callSummary } from '../../producer/http/core/views.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { shownLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, print, say, withPawl } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { jsonLine, moment, plural, table } from '../print.ts';
import { CALL_COLUMNS, callStatus } from './calls.ts';

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
      const newest = (limit: number) =>
        pawl.calls.list({ limit, ...(session === undefined ? {} : { sessionKey: session }) });
      const changes = new Changes(newest, (callId) => pawl.read(callId), limit);
      let show = live ? liveTable(context) : lines(context, options.json ?? false);
      let away = false;
      const look = async () => {
        try {
          const calls = live ? await newest(limit) : await changes.look();
          if (away) say(context, 'Redis answers again');
          away = false;
          show(calls);
        } catch (error) {
          // The command keeps watching while Redis is away, so that the operator sees the end of an incident.
          if (!(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
          if (!away) say(context, `${error.message.replace(/\.$/, '')}; looking again and again`);
          away = true;
          // The next table is drawn below this message.
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

/** Draws each table over the previous one. */
function liveTable(context: CliContext): (calls: readonly CallRecord[]) => void {
  let drawn = 0;
  return (calls) => {
    const { rows = 24, columns = 80 } = context.out;
    const lines = table(calls, CALL_COLUMNS).split('\n');
    const shown = lines.slice(0, Math.max(1, rows - 2)).map((line) => startOf(line, columns - 1));
    const running = calls.filter(({ state }) => state === 'inflight').length;
    shown.push(`${plural(calls.length, 'call')}, ${running} in flight; Ctrl-C ends`);
    const up = drawn === 0 ? '' : `\u001b[${drawn}A\r`;
    context.out.write(`${up}${CLEAR_BELOW}${shown.join('\n')}\n`);
    drawn = shown.length;
  };
}

function lines(context: CliContext, asJson: boolean): (calls: readonly CallRecord[]) => void {
  return (calls) => {
    for (const call of calls) print(context, asJson ? jsonLine(callSummary(call)) : lineOf(call));
  };
}

/** So many of the open calls that are no longer among the newest are read each time, in rotation. */
const FOLLOWED_AT_ONCE = 500;
const MAX_NEW = 5_000;

/** Finds the calls that are new or have changed since the last look, however many newer ones there are. */
export class Changes {
  readonly #newest: (limit: number) => Promise<readonly CallRecord[]>;
  readonly #read: (callId: string) => Promise<CallRecord | undefined>;
  readonly #limit: number;
  /** The calls as they were reported last: the newest, and those that have not ended. */
  #reported: Map<string, CallRecord> | undefined;

  constructor(
    newest: (limit: number) => Promise<readonly CallRecord[]>,
    read: (callId: string) => Promise<CallRecord | undefined>,
    limit: number,
  ) {
    this.#newest = newest;
    this.#read = read;
    this.#limit = limit;
  }

  /** The new and changed calls, the oldest first. */
  async look(): Promise<readonly CallRecord[]> {
    const reported = this.#reported ?? new Map<string, CallRecord>();
    const newest = this.#reported === undefined ? await this.#newest(this.#limit) : await this.#sinceLast(reported);
    const listed = new Set(newest.map(({ callId }) => callId));
    const unlisted = [...reported.values()].filter(({ callId, state }) => state === 'inflight' && !listed.has(callId));
    const [looked, waiting] = [unlisted.slice(0, FOLLOWED_AT_ONCE), unlisted.slice(FOLLOWED_AT_ONCE)];
    const read = await Promise.all(looked.map(({ callId }) => this.#read(callId)));
    const shown = [...read.filter((call) => call !== undefined), ...newest.toReversed()];
    this.#reported = new Map([...waiting, ...shown].map((call) => [call.callId, call]));
    return shown.filter((call) => {
      const before = reported.get(call.callId);
      return before === undefined || before.version !== call.version || before.phase !== call.phase;
    });
  }

  /** The newest calls, back to one that was reported before. */
  async #sinceLast(reported: ReadonlyMap<string, CallRecord>): Promise<readonly CallRecord[]> {
    for (let limit = this.#limit; ; limit = Math.min(4 * limit, MAX_NEW)) {
      const calls = await this.#newest(limit);
      const isComplete = calls.length < limit || calls.some(({ callId }) => reported.has(callId));
      if (isComplete || limit >= MAX_NEW) return calls;
    }
  }
}

function lineOf(call: CallRecord): string {
  const { request, callId, attempts, updatedAtMs } = call;
  const { toolName, target } = request.envelope;
  return shownLine(
    `${moment(updatedAtMs)} ${callId} ${toolName} ${callStatus(call)} (${plural(attempts.length, 'attempt')}) ${target.sessionKey}`,
  );
}
