/**
 * The priority of a call when a tier is busy. A tier admits calls up to a number in flight. That number is smaller for a lower priority,
 * and calls of a lower priority are served less often.
 */
import { contractInvalid, type ToolCallEnvelope } from '../calls/envelope.ts';
import { PawlError } from '../errors/failure.ts';
import { PRIORITIES, type Priority } from './priority-names.ts';

const TAG = 'importance:';
/** The share of a tier's admission limit. */
const SHARES: Readonly<Record<Priority, number>> = { critical: 1, normal: 0.9, background: 0.5 };
/** The calls that start for each normal one. Never 0, so that calls of low priority are delayed and not starved. */
const WEIGHTS: Readonly<Record<Priority, number>> = { critical: 4, normal: 1, background: 1 / 8 };
const RETRY_AFTER_MS: Readonly<Record<Priority, number>> = { critical: 1_000, normal: 2_000, background: 10_000 };

/**
 * The priority of a call: its tag `importance:…`, else `critical` with the hint `safetyCritical`, else that of its session. Throws
 * `CONTRACT_INVALID` for an unknown class.
 */
export function priorityOf(
  { control, payload }: ToolCallEnvelope,
  session: { readonly importance?: Priority | undefined },
): Priority {
  const tag = control.requestTags?.find((candidate) => candidate.startsWith(TAG))?.slice(TAG.length);
  if (tag === undefined)
    return payload.callHints?.safetyCritical === true ? 'critical' : (session.importance ?? 'normal');
  const priority = PRIORITIES.find((candidate) => candidate === tag);
  if (priority !== undefined) return priority;
  const message = `${TAG}${tag} is unknown; expected one of ${PRIORITIES.join(', ')}`;
  throw contractInvalid([{ path: 'control.requestTags', message }]);
}

/** The number of calls in flight in a tier below which one more of this priority is admitted. */
export function admittedInflight(priority: Priority, maxInflight: number): number {
  return Math.max(1, Math.floor(maxInflight * SHARES[priority]));
}

/**
 * The fair queue in which a call waits while its tier is busy: one for each tenant and priority. Queues are served by weight, and the
 * sessions within a queue in rotation. `enqueue-fair.lua` reads the weight, so it comes first.
 */
export function queueNameOf(priority: Priority, tenantId: string | undefined, tenantWeight: number): string {
  return `${WEIGHTS[priority] * tenantWeight} ${priority} ${tenantId ?? ''}`;
}

/** The failure of a call that its tier does not admit. `shards` is the number of shards of the tier; each has its share of the limit. */
export function overloaded(
  { tier, shard, shards }: { readonly tier: string; readonly shard: number; readonly shards: number },
  priority: Priority,
  inflight: number,
): PawlError {
  const retryAfterMs = RETRY_AFTER_MS[priority];
  const subject =
    shards === 1
      ? `The tier ${tier}`
      : `Shard ${shard} of the tier ${tier}, one of ${shards} with its share of the limit,`;
  return new PawlError(
    'OVERLOADED',
    `${subject} has ${inflight} calls in flight and takes no more of importance ${priority}; ` +
      `try again in ${retryAfterMs / 1_000} s.`,
    { details: { retryAfterMs, inflight, importance: priority } },
  );
}
