/** Reads the facts about a Redis server on which Pawl's promises depend. */
import { isAtLeast, type Persistence, type ServerFacts, weakerOf } from '../config/durability.ts';
import { PawlError } from '../errors/failure.ts';
import { type Redis, serversOf } from './redis/connection.ts';

const OLDEST_VERSION = [6, 2] as const;

/** Reads version, eviction and persistence; for a cluster, the weakest values of its masters. Throws `CONFIGURATION` for an old server. */
export async function inspectServer(redis: Redis): Promise<ServerFacts> {
  const facts = await Promise.all(serversOf(redis).map(inspectNode));
  return facts.reduce(weakerOf);
}

async function inspectNode(redis: Redis): Promise<ServerFacts> {
  const configured = async (name: string): Promise<string | undefined> => {
    try {
      return ((await redis.config('GET', name)) as string[])[1];
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
  const version = infoField('valkey_version') ?? infoField('redis_version') ?? 'unknown';
  if (!isAtLeast(version, OLDEST_VERSION))
    throw new PawlError(
      'CONFIGURATION',
      `Redis ${version} is too old: Pawl needs ${OLDEST_VERSION.join('.')} or later.`,
    );
  return {
    version,
    evictionPolicy: infoField('maxmemory_policy') ?? (await configured('maxmemory-policy')),
    persistence: infoField('aof_enabled') === '0' ? 'none' : ((appendfsync ?? 'unknown') as Persistence),
    ...(infoField('aof_last_write_status') === 'err' ? { writeFailed: true } : {}),
  };
}
