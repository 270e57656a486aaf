/** The response schemas of schedules. */
import { z } from 'zod';
import { OCCURRENCE_RESULTS } from '../../../shared/schedules/progress.ts';
import { MISSED_RULES, OVERLAPS } from '../../../shared/schedules/schedule-rules.ts';
import { atMs, count, json, text } from './call-schemas.ts';

const occurrence = z.object({
  at: text.describe('The time of the schedule, ISO 8601.'),
  result: z.enum(OCCURRENCE_RESULTS),
  callId: text.optional(),
  code: text.optional().describe('The failure code of a refusal.'),
  reason: text.optional(),
  times: count.optional().describe('How many occurrences were skipped or missed together. This is the last of them.'),
  more: z.literal(true).optional().describe('There were more than `times`.'),
});

const schedule = z.object({
  id: text,
  revision: count.describe('1 for a new schedule; each replacement adds 1.'),
  tool: text,
  namespace: text,
  params: json.describe('Without secrets.'),
  session: text,
  tenantId: text.optional(),
  every: z.union([text, z.number()]).optional(),
  cron: text.optional(),
  timezone: text.optional(),
  from: text.optional(),
  until: text.optional(),
  limit: count.optional(),
  overlap: z.enum(OVERLAPS),
  missed: z.enum(MISSED_RULES),
  state: z.enum(['active', 'paused', 'ended']),
  pausedAtMs: atMs.optional(),
  pausedBy: text.optional(),
  pauseReason: text.optional(),
  next: z.array(text).describe('The next five times, ISO 8601; none while it is paused.'),
  last: occurrence.optional().describe('The newest occurrence that was started or refused.'),
  recent: z.array(occurrence).describe('The newest first.'),
  waiting: count.describe('Occurrences that wait for the end of the call before them.'),
  counts: z.object({ started: count, skipped: count, missed: count, refused: count, unknown: count }),
  createdAtMs: atMs,
  updatedAtMs: atMs,
  updatedBy: text,
});

export const scheduleResponses = {
  Schedule: schedule,
  ScheduleList: z.object({ schedules: z.array(schedule) }),
  ScheduleAction: schedule.extend({ callId: text.optional().describe('The call of `run`.') }),
};
