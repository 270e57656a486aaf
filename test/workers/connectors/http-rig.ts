/** A fleet with one connector to a service of the test's own. */
import type { Session } from '../../../src/producer/sessions/session.ts';
import type { DeclaredTool } from '../../../src/shared/connectors/declared-tool.ts';
import { type FleetOptions, startFleet } from '../../helpers/fleet.ts';
import type { TestService } from './service.ts';

export type Routing = Extract<DeclaredTool, { kind: 'http' }>['routing'];

export const SECRET = 'swordfish-0123456789';

/** A fleet whose registry has one connector, `ask`. */
export async function connect(
  service: TestService,
  routing: Partial<Routing>,
  options: { readonly spec?: object; readonly fleet?: Partial<FleetOptions> } = {},
): Promise<{ readonly session: Session; readonly fleet: Awaited<ReturnType<typeof startFleet>> }> {
  const { settings, ...more } = options.fleet ?? {};
  const fleet = await startFleet({
    tools: [],
    environment: { PAWL_SECRET_API: SECRET, OTHER_SECRET: 'x' },
    ...more,
    settings: { allowedHosts: [service.host], ...settings },
  });
  await fleet.pawl.registry.put('ask', {
    kind: 'http',
    version: '1.0.0',
    description: 'Asks the service.',
    inputSchema: { type: 'object' },
    routing: { method: 'GET', url: `${service.url}/things/{id}`, ...routing },
    ...options.spec,
  } as DeclaredTool);
  return { session: fleet.session, fleet };
}
