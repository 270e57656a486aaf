/** Reads the facts about a Redis server on which Pawl's promises depend. */
import { isAtLeast, type Persistence, type ServerFacts, weakerOf } from '../config/durability.ts';
import { PawlError } from '../errors/failure.ts';
import { type Redis, serversOf } from './redis/connection.ts';

const OLDEST_VERSION = [6, 2] as const;

/**
 * The first versions that load their append-only file whatever their default user may do (https://github.com/redis/redis/pull/14545 and
 * https://github.com/valkey-io/valkey/pull/3984).
 */
const LOADS_WITHOUT_RIGHTS = { redis: [8, 6], valkey: [9, 1, 2] } as const;

/**
 * Reads version, eviction and persistence, for keys that begin with `prefix`; for a cluster, the weakest values of its
 * masters. Throws `CONFIGURATION` for an old server.
 */
export async function inspectServer(redis: Redis, prefix: string): Promise<ServerFacts> {
  const facts = await Promise.all(serversOf(redis).map((server) => inspectNode(server, prefix)));
  return facts.reduce(weakerOf);
}

async function inspectNode(redis: Redis, prefix: string): Promise<ServerFacts> {
  const configured = async (name: string): Promise<string | undefined> => {
    try {
      return (await redis.config('GET', name))[1];
    } catch {
      // Managed servers refuse CONFIG. INFO has less.
      return undefined;
    }
  };
  const [appendfsync, ...sections] = await Promise.all([
    configured('appendfsync'),
    ...['server', 'memory', 'persistence'].map((section) => redis.info(section)),
  ]);
  const info = sections.join('\n');
  const infoField = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
  const valkey = infoField('valkey_version');
  const version = valkey ?? infoField('redis_version') ?? 'unknown';
  if (!isAtLeast(version, OLDEST_VERSION))
    throw new PawlError(
      'CONFIGURATION',
      `Redis ${version} is too old: Pawl needs ${OLDEST_VERSION.join('.')} or later.`,
    );
  const persistence = infoField('aof_enabled') === '0' ? 'none' : ((appendfsync ?? 'unknown') as Persistence);
  const loads =
    persistence === 'none' ||
    isAtLeast(version, LOADS_WITHOUT_RIGHTS[valkey === undefined ? 'redis' : 'valkey']) ||
    (await mayDefaultUserWrite(redis, prefix));
  return {
    version,
    evictionPolicy: infoField('maxmemory_policy') ?? (await configured('maxmemory-policy')),
    persistence: loads ? persistence : 'unloadable',
    ...(infoField('aof_last_write_status') === 'err' ? { writeFailed: true } : {}),
  };
}

/**
 * A server that loads its append-only file runs the transactions in it, which all writes of scripts are, with the rights of
 * its default user, also when that user is off. False only where the server says so: Redis before 7.0, and users
 * without `acl|dryrun`, cannot ask.
 */
async function mayDefaultUserWrite(redis: Redis, prefix: string): Promise<boolean> {
  try {
    return (await redis.call('ACL', 'DRYRUN', 'default', 'SET', `${prefix}:`, '')) === 'OK';
  } catch {
    return true;
  }
}
