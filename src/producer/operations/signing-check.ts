/** Whether the fleet's workers trust the signatures of this process. */
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { keyFingerprints } from '../../shared/signing/signature.ts';
import type { Backend } from '../../shared/store/backend.ts';

interface SigningSource {
  readonly settings: Pick<Settings, 'signingKeys' | 'redisUrl'>;
  readonly backend: Pick<Backend, 'catalogue'>;
}

/** Two processes trust each other when each verifies what the other signs with its first key. */
export function sharesKeys(one: readonly string[], other: readonly string[]): boolean {
  const [first] = one;
  const [second] = other;
  if (first === undefined || second === undefined) return first === second;
  return other.includes(first) && one.includes(second);
}

/** The number of workers, and of those that trust no signature of this process. */
export async function countUntrusting({
  settings: { signingKeys, redisUrl },
  backend,
}: SigningSource): Promise<{ readonly workers: number; readonly untrusting: number }> {
  // An embedded fleet signs with a key of the data folder.
  if (signingKeys.length === 0 && redisUrl === undefined) return { workers: 0, untrusting: 0 };
  const ownKeys = keyFingerprints(signingKeys);
  const { workers } = await backend.catalogue.read();
  const untrusting = workers.filter(({ signing }) => signing !== undefined && !sharesKeys(ownKeys, signing));
  return { workers: workers.length, untrusting: untrusting.length };
}

/**
 * Runs before a signed change for the workers. If no worker trusts the signature, the change would have no effect, and must not be
 * reported as done. Throws `SIGNATURE_INVALID`.
 */
export async function requireTrustedKeysFor(pawl: SigningSource): Promise<void> {
  const { workers, untrusting } = await countUntrusting(pawl);
  if (untrusting === 0 || untrusting < workers) return;
  throw new PawlError(
    'SIGNATURE_INVALID',
    'The workers do not trust the signing keys of this server: nothing was changed. Set PAWL_SIGNING_KEYS to the value that the workers have.',
  );
}
