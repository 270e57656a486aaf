/**
 * How much a call matters when not all can be taken (I20). A tier takes calls up to a number in flight; the less a call matters, the
 * sooner that number is reached for it, and the fewer turns it has among those that wait.
 */
import { contractInvalid, type ToolCallEnvelope } from '../calls/envelope.ts';
import { PawlError } from '../errors/failure.ts';

/** From the most to the least important. */
export const IMPORTANCES = ['critical', 'normal', 'background'] as const;
export type Priority = (typeof IMPORTANCES)[number];

const TAG = 'importance:';
/** Of what a tier takes. */
const SHARES: Readonly<Record<Priority, number>> = { critical: 1, normal: 0.9, background: 0.5 };
/** Turns while a normal call has one. Never none: what matters little waits longer, not for ever. */
const TURNS: Readonly<Record<Priority, number>> = { critical: 4, normal: 1, background: 1 / 8 };
const AGAIN_MS: Readonly<Record<Priority, number>> = { critical: 1_000, normal: 2_000, background: 10_000 };

/**
 * The tag `importance:background` says it for a call, `safetyCritical` among its hints makes it critical, and else its session says it.
 * Throws `CONTRACT_INVALID` for a class that does not exist.
 */
export function importanceOf(
  { control, payload }: ToolCallEnvelope,
  session: { readonly importance?: Priority | undefined },
): Priority {
  const tag = control.requestTags?.find((each) => each.startsWith(TAG))?.slice(TAG.length);
  if (tag === undefined)
    return payload.callHints?.safetyCritical === true ? 'critical' : (session.importance ?? 'normal');
  const named = IMPORTANCES.find((importance) => importance === tag);
  if (named !== undefined) return named;
  const message = `${TAG}${tag} is no importance; there are ${IMPORTANCES.join(', ')}`;
  throw contractInvalid([{ path: 'control.requestTags', message }]);
}

/** How many calls may be in flight in a tier for one more of this importance to be taken. */
export function roomFor(importance: Priority, maxInflight: number): number {
  return Math.max(1, Math.floor(maxInflight * SHARES[importance]));
}

/**
 * The line in which a call waits when its tier is busy: one for each tenant and importance. Lines take turns by weight, and in a line
 * its sessions do (`enqueue-fair.lua` reads the weight, which comes first).
 */
export function lineOf(importance: Priority, tenantId: string | undefined, tenantWeight: number): string {
  return `${TURNS[importance] * tenantWeight} ${importance} ${tenantId ?? ''}`;
}

/** `shards`: among which new sessions of the tier are spread; each has its part of the room. */
export function overloaded(
  { tier, shard, shards }: { readonly tier: string; readonly shard: number; readonly shards: number },
  importance: Priority,
  inflight: number,
): PawlError {
  const retryAfterMs = AGAIN_MS[importance];
  const where =
    shards === 1
      ? `The tier ${tier}`
      : `Shard ${shard} of the tier ${tier}, one of ${shards} with its part of the room,`;
  return new PawlError(
    'OVERLOADED',
    `${where} has ${inflight} calls in flight and takes no more of importance ${importance}; ` +
      `try again in ${retryAfterMs / 1_000} s.`,
    { details: { retryAfterMs, inflight, importance } },
  );
}
