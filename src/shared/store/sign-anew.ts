/**
 * When signing keys are changed: what was signed once and is kept for good is signed with the newest key while the older one still
 * verifies it. Otherwise it would be gone with that one, and a tool that was switched off would be on again.
 */
import { type Redis, Script } from './redis.ts';

const replaceScript = new Script('field-replace');

/** `signed`: a field of the hash under the newest key; undefined for one that no key verifies. */
export async function signAnew(
  redis: Redis,
  hash: string,
  signed: (field: string, stored: string) => string | undefined,
): Promise<void> {
  for (const [field, stored] of Object.entries(await redis.hgetall(hash))) {
    const anew = signed(field, stored);
    // What somebody has written meanwhile is signed already.
    if (anew !== undefined && anew !== stored) await replaceScript.run(redis, [hash], [field, stored, anew]);
  }
}
