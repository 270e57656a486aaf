/** `/v1/me`, `/v1/workers` and `/v1/shards`: the caller, the workers, and the shards of the tiers. */
import { z } from 'zod';
import { PawlError } from '../../../shared/errors/failure.ts';
import { shardCountSchema } from '../../../shared/queues/shards.ts';
import { readTierStates } from '../../../shared/store/queues/shard-state.ts';
import { TIERS } from '../../../shared/tools/tool.ts';
import type { Pawl } from '../../client.ts';
import { permissionsOf } from '../core/access.ts';
import { type Route, route } from '../core/route.ts';
import { nameOf } from './approvals.ts';

export function fleetRoutes(pawl: Pawl): readonly Route[] {
  return [getCaller(pawl), getFleet(pawl), listShards(pawl), setShards(pawl), drainWorker(pawl)];
}

function getCaller(pawl: Pawl): Route {
  return route('get /v1/me', {
    operationId: 'getCaller',
    permission: 'read',
    summary: 'Who asks: the role of the token, and what it may do.',
    responses: { 200: ['The role, the tenant if the token has one, and the permissions', 'Caller'] },
    handle({ caller }) {
      const { role, tenantId } = caller;
      const { traceUrl } = pawl.settings;
      return {
        status: 200,
        body: {
          role,
          ...(tenantId === undefined ? {} : { tenantId }),
          permissions: permissionsOf(caller),
          ...(traceUrl === undefined ? {} : { traceUrl }),
        },
      };
    },
  });
}

function getFleet(pawl: Pawl): Route {
  return route('get /v1/workers', {
    operationId: 'getFleet',
    permission: 'oversee',
    summary: 'Workers that live, and how much each tier has to do.',
    responses: { 200: ['Workers and tiers', 'Fleet'] },
    async handle() {
      const { backend } = pawl;
      const [{ workers }, states] = await Promise.all([
        backend.catalogue.read(),
        readTierStates(backend.redis, backend.prefix, backend.shards),
      ]);
      const tiers = TIERS.map((tier, index) => {
        const here = workers.filter((worker) => worker.tiers.includes(tier));
        return {
          tier,
          workers: here.length,
          slots: here.reduce((sum, { concurrency }) => sum + concurrency, 0),
          ...states[index],
        };
      });
      return { status: 200, body: { workers, tiers } };
    },
  });
}

function listShards(pawl: Pawl): Route {
  return route('get /v1/shards', {
    operationId: 'listShards',
    permission: 'oversee',
    summary: 'The shards of each tier, and how they stand.',
    responses: { 200: ['Shards', 'ShardList'] },
    answer: async () => ({ shards: await pawl.shards.list() }),
  });
}

function setShards(pawl: Pawl): Route {
  return route('put /v1/shards/{tier}', {
    operationId: 'setShards',
    permission: 'administer',
    summary: 'Spreads the sessions that are opened from now on among so many shards; all others stay where they are.',
    body: z.strictObject({ shards: shardCountSchema }),
    responses: { 200: ['The shards of the tier', 'ShardList'] },
    async answer({ path, body, caller }) {
      const tier = TIERS.find((each) => each === path['tier']);
      if (tier === undefined)
        throw new PawlError('NOT_FOUND', `There is no tier of that name; tiers are ${TIERS.join(', ')}.`);
      await pawl.shards.set(tier, body.shards, nameOf(caller));
      return { shards: (await pawl.shards.list()).filter((shard) => shard.tier === tier) };
    },
  });
}

function drainWorker(pawl: Pawl): Route {
  return route('post /v1/workers/{id}/drain', {
    operationId: 'drainWorker',
    permission: 'oversee',
    summary: 'Asks a worker to take no further calls, finish those that it runs, and end.',
    responses: { 202: ['The worker was asked', 'Drain'] },
    async handle({ path, caller }) {
      const id = path['id'] ?? '';
      await pawl.workers.drain(id, nameOf(caller));
      return { status: 202, body: { id, asked: 'drain' } };
    },
  });
}
