/** The links of the audit chain: signatures of the fleet's key, or plain digests without a key. A digest reveals accidental edits only. */
import type { AuditChainLink } from '../../audit/audit-chain.ts';
import { digest } from '../../schema/canonical-json.ts';
import type { Signatures } from '../../signing/signatures.ts';

/** The prefix of a plain digest, in place of a key's ID. */
const PLAIN = 'sha256';

export class ChainSignatures implements AuditChainLink {
  readonly #signatures: Signatures;

  constructor(signatures: Signatures) {
    this.#signatures = signatures;
  }

  hash(seq: number, previous: string, text: string): string {
    if (!this.#signatures.hasKeys) return plainDigest(seq, previous, text);
    return this.#signatures.sign('audit', [String(seq), previous], text);
  }

  isHash(seq: number, previous: string, text: string, signature: string): boolean {
    if (!this.#signatures.hasKeys) return signature === plainDigest(seq, previous, text);
    return this.#signatures.matches('audit', [String(seq), previous], text, signature);
  }

  foreignKey(signature: string): string | undefined {
    const kid = signature.slice(0, Math.max(0, signature.lastIndexOf(':')));
    const key = kid === PLAIN ? '' : kid;
    const isOwn = key === '' ? !this.#signatures.hasKeys : this.#signatures.hasKey(key);
    return isOwn ? undefined : key;
  }
}

function plainDigest(seq: number, previous: string, text: string): string {
  return `${PLAIN}:${digest(`${seq} ${previous} ${text}`)}`;
}
