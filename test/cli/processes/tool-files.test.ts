import { tmpdir } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { toolsetsOf } from '../../../src/cli/processes/tool-files.ts';
import { Pawl } from '../../../src/producer/client.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { toolset } from '../../../src/shared/tools/toolset.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { echo, scripted } from '../../helpers/tools.ts';

const files = { tools: [], hooks: [], sources: [] };

test('D10: toolsets of tools files decide which of their own tools a session sees, and affect no other tools', async () => {
  const secret = scripted('secret', () => ({ output: 1 })).tool;
  const open = scripted('open', () => ({ output: 1 })).tool;
  const { settings } = await startFleet({ tools: [echo, secret, open] });
  const own = toolset<AnyTool>('own', ({ session }) =>
    session === undefined || session.actorId === 'ada' ? [secret, open] : [open],
  );
  const toolsets = (await toolsetsOf({ ...files, toolsets: [own] })) ?? [];
  const pawl = await Pawl.open({ settings, log: silentLogger, defaultWorkspaceRoot: tmpdir(), toolsets });
  onTestFinished(() => pawl.close());
  const shown = async (actorId: string) => {
    const session = await pawl.openSession({ actorId });
    const { tools } = await pawl.catalogue(session.key);
    const published = (await pawl.publishedFor(session.record)).map(({ name }) => name).sort();
    expect(tools.map(({ name }) => name).sort()).toEqual(published);
    return published;
  };
  expect(await shown('ada')).toEqual(['echo', 'open', 'secret']);
  expect(await shown('bob')).toEqual(['echo', 'open']);
});

test('tools files without toolsets show everything', async () => {
  expect(await toolsetsOf({ ...files, toolsets: [] })).toBeUndefined();
});
