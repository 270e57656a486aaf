/** HMAC signatures: a key with a name signs a list of texts, and every key of that name verifies them. */
import { createHmac, timingSafeEqual } from 'node:crypto';

/** The risk of running without keys, in one sentence for logs and checks. */
export const UNSIGNED =
  'anyone who can write to this Redis can make workers run calls that no producer sent, approve calls, and forge results';

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

  hasKey(kid: string): boolean {
    return this.#keys.some((key) => key.kid === kid);
  }

  /** `kid:mac` over the parts, in order. */
  sign(...parts: readonly string[]): string {
    const [first] = this.#keys;
    return first === undefined ? '' : `${first.kid}:${computeMac(first, parts)}`;
  }

  verify(signature: string, ...parts: readonly string[]): boolean {
    const separator = signature.lastIndexOf(':');
    const kid = signature.slice(0, separator);
    const receivedMac = Buffer.from(signature.slice(separator + 1));
    // During a rotation, two keys may share one name.
    return this.#keys.some((key) => key.kid === kid && isSameMac(receivedMac, computeMac(key, parts)));
  }
}

/** `kid:fingerprint` of each key, in order: two processes compare them to see that they hold the same keys, without showing one. */
export function keyFingerprints(keys: readonly SigningKey[]): readonly string[] {
  return keys.map((key) => `${key.kid}:${computeMac(key, ['fingerprint']).slice(0, FINGERPRINT_LENGTH)}`);
}

function isSameMac(receivedMac: Buffer, mac: string): boolean {
  const expected = Buffer.from(mac);
  return expected.length === receivedMac.length && timingSafeEqual(expected, receivedMac);
}

/** Each part is preceded by its length, so that no two lists of parts have the same text. */
function computeMac({ key }: SigningKey, parts: readonly string[]): string {
  let text = '';
  for (const part of parts) text += `${part.length}:${part}`;
  return createHmac('sha256', key).update(text).digest('base64url');
}
