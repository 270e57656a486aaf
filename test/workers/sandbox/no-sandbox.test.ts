/** On a machine without a working sandbox, programs need a person's approval. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { execCommand } from '../../../src/workers/tools/exec-command.ts';
import { shell } from '../../../src/workers/tools/shell.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

const WORKER = fileURLToPath(new URL('../fixtures/no-sandbox-worker.ts', import.meta.url));
/** Hides every bubblewrap of the machine, in a mount namespace of its own. */
const HIDE =
  'for file in /usr/local/bin/bwrap /usr/bin/bwrap /bin/bwrap; do [ -e $file ] && mount --bind /dev/null $file; done; exec "$@"';
const unshare = ['--mount', ...(process.getuid?.() === 0 ? [] : ['--map-root-user']), 'sh', '-c', HIDE, 'hide'];
const canHide = spawnSync('unshare', [...unshare, 'true']).status === 0;

async function startUnconfined(sandbox: string) {
  const fleet = await startFleet({ tools: [shell, execCommand], workers: 0 });
  const child = spawn('unshare', [...unshare, process.execPath, WORKER], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      ...process.env,
      REDIS_URL: fleet.world.redisUrl,
      PAWL_PREFIX: fleet.world.prefix,
      PAWL_DATA_DIR: temporaryFolder(),
      PAWL_SANDBOX: sandbox,
    },
  });
  onTestFinished(async () => {
    child.stdin.end();
    await once(child, 'exit');
  });
  const [line] = await once(child.stdout, 'data');
  const workspaceRoot = temporaryFolder();
  const session = await fleet.pawl.openSession({ channel: { kind: 'operator' }, workspaceRoot });
  await eventually(async () => (await fleet.pawl.catalogue()).workers.length > 0);
  return { fleet, session, said: String(line), proof: join(temporaryFolder(), 'proof') };
}

test.skipIf(!canHide)('a worker warns at its start, and each call that runs a program needs an approval', async () => {
  const { fleet, session, said, proof } = await startUnconfined('');
  expect(said).toContain('no sandbox works here');
  const approve = async (tool: string, params: Record<string, unknown>) => {
    const submission = await session.submit(tool, params);
    if (submission.kind !== 'pending') throw new Error(submission.kind);
    const { request } = (await fleet.pawl.approvals.show(submission.callId)).record;
    expect(request).toMatchObject({ rule: 'built-in.no-sandbox', amendment: { kind: 'same-parameters' } });
    expect(existsSync(proof)).toBe(false);
    const { id } = request;
    const { digest } = await eventually(async () => {
      const shown = await fleet.pawl.approvals.show(id);
      return shown.record.preview !== undefined && shown;
    });
    await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    return submission.result;
  };
  expect((await approve('shell', { command: ['touch', proof] })).status).toBe('success');
  expect(existsSync(proof)).toBe(true);
});

test.skipIf(!canHide)('`required` refuses each program, and a worker says so at its start', async () => {
  const { session, said, proof } = await startUnconfined('required');
  expect(said).toContain('is refused (PAWL_SANDBOX=required)');
  const result = await session.call('shell', { command: ['touch', proof] });
  expect(result).toMatchObject({ status: 'error', error: { code: 'PERMISSION_DENIED' } });
  expect(existsSync(proof)).toBe(false);
});

test.skipIf(!canHide)('`off` has to be set explicitly, and is logged at the start', async () => {
  const { session, said, proof } = await startUnconfined('off');
  expect(said).toContain('PAWL_SANDBOX=off');
  expect((await session.call('shell', { command: ['touch', proof] })).status).toBe('success');
});
