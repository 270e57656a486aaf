/**
 * Broadcasts to all processes: changes of circuits, sessions, tools and switches, calls to cancel. Pub/sub stores nothing, so a listener
 * reads the records again after a gap.
 */
import type { Circuit } from '../../circuits/circuit-breaker.ts';
import type { Redis } from './connection.ts';
import type { Partition } from './keys.ts';
import { Subscription, type SubscriptionOptions } from './subscription.ts';

export type Broadcast =
  /** A circuit has changed. A probe may run `retryAfterMs` after the change. */
  | {
      readonly type: 'circuit';
      readonly partition: Partition;
      readonly key: string;
      readonly circuit: Circuit;
      readonly retryAfterMs: number;
    }
  | { readonly type: 'cancel'; readonly callId: string; readonly because: string }
  | { readonly type: 'session'; readonly sessionKey: string }
  /** The session has seen text from outside. */
  | { readonly type: 'taint'; readonly sessionKey: string }
  /** A sub-agent of the session received a message, or replied. */
  | { readonly type: 'agent'; readonly sessionKey: string; readonly agentId: string }
  /** A session below this one sent arguments that stayed invalid; `from` is the process that reports it, `event` is signed. */
  | { readonly type: 'invalid-params'; readonly sessionKey: string; readonly from: string; readonly event: string }
  /** A question to people has ended. */
  | { readonly type: 'question'; readonly id: string }
  /** A batch or a plan was changed by another process than its driver, or is over. */
  | { readonly type: 'group'; readonly id: string }
  | { readonly type: 'callback' }
  /** A worker should finish what it runs, and end. */
  | { readonly type: 'drain'; readonly workerId: string }
  | { readonly type: 'catalogue' }
  | { readonly type: 'switches' }
  /** Tiers have more or fewer shards. */
  | { readonly type: 'shards' }
  | { readonly type: 'specs' }
  /** A call of the tool waits for a client, or a client's call is cancelled. */
  | { readonly type: 'offered'; readonly tool: string }
  /** A client reported progress or a result of a call, or released it. */
  | { readonly type: 'handover'; readonly callId: string };

/** The effects of broadcasts on a process, by their type. A process ignores those that do not concern it. */
export type BroadcastHandlers = {
  readonly [Type in Broadcast['type']]?: (broadcast: Extract<Broadcast, { type: Type }>) => void;
};

export function handleBroadcast(handlers: BroadcastHandlers, broadcast: Broadcast): void {
  if (Object.hasOwn(handlers, broadcast.type)) handlers[broadcast.type]?.(broadcast as never);
}

export type CircuitBroadcast = Extract<Broadcast, { type: 'circuit' }>;

/** The channel of a fleet's broadcasts. All databases of a Redis share channels, so its name contains the database. */
export function broadcastChannel(redis: Redis, prefix: string): string {
  const { db = 0 } = redis.options;
  return db === 0 ? `${prefix}:news` : `${prefix}:news:${db}`;
}

interface BroadcastOptions extends Omit<SubscriptionOptions, 'channels' | 'node' | 'onMessage'> {
  /** The connection and prefix of the fleet whose broadcasts are received. */
  readonly redis: Redis;
  readonly prefix: string;
  onBroadcast(broadcast: Broadcast): void;
}

/** Receives a fleet's broadcasts. After each `onSubscribed`, read the records again: broadcasts may have been missed. */
export function receiveBroadcasts({ redis, prefix, name, onBroadcast, ...options }: BroadcastOptions): Subscription {
  return Subscription.open({
    ...options,
    name: `${prefix}:news:${name}`,
    channels: () => [broadcastChannel(redis, prefix)],
    onMessage: (text) => onBroadcast(JSON.parse(text) as Broadcast),
  });
}

export async function publishBroadcast(redis: Redis, prefix: string, broadcast: Broadcast): Promise<void> {
  await redis.publish(broadcastChannel(redis, prefix), JSON.stringify(broadcast));
}
