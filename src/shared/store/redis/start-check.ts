/** Checks the rights of the Redis user at the start of a process: later it would wait in vain, or fail in the middle of a call. */
import { PawlError } from '../../errors/failure.ts';
import { backendError, lacksRights, unusableError } from './backend-error.ts';
import { broadcastChannel } from './broadcasts.ts';
import type { Redis } from './connection.ts';
import { FleetKeys } from './keys.ts';
import { Script } from './script.ts';

const tryScript = new Script(new URL('./try-commands.lua', import.meta.url));
/** The shortest wait of Redis, in case a server blocks in a transaction. */
const BLOCK_SECONDS = 0.001;

/**
 * Tries the commands, keys and channels that Pawl uses: those that block where this process waits for Redis, and the one that waits for
 * the disk where a setting asks for that. Throws `BACKEND_UNAVAILABLE` with the rule that a Redis user lacks, or with what
 * Redis answered.
 */
export async function checkRights(
  redis: Redis,
  prefix: string,
  { blocks, waits }: { readonly blocks: boolean; readonly waits: boolean },
): Promise<void> {
  const channel = broadcastChannel(redis, prefix);
  const { trial } = new FleetKeys(prefix);
  const needs: readonly (readonly [name: string, attempt: () => Promise<unknown>])[] = [
    // The first run sends the text, the second one its digest.
    ['eval', () => tryScript.run(redis, [trial], [])],
    ['evalsha', () => tryScript.run(redis, [trial], [])],
    ['publish', () => redis.publish(channel, '{}')],
    ['subscribe', () => redis.subscribe(channel)],
    ['unsubscribe', () => redis.unsubscribe(channel)],
    ...(blocks
      ? ([
          ['blpop', () => inTransaction(redis.multi().blpop(trial, BLOCK_SECONDS))],
          ['bzpopmin', () => inTransaction(redis.multi().bzpopmin(trial, BLOCK_SECONDS))],
        ] as const)
      : [['exec', () => inTransaction(redis.multi().exists(trial))] as const]),
    ...(waits ? [['waitaof', () => redis.call('WAITAOF', 0, 0, 1)] as const] : []),
  ];
  const rules: string[] = [];
  for (const [name, attempt] of needs) {
    try {
      const answer = await attempt();
      if (name !== 'eval') continue;
      // Some proxies answer every command that they do not know with OK.
      if (!Array.isArray(answer)) throw unusableError(name, answer);
      rules.push(...answer.map((command) => `+${command}`));
    } catch (error) {
      // A full Redis refuses every transaction. People must still be able to read, and to remove what fills it.
      if (!blocks && isFull(error)) continue;
      const rule = missingRule(error, name, prefix);
      if (rule === undefined) throw startError(error, prefix, name);
      rules.push(rule);
    }
  }
  if (rules.length > 0) throw missingRightsError(rules, String(await redis.call('ACL', 'WHOAMI').catch(() => 'NAME')));
}

function isFull(error: unknown): boolean {
  return replyBehind(error)?.message.startsWith('OOM ') === true;
}

/** A command that blocks does not wait in a transaction; by itself it would hold up the start for a tenth of a second. */
async function inTransaction(transaction: ReturnType<Redis['multi']>): Promise<void> {
  try {
    await transaction.exec();
  } catch (error) {
    // The transaction says only that it was refused; the refused command says why.
    const [refused] = (error as { readonly previousErrors?: readonly Error[] }).previousErrors ?? [];
    throw refused ?? error;
  }
}

function missingRightsError(rules: readonly string[], user: string, reply?: Error): PawlError {
  const message = reply?.message ?? 'NOPERM';
  return new PawlError(
    'BACKEND_UNAVAILABLE',
    `The Redis user lacks rights that Pawl needs (${message}). Add them: ACL SETUSER ${user} ${[...new Set(rules)].join(' ')}`,
    { cause: reply },
  );
}

/** The ACL rule that the user lacks; undefined for any other error. */
function missingRule(error: unknown, command: string, prefix: string): string | undefined {
  if (!lacksRights(error)) return undefined;
  const { message } = error;
  if (/channel/i.test(message)) return `&${prefix}:*`;
  if (/\bkeys?\b/i.test(message)) return `~${prefix}:*`;
  return `+${/run the '([\w|]+)' command/.exec(message)?.[1] ?? command}`;
}

/** Turns an unexpected answer into a typed error, such as that of a proxy or of a server that lacks commands. */
export function startError(error: unknown, prefix: string, commandName?: string): unknown {
  const typed = backendError(error);
  const reply = replyBehind(typed);
  if (reply === undefined) return typed;
  const name = commandName ?? reply.command?.name ?? 'a command';
  const rule = missingRule(reply, name, prefix);
  if (rule !== undefined) return missingRightsError([rule], 'NAME', reply);
  if (typed instanceof PawlError) return typed;
  return unusableError(name, reply.message, reply);
}

type Reply = Error & { readonly command?: { readonly name?: string } };

function replyBehind(error: unknown): Reply | undefined {
  const reply = error instanceof PawlError ? error.cause : error;
  return reply instanceof Error && reply.name === 'ReplyError' ? reply : undefined;
}
