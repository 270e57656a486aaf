/**
 * When signing keys are changed: what was signed once and is kept for good is signed with the newest key while the older one still
 * verifies it. Otherwise it would be gone with that one, and a tool that was switched off would be on again.
 */

import type { Signatures } from '../../signing/signatures.ts';
import type { Logger } from '../../telemetry/log.ts';
import { replaceField } from '../redis/compare-and-set.ts';
import type { Redis } from '../redis/connection.ts';

/** `signed`: a field of the hash under the newest key; undefined for one that no key verifies. */
export async function signFieldsAnew(
  redis: Redis,
  hash: string,
  signed: (field: string, stored: string) => string | undefined,
): Promise<void> {
  for (const [field, stored] of Object.entries(await redis.hgetall(hash))) {
    const anew = signed(field, stored);
    // What somebody has written meanwhile is signed already.
    if (anew !== undefined && anew !== stored) await replaceField(redis, hash, { field, seen: stored, value: anew });
  }
}

interface Signed {
  signAnew(): Promise<void>;
}

/** All of them, by a process that starts while keys are being changed: then there is more than one. */
export async function signRecordsAnew(
  { signatures, specs, skills }: { readonly signatures: Signatures; readonly specs: Signed; readonly skills: Signed },
  log: Logger,
): Promise<void> {
  if (signatures.fingerprints.length < 2) return;
  try {
    await Promise.all([specs.signAnew(), skills.signAnew()]);
  } catch (error) {
    log.warn(
      { event: 'sign_anew', error: error instanceof Error ? error.message : String(error) },
      'declared tools and skills could not be signed with the newest key: keep the older one',
    );
  }
}
