import { expect, test } from 'vitest';
import { startRig, testTools } from '../rig.ts';

const TOKENS = [
  { token: 'the-agent-1', role: 'agent' as const },
  { token: 'the-admin-1', role: 'admin' as const },
];

test('/v1/skills: an admin writes them, an agent reads them and opens sessions with them (I6)', async () => {
  const { ask, call } = await startRig({ ...testTools(), settings: { apiTokens: TOKENS } });
  const put = (name: string, json: object, token = 'the-admin-1') =>
    ask(`/v1/skills/${name}`, { method: 'PUT', json, token });
  const skill = { description: 'Says things.', allowedTools: ['echo'], triggers: ['say'], priority: 3 };
  expect((await put('speech', skill, 'the-agent-1')).status).toBe(403);
  expect(await put('speech', skill)).toMatchObject({
    status: 200,
    body: { name: 'speech', source: 'registry', updatedBy: expect.stringMatching(/^admin:/) },
  });
  expect((await put('speech', { ...skill, priority: 'high' })).body.error.issues[0].path).toBe('priority');
  await put('silence', { description: 'Says nothing.' });
  const list = async (query = '') => (await ask(`/v1/skills${query}`, { token: 'the-agent-1' })).body.skills;
  expect((await list()).map(({ name }: { name: string }) => name)).toEqual(['speech', 'silence']);
  expect((await list('?task=Say%20hello')).map(({ name }: { name: string }) => name)).toEqual(['speech']);
  expect((await ask('/v1/skills/speech', { token: 'the-agent-1' })).body).toMatchObject(skill);
  expect((await ask('/v1/skills/nothing', { token: 'the-agent-1' })).status).toBe(404);

  const open = (skills: string[]) => ask('/v1/sessions', { method: 'POST', json: { skills }, token: 'the-agent-1' });
  expect((await open(['speach'])).body.error.issues[0]).toMatchObject({
    path: 'skills.0',
    message: expect.stringContaining('did you mean speech?'),
  });
  const { sessionKey } = (await open(['speech'])).body;
  const { tools } = (await ask(`/v1/tools?session=${sessionKey}`, { token: 'the-agent-1' })).body;
  expect(tools.map(({ name }: { name: string }) => name)).toEqual(['echo', 'echo']);
  const refused = await call({ tool: 'fail', params: {}, session: sessionKey }, { token: 'the-agent-1' });
  expect(refused).toMatchObject({ status: 403, body: { error: { code: 'PERMISSION_DENIED' } } });
  expect((await ask('/v1/skills/speech', { method: 'DELETE', token: 'the-admin-1' })).status).toBe(204);
});
