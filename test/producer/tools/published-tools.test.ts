import { expect, test } from 'vitest';
import { type Fleet, startFleet } from '../../helpers/fleet.ts';
import { echo, scripted } from '../../helpers/tools.ts';

const shell = scripted('shell', () => ({ output: 1 }), { tier: 'system' }).tool;
const note = scripted('note', () => ({ output: 1 })).tool;

async function shownTo({ pawl }: Fleet, agentId: string) {
  const session = await pawl.openSession({ agentId });
  const exported = (await session.toolsFor('openai')).tools.map((tool) => String(tool['name'])).sort();
  const { tools } = await pawl.catalogue(session.key);
  expect(tools.map(({ name }) => name).sort()).toEqual(exported);
  return { session, exported };
}

test('what policy or configuration denies a session whatever it asks for is not shown to its model', async () => {
  const fleet = await startFleet({
    tools: [echo, shell, note],
    settings: {
      tools: { note: { enabled: false } },
      policy: { agents: { researcher: { tiers: { system: 'deny' } } } },
    },
  });
  const { session, exported } = await shownTo(fleet, 'researcher');
  expect(exported).toEqual(['echo']);
  expect((await shownTo(fleet, 'builder')).exported).toEqual(['echo', 'shell']);
  // By its name, it is denied as before.
  expect(await session.call('shell', {})).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
});

test('a skill that requires what policy denies the session is refused when the session is opened', async () => {
  const { pawl } = await startFleet({
    tools: [shell],
    settings: { policy: { agents: { researcher: { tools: { shell: 'deny' } } } } },
  });
  await pawl.skills.put('deploy', { description: 'Deploys.', instructions: 'Do.', requiredTools: ['shell'] });
  const open = (agentId: string) => pawl.openSession({ agentId, skills: ['deploy'] });
  await expect(open('researcher')).rejects.toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'skills' }] });
  expect((await open('builder')).record.skills).toEqual(['deploy']);
});
