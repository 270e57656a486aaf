/** What the programs and further processes that Pawl starts for itself inherit of the environment. */
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeWorkspaceFolders } from '../src/search-path.ts';
import { temporaryFolder } from './helpers/context.ts';
import { startScript } from './helpers/process.ts';
import { eventually } from './helpers/signal.ts';

test('no folder of the PATH lies in the current folder or the workspace, by any name', () => {
  const folder = temporaryFolder();
  for (const name of ['cwd/bin', 'ws/bin', 'outside']) mkdirSync(join(folder, name), { recursive: true });
  symlinkSync('ws', join(folder, 'ws-link'));
  symlinkSync('../ws/bin', join(folder, 'outside/to-ws'));
  symlinkSync('../outside', join(folder, 'ws/to-outside'));
  const at = (name: string) => join(folder, name);
  const inside = [
    'cwd',
    'cwd/bin',
    'cwd/absent',
    'ws/bin',
    'ws-link/bin',
    'ws/absent',
    'outside/to-ws',
    'ws/to-outside',
  ];
  for (const root of [at('ws'), at('ws-link'), '../ws', '../ws-link/']) {
    const path = ['', '.', 'bin', ...inside.map(at), at('outside'), '/usr/bin', ''].join(':');
    const environment: NodeJS.ProcessEnv = { PATH: path, PAWL_WORKSPACE_ROOT: root };
    removeWorkspaceFolders(environment, at('cwd'));
    expect(environment['PATH'], root).toBe([at('outside'), '/usr/bin'].join(':'));
  }
});

test.each(['/', '/usr', '/opt', '/home/ada'])('a process in %s, which is no workspace, finds its programs', (cwd) => {
  const folder = temporaryFolder();
  const path = ['/home/ada/.local/bin', '/opt/redis/bin', '/usr/local/bin', '/usr/bin', '/bin'];
  const environment: NodeJS.ProcessEnv = { PATH: ['bin', ...path, join(folder, 'bin')].join(':') };
  removeWorkspaceFolders(environment, cwd, folder);
  expect(environment['PATH']).toBe(path.join(':'));
});

test.each([
  [undefined, undefined],
  ['/opt/lib:', '/opt/lib'],
  [':', ''],
  ['lib:.:/opt/lib', '/opt/lib'],
  ['/opt/lib;lib;', '/opt/lib'],
])('LD_LIBRARY_PATH=%s is handed on as %s', (value, expected) => {
  const environment: NodeJS.ProcessEnv = value === undefined ? {} : { LD_LIBRARY_PATH: value };
  removeWorkspaceFolders(environment, '/srv');
  expect(environment['LD_LIBRARY_PATH']).toBe(expected);
});

test('a program that connects starts nothing from the folders of the workspace', async () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'bin'));
  for (const name of ['redis-server', 'valkey-server', 'mkfifo', 'uname', 'date', 'sleep', 'apt-get', 'docker'])
    writeFileSync(join(folder, 'bin', name), `#!/bin/sh\ntouch '${folder}/ran-${name}'\n`, { mode: 0o755 });
  const main = new URL('../src/main.ts', import.meta.url);
  writeFileSync(
    join(folder, 'program.mjs'),
    `import { connect } from '${main}';\nawait (await connect({ dataDir: 'data' })).close();\n`,
  );
  const env = {
    PATH: `${join(folder, 'bin')}:${process.env['PATH']}`,
    REDIS_URL: undefined,
    PAWL_WORKSPACE_ROOT: undefined,
  };
  const program = startScript(join(folder, 'program.mjs'), [], { cwd: folder, env });
  expect(await program.ended, program.stderr()).toMatchObject({ code: 0 });
  expect(readdirSync(folder).toSorted()).toEqual(['bin', 'data', 'program.mjs']);
  const endpoint = join(folder, 'data', 'redis', 'endpoint.json');
  await eventually(() => !existsSync(endpoint), { what: 'the end of the embedded Redis' });
});
