import { realpathSync, renameSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { prepareProgram } from '../../../src/workers/context/processes.ts';
import { startTree } from '../../../src/workers/sandbox/process-tree.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { files, hasSandbox, stateOf } from './boundary-checks.ts';

const confined = test.skipIf(!hasSandbox);

describe('a folder that is replaced by a link while its sandbox is set up', () => {
  confined.each([
    ['the workspace itself', 'ws/sub', 'ws/sub', '../outside'],
    ['a folder on the way to the workspace', 'ws/sub/root', 'ws/sub', '../outside'],
    ['a folder with a file of the owner', 'ws', 'ws/sub', '../outside'],
    ['the same, by an absolute link', 'ws', 'ws/sub', undefined],
  ])(
    'lets no program start, and no file outside of it be written or renamed: %s',
    async (_what, root, replaced, link) => {
      const base = realpathSync(temporaryFolder());
      const outside = { 'outside/.envrc': '', 'outside/mise.toml': '', 'outside/root/mise.toml': '' };
      files(base, { 'ws/sub/.envrc': '', 'ws/sub/root/notes.txt': '', ...outside });
      const request = {
        argv: ['sh', '-c', 'echo ran; echo evil > evil; echo evil > sub/evil'] as [string, string, string],
      };
      const options = { root: join(base, root), callId: 'call', env: process.env, sandbox: 'bubblewrap' } as const;
      const filesOutside = () =>
        Object.entries(stateOf(join(base, 'outside'))).filter(([, state]) => state !== 'folder');
      const before = filesOutside();
      const { sandbox, launch, environment } = await prepareProgram(options, request);
      renameSync(join(base, replaced), join(base, 'aside'));
      symlinkSync(link ?? join(base, 'outside'), join(base, replaced));
      const streams = { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' } as const;
      const signal = new AbortController().signal;
      const tree = startTree(sandbox, { launch, environment, name: 'sh', streams, timeoutMs: 10_000, signal });
      await expect(tree.ended).rejects.toMatchObject({ code: 'PROCESS_NOT_STARTED', retriable: true });
      expect(filesOutside()).toEqual(before);
    },
  );
});
