/** The facts about a Redis server on which Pawl's promises depend. */
import { isAtLeast, type Persistence, type ServerFacts, weakerOf } from '../config/durability.ts';
import { PawlError } from '../errors/failure.ts';
import { type Redis, serversOf } from './redis/connection.ts';

const OLDEST_VERSION = [6, 2] as const;

/** Reads version, eviction and persistence, of a cluster what is worst among its masters. Throws `CONFIGURATION` for a server that is too old. */
export async function inspectServer(redis: Redis): Promise<ServerFacts> {
  const all = await Promise.all(serversOf(redis).map(inspectOne));
  return all.reduce(weakerOf);
}

async function inspectOne(redis: Redis): Promise<ServerFacts> {
  const configured = async (name: string): Promise<string | undefined> => {
    try {
      return ((await redis.config('GET', name)) as string[])[1];
    } catch {
      // Managed servers keep CONFIG to themselves; INFO tells less.
      return undefined;
    }
  };
  const [appendfsync, ...sections] = await Promise.all([
    configured('appendfsync'),
    ...['server', 'memory', 'persistence'].map((section) => redis.info(section)),
  ]);
  const info = sections.join('\n');
  const told = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
  const version = told('valkey_version') ?? told('redis_version') ?? 'unknown';
  if (!isAtLeast(version, OLDEST_VERSION))
    throw new PawlError(
      'CONFIGURATION',
      `Redis ${version} is too old: Pawl needs ${OLDEST_VERSION.join('.')} or later.`,
    );
  return {
    version,
    evictionPolicy: told('maxmemory_policy') ?? (await configured('maxmemory-policy')),
    persistence: told('aof_enabled') === '0' ? 'none' : ((appendfsync ?? 'unknown') as Persistence),
    ...(told('aof_last_write_status') === 'err' ? { writeFailed: true } : {}),
  };
}
