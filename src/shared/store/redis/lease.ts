/** Leases: a key with the name of its holder, which no other process may have while it lasts. */
import type { Redis } from './connection.ts';
import { Script } from './script.ts';

const leaseScript = new Script(new URL('./lease.lua', import.meta.url));

/** Takes or renews a lease, or with 0 ms gives it back. False when another holder has it. */
export async function holdLease(redis: Redis, key: string, holder: string, leaseMs: number): Promise<boolean> {
  const [isHeld] = await leaseScript.run(redis, [key], [holder, leaseMs]);
  return isHeld === 1;
}
