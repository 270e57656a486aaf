/** A test's own part of the shared, real Redis. */
import { randomBytes } from 'node:crypto';
import { inject, onTestFinished } from 'vitest';
import { awaitReady, openConnection, serversOf } from '../../src/shared/store/redis/connection.ts';

export interface World extends AsyncDisposable {
  readonly redisUrl: string;
  /** Give it to whatever takes a key prefix: no other test sees these keys. Letters, digits and hyphens. */
  readonly prefix: string;
  /** The names of all keys with this world's prefix, sorted. */
  keys(): Promise<readonly string[]>;
  /** The names that connections with this world's prefix in their name still carry: after closing all, none. */
  connections(): Promise<readonly string[]>;
  /** Deletes this world's keys and closes its connection. Safe to call twice. */
  dispose(): Promise<void>;
}

/** Made inside a test, it is disposed of when the test ends; elsewhere, call `dispose`. */
export async function createWorld(): Promise<World> {
  const redisUrl = inject('redisUrl');
  const prefix = `test-${randomBytes(6).toString('hex')}`;
  const redis = openConnection({ url: redisUrl, name: 'world', mode: 'fail-fast' });
  await awaitReady(redis, 10_000);

  const keys = async () => {
    const found: string[] = [];
    // The prefix may stand inside a hash tag, so it is looked for anywhere in the name.
    for (const server of serversOf(redis)) {
      for await (const names of server.scanStream({ match: `*${prefix}*`, count: 1000 })) {
        if (Array.isArray(names)) found.push(...names.map(String));
      }
    }
    return [...new Set(found)].sort();
  };
  const connections = async () => {
    const lists = await Promise.all(serversOf(redis).map((server) => server.client('LIST')));
    const names = [...lists.join('\n').matchAll(/ name=(\S*)/g)].map((match) => match[1] ?? '');
    return names.filter((name) => name.includes(prefix));
  };
  let disposed: Promise<void> | undefined;
  const dispose = () => {
    disposed ??= (async () => {
      const left = await keys();
      // One by one: in a cluster they are anywhere.
      await Promise.all(left.map((key) => redis.unlink(key)));
      await redis.quit();
    })();
    return disposed;
  };
  try {
    onTestFinished(dispose);
  } catch {
    // Not inside a test: whoever made it disposes of it.
  }
  return { redisUrl, prefix, keys, connections, dispose, [Symbol.asyncDispose]: dispose };
}
