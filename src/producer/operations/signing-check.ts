/** Whether the fleet believes what this process signs. */

import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { keyFingerprints } from '../../shared/signing/signature.ts';
import type { Backend } from '../../shared/store/backend.ts';

interface SigningSource {
  readonly settings: Pick<Settings, 'signingKeys' | 'redisUrl'>;
  readonly backend: Pick<Backend, 'catalogue'>;
}

/** Processes understand each other when each verifies what the other signs: with its first key. */
export function sharesKeys(one: readonly string[], other: readonly string[]): boolean {
  const [first] = one;
  const [second] = other;
  if (first === undefined || second === undefined) return first === second;
  return other.includes(first) && one.includes(second);
}

/** How many workers there are, and how many of them believe nothing that this process signs. */
export async function countUntrusting({
  settings: { signingKeys, redisUrl },
  backend,
}: SigningSource): Promise<{ readonly workers: number; readonly untrusting: number }> {
  // An embedded fleet signs with a key of the data folder.
  if (signingKeys.length === 0 && redisUrl === undefined) return { workers: 0, untrusting: 0 };
  const own = keyFingerprints(signingKeys);
  const { workers } = await backend.catalogue.read();
  const untrusting = workers.filter(({ signing }) => signing !== undefined && !sharesKeys(own, signing));
  return { workers: workers.length, untrusting: untrusting.length };
}

/**
 * Before something is signed for the workers to read: what none of them believes is not there for them, and must not be answered as
 * done. Throws `SIGNATURE_INVALID`.
 */
export async function requireTrustedKeysFor(pawl: SigningSource): Promise<void> {
  const { workers, untrusting } = await countUntrusting(pawl);
  if (untrusting === 0 || untrusting < workers) return;
  throw new PawlError(
    'SIGNATURE_INVALID',
    'The signing keys of this server are not those of the workers, who would not believe this change: nothing was changed. Set PAWL_SIGNING_KEYS as they have it.',
  );
}
