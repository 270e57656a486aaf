import { execFile, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { Pawl } from '../../../src/producer/client.ts';
import { startHttpServer } from '../../../src/producer/http/server.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { startRig, testTools } from './rig.ts';

const EXAMPLE = fileURLToPath(new URL('../../../examples/quick_start.py', import.meta.url));
const isThere = spawnSync('python3', ['--version']).status === 0;

const python = async (url: string, ...args: string[]) => {
  const env = { ...process.env, PAWL_URL: url };
  return JSON.parse((await promisify(execFile)('python3', [EXAMPLE, ...args], { env })).stdout);
};

test.skipIf(!isThere)('the Python quick start does not wait for a budget that never fills again', async () => {
  const { tools } = testTools();
  const rig = await startRig({ tools });
  await rig.pawl.openSession({ sessionKey: 'python', budget: { calls: 0 } });
  expect(await python(rig.server.url, 'echo', '{"text": "x"}')).toMatchObject({ error: { code: 'BUDGET_EXHAUSTED' } });
});

test.skipIf(!isThere)(
  'the Python quick start gets its result, also from a server that was restarted meanwhile',
  async () => {
    const { tools, started, release } = testTools();
    const rig = await startRig({ tools });
    const { url } = rig.server;
    expect(await python(url, 'echo', '{"text": "x"}', 'k')).toMatchObject({ output: { content: { text: 'x' } } });
    expect(await python(url, 'echo', '{"text": "x"}', 'k')).toMatchObject({ fromCache: true });
    expect(await python(url, 'ecko', '{}')).toMatchObject({ error: { code: 'UNKNOWN_TOOL', suggestions: ['echo'] } });
    const waiting = python(url, 'hold', '{}', 'h');
    await started.promise;
    await rig.server.close();
    await rig.pawl.close();
    const pawl = await Pawl.open({ settings: rig.settings, log: silentLogger, defaultWorkspaceRoot: process.cwd() });
    onTestFinished(() => pawl.close());
    const { settings } = rig;
    const server = await startHttpServer({ pawl, settings, log: silentLogger, port: Number(new URL(url).port) });
    onTestFinished(() => server.close());
    release.fire();
    expect(await waiting).toMatchObject({ status: 'success', output: { content: 'held' } });
  },
);
