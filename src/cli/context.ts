/**
 * The process as commands see it: streams, environment, signals. `src/cli.ts` passes it in, and commands use nothing else of
 * the process.
 */
import { userInfo } from 'node:os';
import type { Pawl } from '../producer/client.ts';
import { PawlError } from '../shared/errors/failure.ts';
import { EMBEDDED_REDIS_STEP, type Logger } from '../shared/telemetry/log.ts';
import { orUndefined } from '../shared/util/or-undefined.ts';
import { escapeInvisible, escapeLines } from '../shared/util/text/visible-text.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { type Column, prettyJson, table } from './print.ts';

export interface CliContext {
  /** Whether the command prints JSON (`--json`) instead of texts for people. */
  readonly json: boolean;
  readonly out: NodeJS.WriteStream;
  readonly err: NodeJS.WriteStream;
  readonly input: NodeJS.ReadStream;
  readonly environment: NodeJS.ProcessEnv;
  readonly cwd: string;
  /** The file that starts `pawl` in a further process. */
  readonly launcher: string;
  /**
   * Listens to SIGINT and SIGTERM, counted from 1, until the returned function is called. Without a listener they end the process.
   * So does SIGHUP, unless `hangUp` is true: then a closed terminal counts as the first signal, and never as a further one.
   */
  onInterrupt(
    listener: (count: number, signal: NodeJS.Signals) => void,
    options?: { readonly hangUp?: boolean },
  ): () => void;
  /** The process that started this one with a channel (`pawl up`), if any. */
  readonly supervisor: Supervisor | undefined;
  /** Uncaught errors do not end the process until the returned function is called. */
  outliveErrors(): () => void;
  /** Ends the process now, whatever is still open. */
  endNow(code: number): never;
}

/** `drain`: finish the running calls, then end · `hurry`: interrupt them · `gone`: the supervisor has ended. */
export type SupervisorOrder = 'drain' | 'hurry' | 'gone';

export interface Supervisor {
  send(message: object): void;
  onOrder(listener: (order: SupervisorOrder) => void): void;
}

/** Its promise resolves when the process is asked to end. A second request ends it at once, until `stopListening` is called. */
export function listenForStop(context: CliContext): PromiseWithResolvers<void> & { stopListening(): void } {
  const requested = Promise.withResolvers<void>();
  const stopListening = context.onInterrupt(
    (times) => {
      if (times > 1) context.endNow(EXIT_CODES.failed.code);
      requested.resolve();
    },
    { hangUp: true },
  );
  return { ...requested, stopListening };
}

/** An error of the command line or the configuration. It ends the command with exit code 2 and this message. */
export function usageError(message: string): PawlError {
  return new PawlError('CONFIGURATION', message);
}

/** Prints lines of data. Control characters in texts of callers, models and tools are escaped. */
export function print(context: CliContext, lines: string): void {
  context.out.write(`${escapeInvisible(lines)}\n`);
}

/** Prints a result: as JSON with `--json`, otherwise as the text for people. */
export function printResult(context: CliContext, json: unknown, text: string): void {
  print(context, context.json ? prettyJson(json) : text);
}

/** Prints the result of a change as JSON with `--json`, otherwise a message. */
export function printOrSay(context: CliContext, json: unknown, message: string): void {
  if (context.json) print(context, prettyJson(json));
  else say(context, message);
}

/** Prints a list: as JSON with `--json`, otherwise as a table, or `none` when it is empty. */
export function printList<Row>(
  context: CliContext,
  json: object,
  list: { readonly rows: readonly Row[]; readonly columns: readonly Column<Row>[]; readonly none: string },
): void {
  const { rows, columns, none } = list;
  if (context.json || rows.length > 0) printResult(context, json, table(rows, columns));
  else say(context, none);
}

/** Prints a message on standard error. */
export function say(context: CliContext, message: string): void {
  context.err.write(`pawl: ${escapeLines(message)}\n`);
}

/** A start that takes longer than this is explained. */
const SLOW_START_MS = 1_500;

