/** What policy and kernel make of the sandbox, on machines other than this one. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { detectMeans } from '../../../src/workers/processes.ts';
import { countsProcesses, MAX_PROCESSES } from '../../../src/workers/sandbox/means.ts';
import { temporaryFolder } from '../../helpers/context.ts';

const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));
const isRoot = process.getuid?.() === 0;

/** In a mount namespace of its own every bubblewrap of the machine is hidden. */
const HIDE =
  'for file in /usr/local/bin/bwrap /usr/bin/bwrap /bin/bwrap; do [ -e $file ] && mount --bind /dev/null $file; done; exec "$@"';
const unshare = ['--mount', ...(isRoot ? [] : ['--map-root-user']), 'sh', '-c', HIDE, 'hide'];
const canHide = spawnSync('unshare', [...unshare, 'true']).status === 0;

test.skipIf(!canHide)(
  'where there is no bubblewrap, policy `required` refuses programs of every tier, and nothing else does',
  () => {
    const run = [...unshare, process.execPath, fixture('no-sandbox.ts'), temporaryFolder()];
    const line = execFileSync('unshare', run, { encoding: 'utf8' });
    const denied = ['PERMISSION_DENIED', 'PERMISSION_DENIED'];
    const ran = [0, 'ended'];
    expect(JSON.parse(line.slice('result '.length))).toEqual({
      bubblewrap: false,
      'required workspace': denied,
      'required system': denied,
      'required elevated': denied,
      'preferred workspace': ran,
      'preferred system': ran,
      'preferred elevated': ran,
      'off workspace': ran,
      'off system': ran,
      'off elevated': ran,
    });
  },
);

test('processes are counted for others than root, from Linux 5.14 on', () => {
  expect(countsProcesses(1_000, '5.14.0-generic')).toBe(true);
  expect(countsProcesses(1_000, '6.1.0')).toBe(true);
  expect(countsProcesses(1_000, '5.13.9')).toBe(false);
  expect(countsProcesses(0, '6.1.0')).toBe(false);
});

const other = isRoot ? ['setpriv', '--reuid', '65534', '--clear-groups'] : ['env'];
const canCount =
  (await detectMeans()).includes('bubblewrap') &&
  countsProcesses(65_534) &&
  spawnSync('sh', ['-c', `${other.join(' ')} test -r ${fixture('fork-many.ts')}`]).status === 0;

test.skipIf(!canCount)(
  `a run that starts more than ${MAX_PROCESSES} processes is stopped by the kernel`,
  { timeout: 30_000 },
  () => {
    const folder = temporaryFolder();
    chmodSync(folder, 0o777);
    const [program = '', ...rest] = [...other, process.execPath, fixture('fork-many.ts'), folder];
    const line = execFileSync(program, rest, { encoding: 'utf8', env: { ...process.env, HOME: folder } });
    const started = Number(/^started (\d+)/.exec(line)?.[1]);
    expect(started, line).toBeGreaterThan(MAX_PROCESSES - 50);
    expect(started, line).toBeLessThan(MAX_PROCESSES);
    expect(line).toMatch(/fork/i);
  },
);
