import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { explainRefusal } from '../../../src/workers/sandbox/explain-refusal.ts';
import { UNCONFINED } from '../../../src/workers/sandbox/view.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';
import { git, hasSandbox, run } from './boundary-checks.ts';

test.each(['socket ', 'connect EPERM ', 'EROFS\n', 'EROFS: .git ', 'a'])(
  'output of a program holds up no call: %j',
  async (part) => {
    const confine = { ...UNCONFINED, unusable: Array.from({ length: 150 }, (_, at) => `/w/.name${at}`) };
    const launch = { root: '/w', folder: '/w', argv: ['a'] as const, marker: 'a', confine };
    expect(await cpuMsOf(() => explainRefusal(launch, part.repeat(524_288 / part.length)))).toBeLessThan(1_000);
  },
);

test.skipIf(!hasSandbox).each([
  ['a new repository', 'git init -q .', '.git'],
  ['a setting of a repository', 'echo 1 > nested/.git/config', 'nested/.git/config'],
  ['a setting that is not there', 'echo 1 > .envrc', '.envrc'],
  ['another one, on standard output', 'echo 1 2>&1 > .npmrc', '.npmrc'],
  ['a socket by path', 'node -e "net.createServer().listen(\'/tmp/a.sock\')"', 'AF_UNIX'],
])('a program that fails at what the sandbox keeps gets the reason: %s', async (_what, script, name) => {
  const root = temporaryFolder();
  mkdirSync(join(root, 'nested'));
  git(join(root, 'nested'), 'init', '-q');
  const { stderr, exitCode } = await run(root, script);
  expect(exitCode).not.toBe(0);
  expect(stderr).toContain(
    `The sandbox ${name === 'AF_UNIX' ? 'has no sockets by path (AF_UNIX)' : `leaves ${name} as it is`}`,
  );
  const other = await run(root, 'echo "Error: .envrc failed"; cat absent; echo 1 > /etc/x; false');
  expect(other.stderr).not.toContain('The sandbox');
});
