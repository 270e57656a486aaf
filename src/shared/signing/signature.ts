/**
 * Signatures on what goes through the queue (DESIGN, decision 11): whoever can write to Redis but has no key cannot make a
 * worker run something that no producer asked for.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';

/** What is not protected without keys (DESIGN, decision 11). */
export const UNSIGNED =
  'whoever can write to this Redis can make workers run calls that no producer sent, approve calls, and have results of their own believed';

export interface SigningKey {
  readonly kid: string;
  readonly key: string;
}

const FINGERPRINT_LENGTH = 12;

export class Signer {
  readonly #keys: readonly SigningKey[];

  /** The first key signs, all verify. At least one. */
  constructor(keys: readonly SigningKey[]) {
    this.#keys = keys;
  }

  get fingerprints(): readonly string[] {
    return keyFingerprints(this.#keys);
  }

  knows(name: string): boolean {
    return this.#keys.some(({ kid }) => kid === name);
  }

  /** `kid:mac` over the parts, in order. */
  sign(...parts: readonly string[]): string {
    const [first] = this.#keys;
    return first === undefined ? '' : `${first.kid}:${macOf(first, parts)}`;
  }

  verify(signature: string, ...parts: readonly string[]): boolean {
    const split = signature.lastIndexOf(':');
    const kid = signature.slice(0, split);
    const came = Buffer.from(signature.slice(split + 1));
    // Two may have one name, while a key is changed for another.
    return this.#keys.some((key) => key.kid === kid && isMac(came, macOf(key, parts)));
  }
}

/** What shows that two processes hold the same keys, and no key: `kid:fingerprint`, in order. */
export function keyFingerprints(keys: readonly SigningKey[]): readonly string[] {
  return keys.map((key) => `${key.kid}:${macOf(key, ['fingerprint']).slice(0, FINGERPRINT_LENGTH)}`);
}

function isMac(came: Buffer, text: string): boolean {
  const expected = Buffer.from(text);
  return expected.length === came.length && timingSafeEqual(expected, came);
}

/** Each part with its length in front, so that no two lists of parts read alike. */
function macOf({ key }: SigningKey, parts: readonly string[]): string {
  let text = '';
  for (const part of parts) text += `${part.length}:${part}`;
  return createHmac('sha256', key).update(text).digest('base64url');
}
