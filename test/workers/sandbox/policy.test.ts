/** The effect of policy and kernel on the sandbox, on other machines than this one. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { detectIsolation, openProcesses } from '../../../src/workers/context/processes.ts';
import { countsProcesses, MAX_PROCESSES } from '../../../src/workers/sandbox/isolation.ts';
import { processGroups } from '../../../src/workers/sandbox/process-limit.ts';
import { temporaryFolder } from '../../helpers/context.ts';

const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));
const isRoot = process.getuid?.() === 0;
const hasBubblewrap = (await detectIsolation()).includes('bubblewrap');

/** Hides every bubblewrap of the machine, in a mount namespace of its own. */
const HIDE =
  'for file in /usr/local/bin/bwrap /usr/bin/bwrap /bin/bwrap; do [ -e $file ] && mount --bind /dev/null $file; done; exec "$@"';
const unshare = ['--mount', ...(isRoot ? [] : ['--map-root-user']), 'sh', '-c', HIDE, 'hide'];
const canHide = spawnSync('unshare', [...unshare, 'true']).status === 0;

test.skipIf(!canHide)(
  'where there is no bubblewrap, programs of every tier are refused, unless policy says `off`',
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
      'preferred workspace': denied,
      'preferred system': denied,
      'preferred elevated': denied,
      'off workspace': ran,
      'off system': ran,
      'off elevated': ran,
    });
  },
);

test('processes are counted for other users than root, from Linux 5.14 on', () => {
  expect(countsProcesses(1_000, '5.14.0-generic')).toBe(true);
  expect(countsProcesses(1_000, '6.1.0')).toBe(true);
  expect(countsProcesses(1_000, '5.13.9')).toBe(false);
  expect(countsProcesses(0, '6.1.0')).toBe(false);
});

const groups = isRoot && hasBubblewrap ? processGroups(MAX_PROCESSES) : undefined;
if (isRoot && groups === undefined) console.warn('skipped: no control group can be made here');

test.skipIf(groups === undefined)(
  'as root a run has a control group of its own, which it cannot leave, and which is removed after it',
  async () => {
    const line = execFileSync(process.execPath, [fixture('fork-many.ts'), temporaryFolder()], { encoding: 'utf8' });
    const started = Number(/^started (\d+)/.exec(line)?.[1]);
    expect(started, line).toBeGreaterThan(MAX_PROCESSES - 50);
    expect(started, line).toBeLessThan(MAX_PROCESSES);

    const processes = openProcesses({
      root: temporaryFolder(),
      callId: 'group',
      signal: new AbortController().signal,
      env: process.env,
    });
    const leave =
      'cat /proc/self/cgroup; for each in /sys/fs/cgroup /sys/fs/cgroup/pids; do echo 0 > $each/cgroup.procs && echo left; done';
    const { stdout } = await processes.run({ argv: ['sh', '-c', leave] });
    const [, group = ''] = /:(\/.*pawl-\d+-[0-9a-f]+)$/m.exec(stdout) ?? [];
    expect(group).not.toBe('');
    expect(stdout).not.toContain('left');
    const folders = ['/sys/fs/cgroup', '/sys/fs/cgroup/pids'].map((mount) => mount + group);
    expect(folders.filter((folder) => existsSync(folder))).toEqual([]);
  },
);

test('without a writable control group there is no limit, and nothing fails', () => {
  expect(processGroups(8, '')).toBeUndefined();
  expect(processGroups(8, '0::/no/such/group\n7:pids:/../../..\n')).toBeUndefined();
});

const other = isRoot ? ['setpriv', '--reuid', '65534', '--clear-groups'] : ['env'];
const canCount =
  hasBubblewrap &&
  countsProcesses(65_534) &&
  spawnSync('sh', ['-c', `${other.join(' ')} test -r ${fixture('fork-many.ts')}`]).status === 0;

test.skipIf(!canCount)(`a run that starts more than ${MAX_PROCESSES} processes is stopped by the kernel`, () => {
  const folder = temporaryFolder();
  chmodSync(folder, 0o777);
  const [program = '', ...rest] = [...other, process.execPath, fixture('fork-many.ts'), folder];
  const line = execFileSync(program, rest, { encoding: 'utf8', env: { ...process.env, HOME: folder } });
  const started = Number(/^started (\d+)/.exec(line)?.[1]);
  expect(started, line).toBeGreaterThan(MAX_PROCESSES - 50);
  expect(started, line).toBeLessThan(MAX_PROCESSES);
  expect(line).toMatch(/fork/i);
});
