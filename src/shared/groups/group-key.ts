/** The identity of a batch or plan with an idempotency key: which requests are the same group, and its ID. */
import { PawlError } from '../errors/failure.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import type { GroupHead, GroupKind } from './group.ts';

/** The length of a digest, as in the ID of a call (`call-id.ts`). */
const SHORT_DIGEST = 22;

export interface GroupIdentity {
  /** Equal for all requests of one owner under one key. */
  readonly id: string;
  /** The digest of the content. */
  readonly digest: string;
}

interface KeyedGroup {
  readonly kind: GroupKind;
  /** The owner of the key: the tenant, the session and its actor. */
  readonly owner: readonly (string | undefined)[];
  readonly key: string | undefined;
  /** The requested calls, without anything that differs between two tries of one request. */
  readonly content: unknown;
}

/** Undefined for a group without a key, which is a new one each time. */
export function identifyGroup({ kind, owner, key, content }: KeyedGroup): GroupIdentity | undefined {
  if (key === undefined) return undefined;
  const name = shortDigest([kind, owner.map((part) => part ?? null), key]);
  return { id: `${kind}.${name}`, digest: shortDigest(content) };
}

function shortDigest(value: unknown): string {
  return digest(canonicalJson(value)).slice(0, SHORT_DIGEST);
}

/** Throws `IDEMPOTENCY_CONFLICT` when the group that has the key's ID is another one. */
export function checkSameGroup({ id, kind, digest: existingDigest }: GroupHead, identity: GroupIdentity): void {
  if (existingDigest === identity.digest) return;
  const message = `The idempotency key was used before with another ${kind} (${id}); nothing ran.`;
  throw new PawlError('IDEMPOTENCY_CONFLICT', message);
}
