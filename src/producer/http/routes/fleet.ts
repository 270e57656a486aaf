/** `/v1/me`, `/v1/workers` and `/v1/shards`: the caller, the workers, and the shards of the tiers. */
import { z } from 'zod';
import { PawlError } from '../../../shared/errors/failure.ts';
import { shardCountSchema } from '../../../shared/queues/shards.ts';
import { readTierStates } from '../../../shared/store/queues/shard-state.ts';
import { TIERS } from '../../../shared/tools/tool.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { permissionsOf } from '../core/access.ts';
import { type Route, route } from '../core/route.ts';
import { callerName } from './approvals.ts';

export const fleetRoutes: readonly Route[] = [
  route('get /v1/me', {
    operationId: 'getCaller',
    permission: 'read',
    summary: 'The caller: the role of its token, and its permissions.',
    responses: { 200: ['The role, the tenant if the token has one, and the permissions', 'Caller'] },
    answer({ pawl, caller }) {
      const { role, tenantId } = caller;
      return defined({ role, tenantId, permissions: permissionsOf(caller), traceUrl: pawl.settings.traceUrl });
    },
  }),
  route('get /v1/workers', {
    operationId: 'getFleet',
    permission: 'oversee',
    summary: 'Live workers, and the load of each tier.',
    responses: { 200: ['Workers and tiers', 'Fleet'] },
    async answer({ pawl: { backend } }) {
      const [{ workers }, states] = await Promise.all([
        backend.catalogue.read(),
        readTierStates(backend.redis, backend.prefix, backend.shards),
      ]);
      const tiers = TIERS.map((tier, index) => {
        const tierWorkers = workers.filter((worker) => worker.tiers.includes(tier));
        return {
          tier,
          workers: tierWorkers.length,
          slots: tierWorkers.reduce((sum, { concurrency }) => sum + concurrency, 0),
          ...states[index],
        };
      });
      return { workers, tiers };
    },
  }),
  route('get /v1/shards', {
    operationId: 'listShards',
    permission: 'oversee',
    summary: 'The shards of each tier, and their state.',
    responses: { 200: ['Shards', 'ShardList'] },
    answer: async ({ pawl }) => ({ shards: await pawl.shards.list() }),
  }),
  route('put /v1/shards/{tier}', {
    operationId: 'setShards',
    permission: 'administer',
    summary: 'Sets the number of shards for sessions that are opened from now on. Other sessions stay in their shards.',
    body: z.strictObject({ shards: shardCountSchema }),
    responses: { 200: ['The shards of the tier', 'ShardList'] },
    async answer({ pawl, path, body, caller }) {
      const tier = TIERS.find((each) => each === path.tier);
      if (tier === undefined)
        throw new PawlError('NOT_FOUND', `There is no tier of that name; tiers are ${TIERS.join(', ')}.`);
      await pawl.shards.set(tier, body.shards, callerName(caller));
      return { shards: (await pawl.shards.list()).filter((shard) => shard.tier === tier) };
    },
  }),
  route('post /v1/workers/{id}/drain', {
    operationId: 'drainWorker',
    permission: 'oversee',
    summary: 'Asks a worker to accept no further calls, finish its running ones, and end.',
    responses: { 202: ['The worker was asked', 'Drain'] },
    async answer({ pawl, path: { id }, caller }) {
      await pawl.workers.drain(id, callerName(caller));
      return { id, asked: 'drain' };
    },
  }),
];

export const metricsRoute = route('get /metrics', {
  operationId: 'getMetrics',
  permission: 'oversee',
  summary: "The whole fleet's metrics, at most 10 s old, in Prometheus' text format.",
  responses: { 200: ['Metrics', 'text/plain'] },
  async handle({ fleet }) {
    const { contentType, text } = await fleet.text('fleet');
    return { status: 200, body: text, headers: { 'Content-Type': contentType } };
  },
});
