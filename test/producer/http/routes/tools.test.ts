import { expect, onTestFinished, test } from 'vitest';
import { PROVIDERS } from '../../../../src/shared/model-tools/export-types.ts';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { startRig, testTools } from '../rig.ts';

test('GET /v1/tools lists a tool that the configuration disables, but for no session', async () => {
  const { ask } = await startRig({ ...testTools(), settings: { tools: { echo: { enabled: false } } } });
  const { sessionKey } = (await ask('/v1/sessions', { method: 'POST', json: {} })).body;
  const enabled = async (query: string) =>
    (await ask(`/v1/tools${query}`)).body.tools
      .filter((tool: { name: string; namespace: string }) => tool.name === 'echo' && tool.namespace === 'tools')
      .map((tool: { enabled: boolean }) => tool.enabled);
  expect(await enabled('')).toEqual([false]);
  expect(await enabled(`?session=${sessionKey}`)).toEqual([]);
});

test('one broken line of the catalogue hides no other tool, and no worker', async () => {
  const { ask, world } = await startRig({ ...testTools() });
  const redis = openConnection({ url: world.redisUrl, name: 'test', mode: 'fail-fast' });
  onTestFinished(() => redis.quit().then(() => {}));
  const [tools = '', loads = ''] = ['tools', 'worker-records'].map((name) => `${world.prefix}:{fleet}:${name}`);
  const [id = '', line = ''] =
    Object.entries(await redis.hgetall(tools)).find(([field]) => field.includes('echo')) ?? [];
  const [, record = ''] = Object.entries(await redis.hgetall(loads))[0] ?? [];
  const paths = ['/v1/tools', ...PROVIDERS.map((provider) => `/v1/tools?provider=${provider}`), '/v1/workers'];
  const shown = async () => Promise.all(paths.map(async (path) => (await ask(path)).text.includes('echo')));
  const before = await shown();
  expect(before).toContain(true);
  const json = (text: string) => JSON.parse(text.slice(text.indexOf('{'))) as Record<string, unknown>;
  const changed = (text: string, name: string, value: unknown) => JSON.stringify({ ...json(text), [name]: value });
  const values = [
    undefined,
    null,
    5,
    -1,
    '',
    'text',
    [],
    [null],
    {},
    { type: 5 },
    { $ref: '#/nowhere' },
    { properties: null },
  ];
  const broken = (text: string) => [
    '',
    'null',
    '5',
    '[]',
    '{',
    '{}',
    'x y',
    text.slice(0, -3),
    ...Object.keys(json(text)).flatMap((name) => values.map((value) => changed(text, name, value))),
  ];
  const score = Date.now() + 3_600_000;
  for (const [index, text] of broken(record).entries()) {
    await redis.zadd(`${world.prefix}:{fleet}:workers`, score, `broken${index}`);
    await redis.hset(loads, `broken${index}`, text);
  }
  const version = id.split('@')[1] ?? '';
  for (const [index, text] of broken(line).entries())
    await redis.hset(
      tools,
      `tools.broken${index}@${version}`,
      text.replace('"name":"echo"', `"name":"broken${index}"`),
    );
  for (const path of paths) {
    const answer = await ask(path);
    expect(answer.status, `${path}: ${answer.text.slice(0, 500)}`).toBe(200);
  }
  expect(await shown()).toEqual(before);
});
