import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { toolsetsOf } from '../../../src/cli/processes/tool-files.ts';
import { Pawl } from '../../../src/producer/client.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { toolset } from '../../../src/shared/tools/toolset.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { startScript } from '../../helpers/process.ts';
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

test('code of the workspace that was not there when the worker started is not loaded, native addons neither', async () => {
  const folder = temporaryFolder();
  const at = (module: string) => JSON.stringify(new URL(`../../../src/${module}`, import.meta.url).href);
  writeFileSync(
    join(folder, 'tools.mjs'),
    `import { createRequire } from 'node:module';
import { defineTool } from 'pawl';
import { z } from 'zod';
const require = createRequire(import.meta.url);
export const load = defineTool({
  name: 'load', version: '1.0.0', description: 'Loads.', tier: 'read-only', input: z.object({}),
  run: () => ['mjs', 'cjs', 'node'].map((extension) => { try { return require('./made.' + extension); } catch (error) { return error.message; } }),
});`,
  );
  const program = `import { writeFileSync } from 'node:fs';
import { forbidUnknownCode, loadToolFiles } from ${at('cli/processes/tool-files.ts')};
import { protectToolCode } from ${at('cli/processes/protect-tool-code.ts')};
const { tools, sources } = await loadToolFiles(['tools.mjs'], process.cwd());
protectToolCode(['tools.mjs'], sources, {}, process.cwd());
forbidUnknownCode(process.cwd());
for (const extension of ['mjs', 'cjs', 'node']) writeFileSync('made.' + extension, '');
console.log(JSON.stringify(tools[0].run({})));`;
  writeFileSync(join(folder, 'program.mjs'), program);
  const started = startScript(join(folder, 'program.mjs'), [], { cwd: folder });
  expect(await started.ended, started.stderr()).toMatchObject({ code: 0 });
  const refused = expect.stringContaining('was not loaded');
  expect(JSON.parse(started.stdout())).toEqual([refused, refused, refused]);
});
