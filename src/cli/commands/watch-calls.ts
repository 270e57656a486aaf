/** `pawl calls watch`: new and changing calls, as a live table on a terminal and as lines in a pipe. */
import { setTimeout as sleep } from 'node:timers/promises';
import { callSummary } from '../../producer/http/core/views.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, print, say, withPawl } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { jsonLine, moment, table } from '../print.ts';
import { toolOf } from './call-story.ts';
import { attemptsBegun, CALL_COLUMNS, callStatus } from './calls.ts';

interface WatchCallsOptions {
  readonly session?: string;
  readonly limit: number;
}

const POLL_MS = 500;
const CLEAR_BELOW = '\u001b[J';
const HIDE_CURSOR = '\u001b[?25l';
const SHOW_CURSOR = '\u001b[?25h';

export async function watchCalls(context: CliContext, options: WatchCallsOptions): Promise<number> {
  const stop = new AbortController();
  const stopListening = context.onInterrupt(() => stop.abort());
  const live = context.out.isTTY && !context.json;
  try {
    await withPawl(context, async (pawl) => {
      const { limit, session } = options;
      const newest = (limit: number) =>
        pawl.calls.list({ limit, ...(session !== undefined && { sessionKey: session }) });
      const changes = new CallChanges(newest, (callId) => pawl.read(callId), limit);
      let show = live ? liveTable(context) : lines(context);
      let isAway = false;
      const poll = async () => {
        try {
          const calls = live ? await newest(limit) : await changes.read();
          if (isAway) say(context, 'Redis answers again');
          isAway = false;
          show(calls);
        } catch (error) {
          // The command keeps watching while Redis is away, so that the operator sees the end of an incident.
          if (!(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
          if (!isAway) say(context, `${error.message.replace(/\.$/, '')}; trying again`);
          isAway = true;
          // The next table is drawn below this message.
          if (live) show = liveTable(context);
        }
      };
      if (live) context.out.write(HIDE_CURSOR);
      else if (!context.json) say(context, 'watching; Ctrl-C ends');
      while (!stop.signal.aborted) {
        await poll();
        await sleep(POLL_MS, undefined, { signal: stop.signal }).catch(() => {});
      }
    });
  } finally {
    if (live) context.out.write(SHOW_CURSOR);
    stopListening();
  }
  return EXIT_CODES.success.code;
}

/** Draws each table over the previous one. */
function liveTable(context: CliContext): (calls: readonly CallRecord[]) => void {
  let drawnLines = 0;
  return (calls) => {
    const { rows = 24, columns = 80 } = context.out;
    const lines = table(calls, CALL_COLUMNS).split('\n');
    const visibleLines = lines.slice(0, Math.max(1, rows - 2)).map((line) => startOf(line, columns - 1));
    const running = calls.filter(({ state }) => state === 'inflight').length;
    visibleLines.push(`${plural(calls.length, 'call')}, ${running} in flight; Ctrl-C ends`);
    const moveUp = drawnLines === 0 ? '' : `\u001b[${drawnLines}A\r`;
    context.out.write(`${moveUp}${CLEAR_BELOW}${visibleLines.join('\n')}\n`);
    drawnLines = visibleLines.length;
  };
}

function lines(context: CliContext): (calls: readonly CallRecord[]) => void {
  return (calls) => {
    for (const call of calls) print(context, context.json ? jsonLine(callSummary(call)) : lineOf(call));
  };
}

/** The limit of open calls outside the newest that are read each time, in rotation. */
const MAX_POLLED = 500;
const MAX_NEW = 5_000;

/** Finds the calls that are new or have changed since the last read, however many newer ones there are. */
export class CallChanges {
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
  async read(): Promise<readonly CallRecord[]> {
    const reported = this.#reported ?? new Map<string, CallRecord>();
    const newest = this.#reported === undefined ? await this.#newest(this.#limit) : await this.#newSince(reported);
    const listed = new Set(newest.map(({ callId }) => callId));
    const unlisted = [...reported.values()].filter(({ callId, state }) => state === 'inflight' && !listed.has(callId));
    const [polled, deferred] = [unlisted.slice(0, MAX_POLLED), unlisted.slice(MAX_POLLED)];
    const read = await Promise.all(polled.map(({ callId }) => this.#read(callId)));
    const current = [...read.filter((call) => call !== undefined), ...newest.toReversed()];
    this.#reported = new Map([...deferred, ...current].map((call) => [call.callId, call]));
    return current.filter((call) => {
      const previous = reported.get(call.callId);
      return previous === undefined || previous.version !== call.version || previous.phase !== call.phase;
    });
  }

  /** The newest calls, back to one that was reported before. */
  async #newSince(reported: ReadonlyMap<string, CallRecord>): Promise<readonly CallRecord[]> {
    for (let limit = this.#limit; ; limit = Math.min(4 * limit, MAX_NEW)) {
      const calls = await this.#newest(limit);
      const isComplete = calls.length < limit || calls.some(({ callId }) => reported.has(callId));
      if (isComplete || limit >= MAX_NEW) return calls;
    }
  }
}

function lineOf(call: CallRecord): string {
  const { request, callId, updatedAtMs } = call;
  const { sessionKey } = request.envelope.target;
  return escapeLine(
    `${moment(updatedAtMs)} ${callId} ${toolOf(call)} ${callStatus(call)} (${plural(attemptsBegun(call), 'attempt')}) ${sessionKey}`,
  );
}
