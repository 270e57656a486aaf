/** `/v1/schedules`: calls that are made again and again. */
import { z } from 'zod';
import { contractInvalid, jsonObjectSchema } from '../../../shared/calls/envelope.ts';
import { ignoreCode } from '../../../shared/errors/failure.ts';
import { invalidSchedule, scheduleSchema } from '../../../shared/schedules/schedule.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../../shared/util/text/quote-value.ts';
import type { Pawl } from '../../client.ts';
import type { PutSchedule, ScheduleOptions } from '../../schedules/schedule-service.ts';
import { type Caller, seesTenant } from '../core/access.ts';
import { type Route, route } from '../core/route.ts';
import { callerName, submitterOf } from './approvals.ts';
import { findOrOpenSession, sessionFor } from './sessions.ts';

const actionSchema = z.strictObject({
  action: z.enum(['pause', 'resume', 'run']),
  reason: z.string().min(1).max(1_000).optional(),
});

export const scheduleRoutes: readonly Route[] = [
  route('put /v1/schedules/{id}', {
    operationId: 'putSchedule',
    permission: 'use',
    summary: 'Writes or replaces a schedule: a call that is repeated at an interval or by a cron expression.',
    // The service checks the body, together with the ID.
    body: jsonObjectSchema,
    bodySchema: z.toJSONSchema(scheduleSchema, { io: 'input', unrepresentable: 'any' }),
    responses: { 200: ['The schedule was replaced', 'Schedule'], 201: ['The schedule is new', 'Schedule'] },
    async handle({ pawl, path, body, caller }) {
      const { id } = path;
      const { session, id: bodyId = id } = body;
      const message = `must be that of the path, ${JSON.stringify(id)}, or left out`;
      if (bodyId !== id) throw contractInvalid([{ path: 'id', message }]);
      const request = { ...body, id } as unknown as PutSchedule;
      // Programs may give a session itself; a request that did so would get past the check of its tenant.
      if (typeof session === 'object' && session !== null)
        throw invalidSchedule([{ path: 'session', message: `must be a text; got ${quoteValue(session)}` }]);
      // Another tenant's session is refused before any other field is checked.
      if (typeof session === 'string') await openFor(pawl, caller, session, request);
      const schedule = await pawl.schedules.put(request, optionsFor(caller));
      if (schedule.revision > 1) return { status: 200, body: schedule };
      return { status: 201, headers: { Location: `/v1/schedules/${encodeURIComponent(id)}` }, body: schedule };
    },
  }),
  route('get /v1/schedules', {
    operationId: 'listSchedules',
    permission: 'use',
    summary: 'Schedules, by ID.',
    responses: { 200: ['Schedules', 'ScheduleList'] },
    answer: async ({ pawl, caller }) => ({ schedules: await pawl.schedules.list(optionsFor(caller)) }),
  }),
  route('get /v1/schedules/{id}', {
    operationId: 'getSchedule',
    permission: 'use',
    summary: 'One schedule, with its next five times and its latest occurrences.',
    responses: { 200: ['The schedule', 'Schedule'] },
    answer: ({ pawl, path, caller }) => pawl.schedules.get(path.id, optionsFor(caller)),
  }),
  route('post /v1/schedules/{id}', {
    operationId: 'changeSchedule',
    permission: 'use',
    summary: 'Pauses or resumes a schedule, or makes its call now.',
    body: actionSchema,
    responses: { 200: ['The schedule', 'ScheduleAction'] },
    async answer({ pawl, path, body, caller }) {
      const { action, reason } = body;
      return pawl.schedules[action](path.id, { ...optionsFor(caller), ...defined({ reason }) });
    },
  }),
  route('delete /v1/schedules/{id}', {
    operationId: 'removeSchedule',
    permission: 'use',
    summary: 'Removes a schedule. Calls that it made go on.',
    responses: { 204: 'Removed' },
    answer: ({ pawl, path, caller }) => pawl.schedules.remove(path.id, optionsFor(caller)),
  }),
];

function optionsFor(caller: Caller): ScheduleOptions {
  return { by: callerName(caller), ...submitterOf(caller), seesTenant: (tenantId) => seesTenant(caller, tenantId) };
}

/** Opens a session that is not there, as for a call. The schedule is checked first, so that an invalid one opens none. */
async function openFor(pawl: Pawl, caller: Caller, sessionKey: string, schedule: PutSchedule): Promise<void> {
  if ((await sessionFor(pawl, caller, sessionKey).catch(ignoreCode('UNKNOWN_SESSION'))) !== undefined) return;
  const draft = () => pawl.sessions.draft(defined({ sessionKey, tenantId: caller.tenantId }));
  await pawl.schedules.check(schedule, draft, optionsFor(caller));
  await findOrOpenSession(pawl, caller, { sessionKey });
}
