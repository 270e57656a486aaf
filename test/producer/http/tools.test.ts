import { expect, test } from 'vitest';
import { startRig, testTools } from './rig.ts';

test('GET /v1/tools tells of a tool that configuration disables, and lists it for no session', async () => {
  const { ask } = await startRig({ ...testTools(), settings: { tools: { echo: { enabled: false } } } });
  const { sessionKey } = (await ask('/v1/sessions', { method: 'POST', json: {} })).body;
  const enabled = async (query: string) =>
    (await ask(`/v1/tools${query}`)).body.tools
      .filter((tool: { name: string; namespace: string }) => tool.name === 'echo' && tool.namespace === 'tools')
      .map((tool: { enabled: boolean }) => tool.enabled);
  expect(await enabled('')).toEqual([false]);
  expect(await enabled(`?session=${sessionKey}`)).toEqual([]);
});
