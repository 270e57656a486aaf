/** A user of the shared Redis, with rights of its own. */
import { onTestFinished } from 'vitest';
import { awaitReady, openConnection } from '../../src/shared/store/redis/connection.ts';
import { startWire } from './proxy.ts';

export interface RedisUser {
  /** Connects as this user. */
  readonly url: string;
  /** Rules of `ACL SETUSER`. Redis breaks the user's subscriptions to channels that it may not use any more. */
  give(...rules: readonly string[]): Promise<void>;
}

/** Deleted when the test ends. */
export async function createUser(redisUrl: string, name: string, rules: readonly string[]): Promise<RedisUser> {
  const admin = openConnection({ url: redisUrl, name: 'users', mode: 'fail-fast' });
  await awaitReady(admin, 10_000);
  const give = async (...more: readonly string[]) => {
    await admin.call('ACL', 'SETUSER', name, ...more);
  };
  await give('on', '>password', ...rules);
  onTestFinished(async () => {
    await admin.call('ACL', 'DELUSER', name);
    await admin.quit();
  });
  // The address of a Unix socket names no user.
  const url = new URL((await startWire(redisUrl)).url);
  url.username = name;
  url.password = 'password';
  return { url: url.href, give };
}
