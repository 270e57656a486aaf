/** `/v1/me` and `/v1/workers`: who asks, and who runs the calls. */
import { readTierStates } from '../../shared/store/place-state.ts';
import { TIERS } from '../../shared/tool.ts';
import type { Pawl } from '../client.ts';
import { permissionsOf } from './access.ts';
import { nameOf } from './approvals.ts';
import { type Route, route } from './routes.ts';

export function fleetRoutes(pawl: Pawl): readonly Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/me',
      permission: 'read',
      summary: 'Who asks: the role of the token, and what it may do.',
      answers: { 200: 'The role, the tenant if the token has one, and the permissions' },
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
    }),
    route({
      method: 'get',
      path: '/v1/workers',
      permission: 'oversee',
      summary: 'Workers that live, and how much each tier has to do.',
      answers: { 200: 'Workers and tiers' },
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
    }),
    route({
      method: 'post',
      path: '/v1/workers/{id}/drain',
      permission: 'oversee',
      summary: 'Asks a worker to take no further calls, finish those that it runs, and end.',
      answers: { 202: 'The worker was asked' },
      async handle({ path, caller }) {
        const id = path['id'] ?? '';
        await pawl.drainWorker(id, nameOf(caller));
        return { status: 202, body: { id, asked: 'drain' } };
      },
    }),
  ];
}
