/**
 * Signing stored records again while keys are rotated: records that are kept for good get a signature of the newest key while the older key
 * still verifies them. Otherwise they would be lost with that key, and a tool that was switched off would be on again.
 */
import { reasonOf } from '../../errors/failure.ts';
import type { Signatures } from '../../signing/signatures.ts';
import type { Logger } from '../../telemetry/log.ts';
import { replaceField } from '../redis/compare-and-set.ts';
import type { Redis } from '../redis/connection.ts';

/** `signed`: a field of the hash under the newest key; undefined for one that no key verifies. */
export async function reSignFields(
  redis: Redis,
  hash: string,
  signed: (field: string, stored: string) => string | undefined,
): Promise<void> {
  for (const [field, stored] of Object.entries(await redis.hgetall(hash))) {
    const value = signed(field, stored);
    // A record that another process has written in the meantime is signed already.
    if (value !== undefined && value !== stored) await replaceField(redis, hash, { field, expected: stored, value });
  }
}

interface Signed {
  reSign(): Promise<void>;
}

/** Signs all such records, in a process that starts with more than one key. */
export async function reSignRecords(
  {
    signatures,
    specs,
    skills,
    schedules,
    switches,
  }: { readonly signatures: Signatures } & Readonly<Record<'specs' | 'skills' | 'schedules' | 'switches', Signed>>,
  log: Logger,
): Promise<void> {
  if (signatures.fingerprints.length < 2) return;
  try {
    await Promise.all([specs.reSign(), skills.reSign(), schedules.reSign(), switches.reSign()]);
  } catch (error) {
    log.warn(
      { event: 'sign_anew', error: reasonOf(error) },
      'declared tools, switches, skills and schedules could not be signed with the newest key: keep the older one',
    );
  }
}
