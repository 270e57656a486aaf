/** `/healthz`, `/readyz` and `/metrics`: for whoever watches this process. The first two need no token. */
import type { Express } from 'express';
import type { Redis } from '../../shared/store/redis.ts';
import { refuseMethod } from './routes.ts';

/** A Redis that answers later than this is out of reach for a caller. */
const PING_LIMIT_MS = 1_000;

export interface HealthOptions {
  readonly redis: Pick<Redis, 'ping' | 'status'>;
  isDraining(): boolean;
  /** What belongs to this server, its workers say, is not there yet. */
  isStarting(): boolean;
}

export function mountHealth(app: Express, { redis, isDraining, isStarting }: HealthOptions): void {
  app
    .route('/healthz')
    .get((_request, response) => void response.json({ status: 'ok' }))
    .all(refuseMethod(['GET', 'HEAD']));
  app
    .route('/readyz')
    .get(async (_request, response) => {
      const reason = isDraining() ? 'draining' : isStarting() ? 'starting' : await whyRedisIsOut(redis);
      if (reason === undefined) response.json({ status: 'ready' });
      else response.status(503).set('Retry-After', '1').json({ status: 'not ready', reason });
    })
    .all(refuseMethod(['GET', 'HEAD']));
}

async function whyRedisIsOut(redis: HealthOptions['redis']): Promise<string | undefined> {
  return (await answersInTime(redis)) ? undefined : 'redis out of reach';
}

async function answersInTime(redis: HealthOptions['redis']): Promise<boolean> {
  if (redis.status !== 'ready') return false;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), PING_LIMIT_MS);
  });
  try {
    return await Promise.race([redis.ping().then(() => true), late]);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}
