/** Lua scripts in files, which run atomically on any connection. */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import type { Redis } from 'ioredis';
import { uuidv7 } from '../../util/time.ts';
import { backendError } from './backend-error.ts';
import { readOwnFile } from './own-files.ts';
import './ioredis/ioredis-promises.ts';

const SHARED_FUNCTIONS = readOwnFile(new URL('./shared.lua', import.meta.url));

type ScriptArgument = string | number | Buffer;

/**
 * A Lua file as a function that other scripts call with KEYS and ARGV of their own. The function is named after its file:
 * `next-fair.lua` becomes `next_fair`.
 */
export function luaFunction(file: URL): string {
  return namedLuaFunction(scriptName(file), readOwnFile(file));
}

/** The same for a script that is not a file of its own. */
export function namedLuaFunction(name: string, lua: string): string {
  return `local function ${name.replaceAll('-', '_')}(KEYS, ARGV)\n${lua}\nend\n`;
}

/** Lua constants, which become part of a script's text instead of arguments of each run. */
export function luaConstants(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([name, value]) => `local ${name} = ${JSON.stringify(String(value))}\n`)
    .join('');
}

/** Longer than a command that was sent waits for its answer, and the connection for its server. */
const ANSWER_TTL_MS = 60_000;

const RUN_LUA = 'local answer = script(KEYS, ARGV)\nflushWrites()\nreturn answer\n';

const RUN_ONCE_LUA = `local ANSWER_TTL_MS = ${ANSWER_TTL_MS}\n${readOwnFile(new URL('./run-once.lua', import.meta.url))}`;

/**
 * A Lua script. It can call `functions` and those of `shared.lua`; its deferred writes are made when it returns.
 *
 * A connection that breaks may lose the answer of a script that has run. The client sends the script again, and `once` lets it answer the
 * same without running: for a script whose second run would do or answer something else.
 */
export class Script {
  readonly name: string;
  readonly #lua: string;
  readonly #sha1: string;
  readonly #once: boolean;

  constructor(file: URL, functions: readonly string[] = [], mode?: 'once') {
    this.name = scriptName(file);
    this.#once = mode === 'once';
    this.#lua = [
      SHARED_FUNCTIONS,
      ...functions,
      namedLuaFunction('script', readOwnFile(file)),
      this.#once ? RUN_ONCE_LUA : RUN_LUA,
    ].join('');
    this.#sha1 = createHash('sha1').update(this.#lua).digest('hex');
  }

  /**
   * Runs the script. Errors of an unavailable Redis become `BACKEND_UNAVAILABLE`. The first run on a connection sends the whole text: after a
   * NOSCRIPT answer, the script would run after the connection's next commands.
   */
  async run(client: Redis, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown[]> {
    const known = scriptsSentTo(client);
    // A script for many calls has hundreds of arguments: `concat` copies them at once, spread one by one.
    const allKeys = this.#once ? [...keys, `${keys[0]}:answer:${uuidv7()}`] : keys;
    const values = ([] as ScriptArgument[]).concat(allKeys, args);
    try {
      if (known.has(this)) return (await client.evalsha(this.#sha1, allKeys.length, ...values)) as unknown[];
    } catch (error) {
      if (!isUnknownScript(error)) throw backendError(error);
    }
    known.add(this);
    try {
      return (await client.eval(this.#lua, allKeys.length, ...values)) as unknown[];
    } catch (error) {
      throw backendError(error);
    }
  }
}

/** A hash as scripts return it: names and values in turn. */
export function fieldsOf(flat: readonly string[]): Readonly<Record<string, string>> {
  const fields: Record<string, string> = {};
  for (let index = 0; index < flat.length; index += 2) fields[flat[index] ?? ''] = flat[index + 1] ?? '';
  return fields;
}

const sentScripts = new WeakMap<Redis, Set<Script>>();

/** The scripts that this connection's server knows; after a reconnect it may be another server. */
function scriptsSentTo(client: Redis): Set<Script> {
  const scripts = sentScripts.get(client);
  if (scripts !== undefined) return scripts;
  const scriptsOfConnection = new Set<Script>();
  sentScripts.set(client, scriptsOfConnection);
  client.on('close', () => scriptsOfConnection.clear());
  return scriptsOfConnection;
}

/** The server was restarted, or is another node. */
function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('NOSCRIPT');
}

function scriptName(file: URL): string {
  return basename(file.pathname, '.lua');
}
