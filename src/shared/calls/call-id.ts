/**
 * What makes two calls the same call (R8 to R10; DESIGN, rulings 1 to 5).
 */
import { PawlError } from '../errors/failure.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import type { Tier } from '../tools/tool.ts';
import { type ToolCallEnvelope, turnOf } from './envelope.ts';

/** Fields that change from try to try without changing what is asked (R9). They count when the tool declares them. */
const VOLATILE = ['clientTs', 'retryCount', 'traceparent'] as const;

/** The digest of a call's parameters, without volatile fields that the tool does not declare. */
export function paramsDigest(
  params: Readonly<Record<string, unknown>>,
  inputSchema: Readonly<Record<string, unknown>>,
): string {
  if (!VOLATILE.some((name) => Object.hasOwn(params, name))) return digest(canonicalJson(params));
  const declared = (inputSchema['properties'] ?? {}) as object;
  const lasting = Object.fromEntries(
    Object.entries(params).filter(
      ([name]) => !(VOLATILE as readonly string[]).includes(name) || Object.hasOwn(declared, name),
    ),
  );
  return digest(canonicalJson(lasting));
}

export interface Identity {
  /** Names the call; the same for every caller that means the same call. */
  readonly callId: string;
  /**
   * With a derived key: names the slot in which calls with these parameters merge while one is in flight (DESIGN, ruling 3).
   * Undefined when the key says it all.
   */
  readonly mergeId?: string;
  /** Names all calls of a session with this tool and these parameters; absent for a call with its caller's own key (R26). */
  readonly loopId?: string;
}

export interface IdentityRules {
  readonly tier: Tier;
  readonly shard: number;
  readonly scope: 'session' | 'global';
  /** `off` makes every call without a key its own call (R33). */
  readonly derive: boolean;
  /** `always` replays a finished call with the same parameters, the seed's literal rule. */
  readonly derivedReplay: 'same-request' | 'always';
  /** A key used again with other parameters names another call (TR-4, policy `independent`). */
  readonly independent?: boolean;
  /** Deduplication does not work: names this one hand-in of a call, whatever its key and request. */
  readonly apart?: string;
}

/** Names a call from what was asked, by whom, and with which key. */
export function identify(
  envelope: ToolCallEnvelope,
  params: string,
  rules: IdentityRules,
  request = requestNameOf(envelope),
): Identity {
  const { target, payload, transport } = envelope;
  const session = [target.sessionKey, target.actorId];
  const owner = rules.scope === 'global' ? [] : session;
  const name = (...meaning: readonly string[]) => named(owner, meaning);
  const named = (by: readonly string[], meaning: readonly string[]) =>
    callIdOf(
      rules,
      digest(
        canonicalJson([target.tenantId ?? null, rules.scope, envelope.toolNamespace, envelope.toolName, meaning, by]),
      ),
    );
  const loop = payload.idempotencyKey === undefined ? { loopId: named(session, ['params', params]) } : {};
  if (rules.apart !== undefined) return { callId: name('request', envelope.requestId, rules.apart), ...loop };
  if (transport.dedupeMode === 'disabled') return { callId: name('request', envelope.requestId), ...loop };
  if (payload.idempotencyKey !== undefined)
    return {
      callId:
        rules.independent === true ? name('key', payload.idempotencyKey, params) : name('key', payload.idempotencyKey),
    };
  if (!rules.derive) return { callId: name('request', request), ...loop };
  if (rules.derivedReplay === 'always') return { callId: name('params', params) };
  return { callId: name('request', request, params), mergeId: name('params', params), ...loop };
}

/** The part of an envelope that names its request. */
export type RequestNaming = Pick<ToolCallEnvelope, 'toolCallId' | 'requestId' | 'target' | 'control'>;

/**
 * What tells requests apart that have no key. A model's ID of a call counts within one turn of one session: many model servers number the
 * calls of each answer from the start.
 */
export function requestNameOf(asked: RequestNaming): string {
  const { toolCallId, requestId, target } = asked;
  if (toolCallId === undefined) return requestId;
  return canonicalJson([target.sessionKey, target.actorId, turnOf(asked) ?? null, toolCallId]);
}

/**
 * Whether a request without a key may have been merged into another one's call: the ID of each says what it asks for, and neither can be
 * made for anything else. `request` names the one that asks (`requestNameOf`).
 */
export function isMerged(
  callId: string,
  request: string,
  leading: { readonly callId: string; readonly envelope: ToolCallEnvelope; readonly paramsDigest: string },
): boolean {
  const partition = placeOf(callId);
  if (partition === undefined) return false;
  const idOf = (name: string, scope: IdentityRules['scope']) =>
    identify(
      leading.envelope,
      leading.paramsDigest,
      { ...partition, scope, derive: true, derivedReplay: 'same-request' },
      name,
    ).callId;
  return (['session', 'global'] as const).some(
    (scope) => idOf(requestNameOf(leading.envelope), scope) === leading.callId && idOf(request, scope) === callId,
  );
}

const TIER_LETTERS: Readonly<Record<Tier, string>> = { 'read-only': 'r', workspace: 'w', system: 's', elevated: 'e' };
const CALL_ID = /^([rwse])(\d{1,4})\.[A-Za-z0-9_-]{43}$/;

/** A call's ID starts with its place, tier letter and shard, so that whoever holds one finds the record. */
function callIdOf(partition: { readonly tier: Tier; readonly shard: number }, fingerprint: string): string {
  return `${TIER_LETTERS[partition.tier]}${partition.shard}.${fingerprint}`;
}

/** Where a call's record lives; undefined when the text is no call ID. */
export function placeOf(callId: string): { readonly tier: Tier; readonly shard: number } | undefined {
  const match = CALL_ID.exec(callId);
  if (match === null) return undefined;
  const tier = (Object.keys(TIER_LETTERS) as Tier[]).find((candidate) => TIER_LETTERS[candidate] === match[1]);
  return tier === undefined ? undefined : { tier, shard: Number(match[2]) };
}

/** The same for what has to be a call's ID. Throws `UNKNOWN_CALL`. */
export function partitionFor(callId: string): { readonly tier: Tier; readonly shard: number } {
  const partition = placeOf(callId);
  if (partition === undefined) throw new PawlError('UNKNOWN_CALL', `${JSON.stringify(callId)} is not a call ID.`);
  return partition;
}
