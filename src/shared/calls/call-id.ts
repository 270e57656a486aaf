/** The identity of a call: which requests are the same call, and which ID that call has. */
import { PawlError } from '../errors/failure.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import type { Tier } from '../tools/tool.ts';
import { type ToolCallEnvelope, turnOf } from './envelope.ts';

/**
 * Characters of a digest that is part of every key, index and message of a call: 132 bits. A collision takes 2^66 requests of the same
 * session, and harms that session alone; the ID of another session's call takes 2^132.
 */
const SHORT_DIGEST = 22;

/** Fields that may differ between two tries of one request. They are part of its identity only where the tool declares them. */
const VOLATILE = ['clientTs', 'retryCount', 'traceparent'] as const;

/** The digest of a call's parameters, without volatile fields that the tool does not declare. */
export function paramsDigest(
  params: Readonly<Record<string, unknown>>,
  inputSchema: Readonly<Record<string, unknown>>,
): string {
  if (!VOLATILE.some((ownerId) => Object.hasOwn(params, ownerId))) return shortDigest(canonicalJson(params));
  const declared = inputSchema['properties'] ?? {};
  const stableParams = Object.fromEntries(
    Object.entries(params).filter(
      ([ownerId]) => !(VOLATILE as readonly string[]).includes(ownerId) || Object.hasOwn(declared, ownerId),
    ),
  );
  return shortDigest(canonicalJson(stableParams));
}

function shortDigest(text: string): string {
  return digest(text).slice(0, SHORT_DIGEST);
}

export interface Identity {
  /** The name of the call, equal for every caller that means the same call. */
  readonly callId: string;
  /**
   * The slot in which calls with these parameters merge while one is in flight. Present with a derived key only; a caller's own key
   * names the call by itself.
   */
  readonly mergeId?: string;
  /** The name of all calls of a session with this tool and these parameters; absent for a call with its caller's own key. */
  readonly loopId?: string;
}

export interface IdentityRules {
  readonly tier: Tier;
  readonly shard: number;
  readonly scope: 'session' | 'global';
  /** False makes every request without a key a call of its own. */
  readonly derive: boolean;
  /** `always` replays a finished call with the same parameters to any later request. */
  readonly derivedReplay: 'same-request' | 'always';
  /** A key used again with other parameters names another call (policy `independent`). */
  readonly independent?: boolean;
  /** Makes this submission a call of its own, whatever its key and request: set where deduplication is switched off. */
  readonly submissionId?: string;
}

/** Makes a call's identity from the request, the caller and the key. */
export function identify(
  envelope: ToolCallEnvelope,
  params: string,
  rules: IdentityRules,
  request = requestNameOf(envelope),
): Identity {
  const { target, payload, transport } = envelope;
  const session = [target.sessionKey, target.actorId];
  const owner = rules.scope === 'global' ? [] : session;
  const ownerId = (...parts: readonly string[]) => digestId(owner, parts);
  const digestId = (by: readonly string[], parts: readonly string[]) =>
    callIdOf(
      rules,
      shortDigest(
        canonicalJson([target.tenantId ?? null, rules.scope, envelope.toolNamespace, envelope.toolName, parts, by]),
      ),
    );
  const loop = payload.idempotencyKey === undefined ? { loopId: digestId(session, ['params', params]) } : {};
  if (rules.submissionId !== undefined)
    return { callId: ownerId('request', envelope.requestId, rules.submissionId), ...loop };
  if (transport.dedupeMode === 'disabled') return { callId: ownerId('request', envelope.requestId), ...loop };
  if (payload.idempotencyKey !== undefined)
    return {
      callId:
        rules.independent === true
          ? ownerId('key', payload.idempotencyKey, params)
          : ownerId('key', payload.idempotencyKey),
    };
  if (rules.derive && rules.derivedReplay === 'always') return { callId: ownerId('params', params) };
  // A model's ID names a call within one response: with other parameters, it is another call.
  const callId = ownerId('request', request, params);
  return rules.derive ? { callId, mergeId: ownerId('params', params), ...loop } : { callId, ...loop };
}

export type RequestIdentity = Pick<ToolCallEnvelope, 'toolCallId' | 'requestId' | 'target' | 'control'>;

/**
 * The name of a request without a key. A model's ID of a call counts within one turn of one session, because many model servers number
 * the calls of each answer from the start.
 */
export function requestNameOf(request: RequestIdentity): string {
  const { toolCallId, requestId, target } = request;
  if (toolCallId === undefined) return requestId;
  return canonicalJson([target.sessionKey, target.actorId, turnOf(request) ?? null, toolCallId]);
}

/**
 * Whether a request without a key may have been merged into the call of another request, the leader. Both IDs are computed again from
 * the leader's envelope, so a forged record cannot claim a merge. `request` is the merged request's `requestNameOf`.
 */
export function isMerged(
  callId: string,
  request: string,
  leader: { readonly callId: string; readonly envelope: ToolCallEnvelope; readonly paramsDigest: string },
): boolean {
  const partition = partitionOf(callId);
  if (partition === undefined) return false;
  const idOf = (ownerId: string, scope: IdentityRules['scope']) =>
    identify(
      leader.envelope,
      leader.paramsDigest,
      { ...partition, scope, derive: true, derivedReplay: 'same-request' },
      ownerId,
    ).callId;
  return (['session', 'global'] as const).some(
    (scope) => idOf(requestNameOf(leader.envelope), scope) === leader.callId && idOf(request, scope) === callId,
  );
}

const TIER_LETTERS: Readonly<Record<Tier, string>> = { 'read-only': 'r', workspace: 'w', system: 's', elevated: 'e' };
const TIERS = new Map(Object.entries(TIER_LETTERS).map(([tier, letter]) => [letter, tier as Tier]));
/** An ID may also hold the digest in full. */
const CALL_ID = /^[rwse]\d{1,4}\.(?:[A-Za-z0-9_-]{22}|[A-Za-z0-9_-]{43})$/;

/** A call's ID begins with its partition (tier letter and shard), so that the ID alone leads to the record. */
function callIdOf(partition: { readonly tier: Tier; readonly shard: number }, fingerprint: string): string {
  return `${TIER_LETTERS[partition.tier]}${partition.shard}.${fingerprint}`;
}

/** The partition of a call's record; undefined when the text is no call ID. */
export function partitionOf(callId: string): { readonly tier: Tier; readonly shard: number } | undefined {
  const tier = CALL_ID.test(callId) ? TIERS.get(callId.charAt(0)) : undefined;
  return tier === undefined ? undefined : { tier, shard: Number(callId.slice(1, callId.indexOf('.'))) };
}

/** The partition of a call's record. Throws `UNKNOWN_CALL` for a text that is no call ID. */
export function partitionFor(callId: string): { readonly tier: Tier; readonly shard: number } {
  const partition = partitionOf(callId);
  if (partition === undefined) throw new PawlError('UNKNOWN_CALL', `${JSON.stringify(callId)} is not a call ID.`);
  return partition;
}
