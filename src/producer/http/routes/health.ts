/** `/healthz` and `/readyz`, for the supervisor of this process. They need no token. */
import type { Express } from 'express';
import type { Redis } from '../../../shared/store/redis/connection.ts';
import { FleetKeys } from '../../../shared/store/redis/keys.ts';
import { withinMs } from '../../../shared/util/wait.ts';
import { redisRefusalReason } from '../core/errors.ts';
import { refuseMethod } from '../core/route.ts';

/** A Redis that takes longer than this counts as out of reach. */
const PING_LIMIT_MS = 1_000;
const TRIAL_TTL_MS = 1_000;

export interface HealthOptions {
  readonly redis: Pick<Redis, 'set' | 'status'>;
  /** The prefix of the fleet's keys in Redis. */
  readonly prefix: string;
  isDraining(): boolean;
  /** Parts of this server, such as its workers, are still starting. */
  isStarting(): boolean;
}

export function mountHealth(app: Express, { redis, prefix, isDraining, isStarting }: HealthOptions): void {
  app
    .route('/healthz')
    .get((_request, response) => void response.json({ status: 'ok' }))
    .all(refuseMethod(['GET', 'HEAD']));
  app
    .route('/readyz')
    .get(async (_request, response) => {
      const reason = isDraining() ? 'draining' : isStarting() ? 'starting' : await redisOutageReason(redis, prefix);
      if (reason === undefined) response.json({ status: 'ready' });
      else response.status(503).set('Retry-After', '1').json({ status: 'not ready', reason });
    })
    .all(refuseMethod(['GET', 'HEAD']));
}

const OUT_OF_REACH = 'redis out of reach';

/** The reason for which Redis takes no calls. A reachable Redis may still refuse writes. */
async function redisOutageReason(redis: HealthOptions['redis'], prefix: string): Promise<string | undefined> {
  if (redis.status !== 'ready') return OUT_OF_REACH;
  try {
    const write = redis.set(new FleetKeys(prefix).trial, '1', 'PX', TRIAL_TTL_MS);
    return (await withinMs(write, PING_LIMIT_MS)) === undefined ? OUT_OF_REACH : undefined;
  } catch (error) {
    return redisRefusalReason(error) ?? OUT_OF_REACH;
  }
}
