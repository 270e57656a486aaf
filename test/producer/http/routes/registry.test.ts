import { expect, test } from 'vitest';
import { echo } from '../../../helpers/tools.ts';
import { startRig, testTools } from '../rig.ts';

const spec = {
  kind: 'http',
  version: '1.0.0',
  description: 'Current weather.',
  inputSchema: { type: 'object', properties: { city: { type: 'string' } } },
  routing: { method: 'GET', url: 'https://weather.example.com/{city}' },
};

test('PUT, PATCH and DELETE /v1/tools/{name}: revisions as ETags, conflicts 412 (I7)', async () => {
  const { ask } = await startRig(testTools());
  const put = (json: object, headers = {}) => ask('/v1/tools/weather', { method: 'PUT', json, headers });
  const declared = await put(spec, { 'if-none-match': '*' });
  expect(declared).toMatchObject({
    status: 201,
    body: { name: 'weather', kind: 'http', revision: 1, updatedBy: 'local operator' },
  });
  expect(declared.headers.get('etag')).toBe('"1"');
  expect(await put(spec, { 'if-none-match': '*' })).toMatchObject({
    status: 412,
    body: { error: { code: 'PRECONDITION_FAILED' } },
  });
  expect((await put({ ...spec, name: 'weather', version: '1.1.0' }, { 'if-match': '"1"' })).status).toBe(200);
  expect((await put(spec, { 'if-match': '"1"' })).status).toBe(412);
  const { spec: read } = (await ask('/v1/tools/weather')).body;
  expect((await put(read, { 'if-match': '*' })).status).toBe(200);
  expect((await ask('/v1/tools/none', { method: 'PUT', json: spec, headers: { 'if-match': '*' } })).status).toBe(412);
  expect((await put(spec, { 'if-match': 'abc' })).body.error.issues[0].path).toBe('if-match');
  expect((await put({ ...spec, name: 'other' })).body.error.issues[0].path).toBe('name');
  expect((await put({ ...spec, kind: 'shell' })).status).toBe(400);

  expect((await ask('/v1/tools')).body.tools.map(({ name }: { name: string }) => name)).toContain('weather');
  expect((await ask('/v1/tools/weather')).body).toMatchObject({
    version: '1.1.0',
    enabled: true,
    spec: { revision: 3 },
  });
  const patched = await ask('/v1/tools/weather', { method: 'PATCH', json: { enabled: false } });
  expect(patched).toMatchObject({ status: 200, body: { enabled: false, revision: 4 } });
  expect((await ask('/v1/tools/weather', { method: 'PATCH', json: {} })).status).toBe(400);
  const { revisions } = (await ask('/v1/tools/weather/revisions')).body;
  expect(revisions.map(({ revision }: { revision: number }) => revision)).toEqual([4, 3, 2, 1]);
  const rolledBack = await ask('/v1/tools/weather/rollback', { method: 'POST', json: { revision: 1 } });
  expect(rolledBack.body).toMatchObject({ version: '1.0.0', revision: 5, enabled: true });
  expect((await ask('/v1/tools/weather', { method: 'DELETE' })).status).toBe(204);
  expect((await ask('/v1/tools/weather', { method: 'DELETE' })).status).toBe(404);
  expect((await ask('/v1/tools/weather')).status).toBe(404);
});

test('a server with other signing keys than the workers changes no declaration, and gives the reason', async () => {
  const keys = [{ kid: 'one', key: 'a key of the fleet, and of this test' }];
  const { ask, pawl } = await startRig({ tools: [echo], settings: { signingKeys: keys } });
  expect((await ask('/v1/tools/weather', { method: 'PUT', json: spec })).status).toBe(201);
  const others = [{ kid: 'one', key: 'a key of somebody else alone' }];
  const { prefix } = pawl.settings;
  const { ask: askStranger } = await startRig({ settings: { prefix, signingKeys: others } });
  const refused = { status: 502, body: { error: { code: 'SIGNATURE_INVALID' } } };
  const change = { ...spec, description: 'Another one.' };
  expect(await askStranger('/v1/tools/weather', { method: 'PUT', json: change })).toMatchObject(refused);
  expect(await askStranger('/v1/tools/weather', { method: 'PATCH', json: { enabled: false } })).toMatchObject(refused);
  expect(await askStranger('/v1/tools/weather', { method: 'DELETE' })).toMatchObject(refused);
  const rollback = { method: 'POST', json: { revision: 1 } };
  expect(await askStranger('/v1/tools/weather/rollback', rollback)).toMatchObject(refused);
  expect(await pawl.registry.read('weather')).toMatchObject({ revision: 1, description: spec.description });
});

test('only an admin of the whole fleet declares tools, and sees how they are declared (I23)', async () => {
  const tokens = [
    { token: 'the-agent-1', role: 'agent' as const },
    { token: 'the-operator-1', role: 'operator' as const },
    { token: 'the-admin-1', role: 'admin' as const },
    { token: 'the-admin-of-acme', role: 'admin' as const, tenantId: 'acme' },
  ];
  const { ask } = await startRig({ settings: { apiTokens: tokens } });
  for (const token of ['the-agent-1', 'the-operator-1', 'the-admin-of-acme'])
    expect((await ask('/v1/tools/weather', { method: 'PUT', json: spec, token })).status).toBe(403);
  expect((await ask('/v1/tools/weather', { method: 'PUT', json: spec, token: 'the-admin-1' })).status).toBe(201);
  for (const token of ['the-agent-1', 'the-operator-1', 'the-admin-of-acme'])
    expect((await ask('/v1/tools/weather', { token })).body.spec, token).toBeUndefined();
  expect((await ask('/v1/tools/weather', { token: 'the-admin-1' })).body.spec.routing.url).toContain('example');
  expect((await ask('/v1/tools/weather/revisions', { token: 'the-agent-1' })).status).toBe(403);
});
