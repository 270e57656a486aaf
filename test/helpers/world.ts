/** A test's own part of the shared, real Redis. */
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';
import { inject, onTestFinished } from 'vitest';

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
  const redis = new Redis(redisUrl, { lazyConnect: true, maxRetriesPerRequest: 1, connectionName: 'world' });
  redis.on('error', () => {});
  await redis.connect();

  const keys = async () => {
    const found: string[] = [];
    // The prefix may stand inside a hash tag, so it is looked for anywhere in the name.
    for await (const names of redis.scanStream({ match: `*${prefix}*`, count: 1000 })) {
      if (Array.isArray(names)) found.push(...names.map(String));
    }
    return [...new Set(found)].sort();
  };
  const connections = async () => {
    const list = String(await redis.client('LIST'));
    return [...list.matchAll(/ name=(\S*)/g)].map((match) => match[1] ?? '').filter((name) => name.includes(prefix));
  };
  let disposed: Promise<void> | undefined;
  const dispose = () => {
    disposed ??= (async () => {
      const left = await keys();
      for (let from = 0; from < left.length; from += 1000) await redis.unlink(...left.slice(from, from + 1000));
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
