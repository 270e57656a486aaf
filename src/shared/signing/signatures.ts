/**
 * Signatures on records. A signature binds a text to the kind of its record and to the record's ID, so that a record cannot stand in
 * for another one. Without keys, nothing is signed and every record verifies.
 */
import { digest } from '../schema/canonical-json.ts';
import type { Signer } from './signature.ts';

/** A record whose signature does not hold. */
export interface RefusedRecord {
  readonly kind: string;
  /** The parts of the record's ID, as they were signed. */
  readonly id: readonly string[];
  /** A whole sentence. Absent: no key of this fleet made the signature. */
  readonly reason?: string;
}

/** The ID of a record: one text, or several that are signed in order. */
export type RecordId = string | readonly string[];

/** The set of reported refusals is cleared at this size. */
const MAX_REPORTED = 10_000;

export class Signatures {
  readonly #signer: Signer | undefined;
  readonly #onRefused: (refused: RefusedRecord) => void;
  readonly #scopes: Readonly<Record<string, Signatures | undefined>>;
  readonly #reported = new Set<string>();

  /** `scoped`: keys for one scope alone, such as a tier of workers. */
  constructor(
    signer?: Signer,
    onRefused: (refused: RefusedRecord) => void = () => {},
    scoped: Readonly<Record<string, Signer | undefined>> = {},
  ) {
    this.#signer = signer;
    this.#onRefused = onRefused;
    this.#scopes = Object.fromEntries(
      Object.entries(scoped).map(([scope, scopeSigner]) => [scope, new Signatures(scopeSigner, onRefused)]),
    );
  }

  get hasKeys(): boolean {
    return this.#signer !== undefined;
  }

  get fingerprints(): readonly string[] {
    return this.#signer?.fingerprints ?? [];
  }

  hasKey(kid: string): boolean {
    return this.#signer?.hasKey(kid) === true;
  }

  /** The signatures of a scope that has keys of its own; undefined for any other one. */
  scope(name: string): Signatures | undefined {
    return this.#scopes[name];
  }

  /** The empty text without keys. */
  sign(kind: string, id: RecordId, text: string): string {
    return this.#signer?.sign(...signedParts(kind, id, text)) ?? '';
  }

  /** Whether a key of this fleet signed the text for this record. A signature that does not hold is reported once. */
  verify(kind: string, id: RecordId, text: string, signature: string): boolean {
    if (this.matches(kind, id, text, signature)) return true;
    this.refuseOnce({ kind, id: idParts(id) }, signature, ...signedParts(kind, id, text));
    return false;
  }

  /** The same without a report. */
  matches(kind: string, id: RecordId, text: string, signature: string): boolean {
    return this.#signer === undefined || this.#signer.verify(signature, ...signedParts(kind, id, text));
  }

  /** Reports a record that is refused for a reason of the caller's own. */
  refuse(refused: RefusedRecord): void {
    this.#onRefused(refused);
  }

  /**
   * Reports a refused record once for each content. A page that lists refused records reads them again and again; its reports must not
   * push other records out of the audit trail.
   */
  refuseOnce(refused: RefusedRecord, ...content: readonly string[]): void {
    const name = digest(JSON.stringify(content));
    if (this.#reported.has(name)) return;
    if (this.#reported.size >= MAX_REPORTED) this.#reported.clear();
    this.#reported.add(name);
    this.#onRefused(refused);
  }
}

function signedParts(kind: string, id: RecordId, text: string): readonly string[] {
  return [kind, ...idParts(id), text];
}

function idParts(id: RecordId): readonly string[] {
  return typeof id === 'string' ? [id] : id;
}
