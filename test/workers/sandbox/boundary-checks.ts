import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'vitest';
import { detectIsolation, openProcesses, type ProcessesOptions } from '../../../src/workers/context/processes.ts';
import { applyPatch } from '../../../src/workers/tools/apply-patch.ts';
import { edit } from '../../../src/workers/tools/edit.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { attempts } from '../../helpers/attempts.ts';
import { testContext } from '../../helpers/context.ts';

/** Without bubblewrap, a program cannot be confined. */
export const hasSandbox = (await detectIsolation()).includes('bubblewrap');

export function files(root: string, contents: Readonly<Record<string, string>>): void {
  for (const [path, content] of Object.entries(contents)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
}

/** Runs git in a folder, with an author, and with submodules from folders allowed. */
export function git(folder: string, ...args: readonly string[]): Buffer {
  const settings = ['protocol.file.allow=always', 'user.name=a', 'user.email=a@b'].flatMap((each) => ['-c', each]);
  return execFileSync('git', [...settings, ...args], { cwd: folder, stdio: 'pipe' });
}

/** Every name below a folder with its content, as a later program could see them. */
export function stateOf(folder: string): Readonly<Record<string, string>> {
  const entries = readdirSync(folder, { withFileTypes: true, recursive: true });
  return Object.fromEntries(
    entries.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      if (entry.isSymbolicLink()) return [path, `-> ${readlinkSync(path)}`];
      return [path, entry.isFile() ? `${lstatSync(path).mode.toString(8)} ${readFileSync(path, 'utf8')}` : 'folder'];
    }),
  );
}

export async function run(root: string, script: string, options: Partial<ProcessesOptions> = {}) {
  const processes = openProcesses({
    root,
    callId: 'call',
    signal: new AbortController().signal,
    env: process.env,
    sandbox: 'bubblewrap',
    ...options,
  });
  return processes.run({ argv: ['sh', '-c', script], timeoutMs: 100_000 });
}

export async function expectUnchangeable(root: string, paths: readonly string[]): Promise<void> {
  const about = (state: Readonly<Record<string, string>>) =>
    Object.fromEntries(
      Object.entries(state).filter(([name]) =>
        paths.some((path) => name === join(root, path) || name.startsWith(`${join(root, path)}/`)),
      ),
    );
  const before = about(stateOf(root));
  const ctx = testContext({ workspaceRoot: root });
  const denied = { code: 'PERMISSION_DENIED' };
  for (const path of paths) {
    const below = `${path}/below.txt`;
    for (const each of [path, below, join(root, path), `.//${path}`]) {
      await expect(write.run(write.parse({ path: each, content: 'evil' }), ctx), each).rejects.toMatchObject(denied);
      const patch = `*** Begin Patch\n*** Add File: ${each}\n+evil\n*** End Patch`;
      await expect(async () => applyPatch.run(applyPatch.parse({ patch }), ctx), each).rejects.toThrow();
    }
    const isFile = before[join(root, path)]?.startsWith('100') === true;
    if (isFile) {
      const old_string = readFileSync(join(root, path), 'utf8');
      const change = edit.parse({ path, old_string, new_string: 'evil' });
      await expect(edit.run(change, ctx), path).rejects.toMatchObject(denied);
      const remove = `*** Begin Patch\n*** Delete File: ${path}\n*** End Patch`;
      await expect(applyPatch.run(applyPatch.parse({ patch: remove }), ctx), path).rejects.toMatchObject(denied);
    }
    expect(about(stateOf(root)), path).toEqual(before);
  }
  await run(root, paths.map(attempts).join('\n'));
  expect(about(stateOf(root))).toEqual(before);
}