/**
 * Log lines for people: the steps of an embedded Redis if its start is slow, and warnings after the start. Warnings about the
 * durability of that Redis concern its operator: `pawl up`, `worker`, `serve` and `doctor` print them.
 */
function commandLogger(context: CliContext): { readonly log: Logger; started(): void } {
  const buffered: string[] = [];
  let refusalReported = false;
  let newDataDir: unknown;
  let isSlow = false;
  let started = false;
  const timer = setTimeout(() => {
    isSlow = true;
    for (const line of buffered) say(context, line);
  }, SLOW_START_MS).unref();
  return {
    log: {
      debug: () => {},
      info: (fields, message) => {
        if (!('event' in fields) || fields.event !== EMBEDDED_REDIS_STEP) return;
        if ('newDataDir' in fields) newDataDir = fields.newDataDir;
        if (isSlow) say(context, message);
        else buffered.push(message);
      },
      warn: (fields, message) => {
        if (!started) return;
        const isRefused = 'event' in fields && fields.event === 'audit_refused';
        if (!isRefused) return say(context, message);
        // A list may hold many such records; the hint is printed once.
        if (!refusalReported) say(context, `${message}: 'pawl doctor' compares signing keys`);
        refusalReported = true;
      },
      error: (_fields, message) => say(context, message),
    },
    started: () => {
      started = true;
      clearTimeout(timer);
      // A terminal in another folder than that of `pawl up` would else show an empty fleet without a reason.
      if (newDataDir !== undefined)
        say(
          context,
          `no Pawl has run in this folder: ${newDataDir} is new. PAWL_DATA_DIR or REDIS_URL names another one`,
        );
    },
  };
}

/** Runs a command's work with a producer of its own, which is closed in any case. Without an exit code of its own, the work succeeded. */
export async function withPawl(
  context: CliContext,
  work: (pawl: Pawl) => Promise<number | undefined>,
): Promise<number> {
  // The import is dynamic so that help and usage errors stay fast.
  const { connect, loadSettings } = await import('../main.ts');
  const { log, started } = commandLogger(context);
  let pawl: Pawl;
  try {
    pawl = await connect({ log, operator: operatorName() });
  } catch (error) {
    throw withRedisHint(error, isRedisAway(error) ? await loadSettings() : {});
  } finally {
    started();
  }
  try {
    return (await work(pawl)) ?? EXIT_CODES.success.code;
  } finally {
    await pawl.close();
  }
}

/** A command that needs a producer and nothing before it: its work gets the context and the producer, and what the command line gives. */
export function pawlCommand<Args extends readonly unknown[]>(
  work: (context: CliContext, pawl: Pawl, ...args: Args) => Promise<number | undefined>,
): (context: CliContext, ...args: Args) => Promise<number> {
  return (context, ...args) => withPawl(context, (pawl) => work(context, pawl, ...args));
}

/** The user of this process by the system's user database. An environment variable could be missing or hold another name. */
export function userName(): string | undefined {
  // In containers, the user database may have no entry for the user ID.
  return orUndefined(() => userInfo().username) || undefined;
}

/** The name under which this user's decisions and changes are recorded in the audit trail. */
export function operatorName(): string {
  return `cli:${userName() ?? 'unknown'}`;
}

/** Adds the address of the Redis that could not be reached, and a hint where to look. */
export function withRedisHint(error: unknown, { redisUrl }: { readonly redisUrl?: string | undefined }): unknown {
  if (!isRedisAway(error)) return error;
  const address = redisUrl === undefined ? 'the embedded Redis' : withoutPassword(redisUrl);
  const message = `${error.message.replace(/\.$/, '')} (${address}). 'pawl doctor' explains more.`;
  return new PawlError('BACKEND_UNAVAILABLE', message, { cause: error });
}

function isRedisAway(error: unknown): error is PawlError {
  return error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE';
}

/** Hides the password of an address: all up to the last @, because an @ or a slash in it may be unescaped, and `password=`. */
export function withoutPassword(url: string): string {
  return url.replace(/\/\/.*@/gs, '//***@').replace(/(?<=password=)[^&]*/gi, '***');
}
