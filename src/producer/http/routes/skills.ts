/** `/v1/skills`: instructions for planners, and the tools that go with them. */
import { z } from 'zod';
import { skillSchema } from '../../../shared/sessions/skill.ts';
import type { Pawl } from '../../client.ts';
import { type Route, route } from '../core/route.ts';

export function skillRoutes(pawl: Pawl): readonly Route[] {
  return [listSkills(pawl), getSkill(pawl), writeSkill(pawl), removeSkill(pawl)];
}

function listSkills({ skills }: Pawl): Route {
  return route('get /v1/skills', {
    operationId: 'listSkills',
    permission: 'use',
    summary: 'Skills, the highest priority first; with `?task=`, those that its words trigger.',
    query: z.strictObject({ task: z.string().min(1).max(20_000).optional() }),
    responses: { 200: ['Skills', 'SkillList'] },
    answer: async ({ query: { task } }) => ({
      skills: await (task === undefined ? skills.list() : skills.triggeredBy(task)),
    }),
  });
}

function getSkill({ skills }: Pawl): Route {
  return route('get /v1/skills/{name}', {
    operationId: 'getSkill',
    permission: 'use',
    summary: 'One skill.',
    responses: { 200: ['The skill', 'Skill'] },
    answer: ({ path }) => skills.show(path['name'] ?? ''),
  });
}

function writeSkill({ skills }: Pawl): Route {
  return route('put /v1/skills/{name}', {
    operationId: 'writeSkill',
    permission: 'administer',
    summary: 'Writes the record of a skill. Open sessions keep their copy.',
    body: skillSchema,
    responses: { 200: ['The skill', 'Skill'] },
    answer: ({ path, body, caller }) => skills.put(path['name'] ?? '', body, caller.id),
  });
}

function removeSkill({ skills }: Pawl): Route {
  return route('delete /v1/skills/{name}', {
    operationId: 'removeSkill',
    permission: 'administer',
    summary: 'Removes the record of a skill.',
    responses: { 204: 'Removed' },
    async handle({ path, caller }) {
      await skills.remove(path['name'] ?? '', caller.id);
      return { status: 204 };
    },
  });
}
