/** `/v1/skills`: instructions for planners, and the tools that go with them. */
import { z } from 'zod';
import { skillSchema } from '../../../shared/sessions/skill.ts';
import { type Route, route } from '../core/route.ts';
import { callerName } from './approvals.ts';

export const skillRoutes: readonly Route[] = [
  route('get /v1/skills', {
    operationId: 'listSkills',
    permission: 'use',
    summary: 'Skills, the highest priority first; with `?task=`, those that its words trigger.',
    query: z.strictObject({ task: z.string().min(1).max(20_000).optional() }),
    responses: { 200: ['Skills', 'SkillList'] },
    answer: async ({ pawl, query: { task } }) => ({
      skills: await (task === undefined ? pawl.skills.list() : pawl.skills.triggeredBy(task)),
    }),
  }),
  route('get /v1/skills/{name}', {
    operationId: 'getSkill',
    permission: 'use',
    summary: 'One skill.',
    responses: { 200: ['The skill', 'Skill'] },
    answer: ({ pawl, path }) => pawl.skills.show(path.name),
  }),
  route('put /v1/skills/{name}', {
    operationId: 'writeSkill',
    permission: 'administer',
    summary: 'Writes the record of a skill. Open sessions keep their copy.',
    body: skillSchema,
    responses: { 200: ['The skill', 'Skill'] },
    answer: ({ pawl, path, body, caller }) => pawl.skills.put(path.name, body, callerName(caller)),
  }),
  route('delete /v1/skills/{name}', {
    operationId: 'removeSkill',
    permission: 'administer',
    summary: 'Removes the record of a skill.',
    responses: { 204: 'Removed' },
    answer: ({ pawl, path, caller }) => pawl.skills.remove(path.name, callerName(caller)),
  }),
];
