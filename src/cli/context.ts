/**
 * What a command gets from its composition root (`src/cli.ts`): streams, environment, signals. Commands take nothing from
 * the process by themselves.
 */
import { userInfo } from 'node:os';
import type { Pawl } from '../producer/client.ts';
import type { SettingsInput } from '../shared/config/config.ts';
import { PawlError } from '../shared/errors/failure.ts';
import { EMBEDDED_REDIS_STEP, type Logger } from '../shared/telemetry/log.ts';
import { escapeInvisible, shownLine } from '../shared/util/text/visible-text.ts';

export interface CliContext {
  readonly out: NodeJS.WriteStream;
  readonly err: NodeJS.WriteStream;
  readonly input: NodeJS.ReadStream;
  readonly environment: NodeJS.ProcessEnv;
  readonly cwd: string;
  /** The file that starts `pawl` in a further process. */
  readonly launcher: string;
  /**
   * Hears SIGINT and SIGTERM, counted from 1, until the answer is called; without a listener they end the process. So does
   * a terminal that is closed (SIGHUP), unless `hangUp` is true: then it is heard as the first of them, and never as a further one.
   */
  onInterrupt(
    listener: (count: number, signal: NodeJS.Signals) => void,
    options?: { readonly hangUp?: boolean },
  ): () => void;
  /** The process that started this one and wants to hear of it (`pawl up`); undefined without one. */
  readonly supervisor: Supervisor | undefined;
  /** No error that nobody catches ends the process until the answer is called. */
  outliveErrors(): () => void;
  /** Ends the process now, whatever is still open. */
  endNow(code: number): never;
}

/** `drain`: end when what runs has ended · `hurry`: interrupt that · `gone`: the supervisor itself has ended. */
export type SupervisorWord = 'drain' | 'hurry' | 'gone';

export interface Supervisor {
  tell(message: object): void;
  onWord(listener: (word: SupervisorWord) => void): void;
}

/** What a command could not do because of what it was asked; ends it with exit code 2 and this one message. */
export function usageError(message: string): PawlError {
  return new PawlError('CONFIGURATION', message);
}

/** Lines of data. What callers, models and tools wrote in them moves no cursor and hides nothing. */
export function print(context: CliContext, lines: string): void {
  context.out.write(`${escapeInvisible(lines)}\n`);
}

/** A plain line beside the data; it stays one line. */
export function say(context: CliContext, line: string): void {
  context.err.write(`pawl: ${shownLine(line)}\n`);
}

/** What takes longer than this is explained. */
const SLOW_START_MS = 1_500;

/**
 * Log lines for people: the steps of an embedded Redis once its start turns out to be slow, and warnings as they come later.
 * What this Redis does not promise is for those who run it, and told by `pawl up`, `worker`, `serve` and `doctor`.
 */
function plainLogger(context: CliContext): { readonly log: Logger; started(): void } {
  const held: string[] = [];
  let refusalTold = false;
  let slow = false;
  let started = false;
  const timer = setTimeout(() => {
    slow = true;
    for (const line of held) say(context, line);
  }, SLOW_START_MS);
  timer.unref();
  return {
    log: {
      debug: () => {},
      info: (fields, message) => {
        if (!('event' in fields) || fields.event !== EMBEDDED_REDIS_STEP) return;
        if (slow) say(context, message);
        else held.push(message);
      },
      warn: (fields, message) => {
        if (!started) return;
        const isRefused = 'event' in fields && fields.event === 'audit_refused';
        if (!isRefused) return say(context, message);
        // A list of many records would say the same of each.
        if (!refusalTold) say(context, `${message}: 'pawl doctor' compares signing keys`);
        refusalTold = true;
      },
      error: (_fields, message) => say(context, message),
    },
    started: () => {
      started = true;
      clearTimeout(timer);
    },
  };
}

/** Runs a command's work with a producer of its own, and closes that whatever happens. */
export async function withPawl<T>(
  context: CliContext,
  work: (pawl: Pawl) => Promise<T>,
  options: Partial<SettingsInput> = {},
): Promise<T> {
  // Help and usage errors need none of the libraries behind this.
  const { connect, loadSettings } = await import('../main.ts');
  const { log, started } = plainLogger(context);
  let pawl: Pawl;
  try {
    pawl = await connect({ ...options, log, operator: operatorName() });
  } catch (error) {
    throw withRedisHint(error, isRedisAway(error) ? await loadSettings(options) : {});
  } finally {
    started();
  }
  try {
    return await work(pawl);
  } finally {
    await pawl.close();
  }
}

/** Who sits at this terminal, as the system has it: what the environment says may be missing, or anybody's name. */
export function userName(): string | undefined {
  try {
    return userInfo().username || undefined;
  } catch {
    // A user ID without an entry in the user database, as in containers.
    return undefined;
  }
}

/** Who it is that decides, changes and overrides, for the audit trail. */
export function operatorName(): string {
  return `cli:${userName() ?? 'unknown'}`;
}

/** Says which Redis could not be reached, and where to look. */
export function withRedisHint(error: unknown, { redisUrl }: { readonly redisUrl?: string | undefined }): unknown {
  if (!isRedisAway(error)) return error;
  const which = redisUrl === undefined ? 'the embedded Redis' : withoutPassword(redisUrl);
  const message = `${error.message.replace(/\.$/, '')} (${which}). 'pawl doctor' says more.`;
  return new PawlError('BACKEND_UNAVAILABLE', message, { cause: error });
}

function isRedisAway(error: unknown): error is PawlError {
  return error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE';
}

/** Up to the last @: who forgot to escape one in a password, or a slash, does not see the rest of it. Nor what stands behind a ?. */
export function withoutPassword(url: string): string {
  return url.replace(/\/\/.*@/gs, '//***@').replace(/(?<=password=)[^&]*/gi, '***');
}
