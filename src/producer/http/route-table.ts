/** All routes of the API, in the order in which the OpenAPI document lists them. */
import { openApiRoute } from './core/openapi.ts';
import type { Route } from './core/route.ts';
import { agentRoutes } from './routes/agents.ts';
import { approvalRoutes } from './routes/approvals.ts';
import { auditRoutes } from './routes/audit.ts';
import { batchRoutes } from './routes/batches.ts';
import { callbackRoutes } from './routes/callbacks.ts';
import { callRoutes } from './routes/calls.ts';
import { circuitRoutes } from './routes/circuits.ts';
import { completionRoutes } from './routes/completions.ts';
import { createCall } from './routes/create-call.ts';
import { deadLetterRoutes } from './routes/dead-letters.ts';
import { eventRoutes } from './routes/events.ts';
import { fleetRoutes, metricsRoute } from './routes/fleet.ts';
import { planRoutes } from './routes/plans.ts';
import { questionRoutes } from './routes/questions.ts';
import { registryRoutes } from './routes/registry.ts';
import { scheduleRoutes } from './routes/schedules.ts';
import { sessionRoutes } from './routes/sessions.ts';
import { skillRoutes } from './routes/skills.ts';
import { standingApprovalRoutes } from './routes/standing-approvals.ts';
import { toolClientRoutes } from './routes/tool-clients.ts';
import { toolRoutes } from './routes/tools.ts';

export const ROUTES: readonly Route[] = [
  ...sessionRoutes,
  ...agentRoutes,
  createCall,
  ...callRoutes,
  ...batchRoutes,
  ...completionRoutes,
  ...planRoutes,
  ...eventRoutes,
  ...deadLetterRoutes,
  ...scheduleRoutes,
  ...approvalRoutes,
  ...standingApprovalRoutes,
  ...questionRoutes,
  ...toolRoutes,
  ...registryRoutes,
  ...toolClientRoutes,
  ...skillRoutes,
  ...circuitRoutes,
  ...fleetRoutes,
  ...callbackRoutes,
  ...auditRoutes,
  metricsRoute,
  openApiRoute(() => ROUTES),
];
