/** All routes of the API, in the order in which the OpenAPI document lists them. */
import type { Pawl } from '../client.ts';
import type { FleetView } from '../fleet-view.ts';
import { agentRoutes } from './agents.ts';
import { approvalRoutes } from './approvals.ts';
import { auditRoutes } from './audit.ts';
import { callRoutes } from './calls.ts';
import { circuitRoutes } from './circuits.ts';
import { eventRoutes, type Streams } from './events.ts';
import { fleetRoutes } from './fleet.ts';
import { metricsRoute } from './metrics.ts';
import { openApiRoute } from './openapi.ts';
import { questionRoutes } from './questions.ts';
import { registryRoutes } from './registry.ts';
import { rememberedRoutes } from './remembered.ts';
import type { Route } from './routes.ts';
import { sessionRoutes } from './sessions.ts';
import { skillRoutes } from './skills.ts';
import { toolClientRoutes } from './tool-clients.ts';
import { toolRoutes } from './tools.ts';
import type { Waits } from './waits.ts';

/** What routes are made of. */
export interface ApiParts {
  readonly pawl: Pawl;
  readonly waits: Waits;
  readonly fleet: FleetView;
  /** Shown in the OpenAPI document. */
  readonly version: string;
  readonly streams: Streams;
  /** Throws `BACKEND_UNAVAILABLE` or `RATE_LIMITED` while no further call may be handed in. */
  checkAccepting(): Promise<void>;
}

export function apiRoutes(parts: ApiParts): readonly Route[] {
  const { pawl, fleet, version } = parts;
  const routes: readonly Route[] = [
    ...sessionRoutes(pawl),
    ...agentRoutes(parts),
    ...callRoutes(parts),
    ...eventRoutes(parts),
    ...approvalRoutes(parts),
    ...rememberedRoutes(pawl),
    ...questionRoutes(parts),
    ...toolRoutes(pawl),
    ...registryRoutes(pawl),
    ...toolClientRoutes(parts),
    ...skillRoutes(pawl),
    ...circuitRoutes(pawl),
    ...fleetRoutes(pawl),
    ...auditRoutes(pawl),
    metricsRoute(fleet),
    openApiRoute(() => routes, version),
  ];
  return routes;
}
