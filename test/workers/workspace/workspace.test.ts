import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import type { Workspace } from '../../../src/shared/tools/capabilities.ts';
import { openWorkspace, resolveFolder } from '../../../src/workers/workspace/workspace.ts';
import { addWorkspaceFolder } from '../../../src/workers/workspace/workspace-roots.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startScript } from '../../helpers/process.ts';

interface Partition {
  readonly root: string;
  readonly outside: string;
  readonly workspace: Workspace;
}

/** A workspace next to a folder with a secret. */
function place(): Partition {
  const folder = temporaryFolder();
  const root = join(folder, 'root');
  const outside = join(folder, 'outside');
  mkdirSync(root);
  mkdirSync(outside);
  writeFileSync(join(outside, 'secret'), 'secret');
  return { root, outside, workspace: openWorkspace(root, 'write') };
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return 'none';
  } catch (error) {
    return error instanceof PawlError ? error.code : String(error);
  }
}

const text = async (promise: Promise<Uint8Array>): Promise<string> => Buffer.from(await promise).toString();

describe('paths that leave the root are refused with PERMISSION_DENIED (A11)', () => {
  const escapes: readonly (readonly [name: string, path: (place: Partition) => string])[] = [
    ['a parent', () => '../outside/secret'],
    ['a parent behind folders', () => 'a/../../outside/secret'],
    ['many parents', () => '../../'.repeat(40) + 'etc/passwd'],
    ['an absolute path', ({ outside }) => join(outside, 'secret')],
    ['an absolute path of the system', () => '/etc/passwd'],
    ['an absolute path with the root as its beginning', ({ root }) => `${root}-other/secret`],
    ['an absolute path that goes up from the root', ({ root }) => `${root}/../outside/secret`],
    [
      'a symbolic link to a file',
      ({ root, outside }) => {
        symlinkSync(join(outside, 'secret'), join(root, 'link'));
        return 'link';
      },
    ],
    [
      'a relative symbolic link',
      ({ root }) => {
        symlinkSync('../outside/secret', join(root, 'link'));
        return 'link';
      },
    ],
    [
      'a symbolic link to a folder in the middle',
      ({ root, outside }) => {
        symlinkSync(outside, join(root, 'link'));
        return 'link/secret';
      },
    ],
    [
      'a chain of links of which the last leaves',
      ({ root }) => {
        mkdirSync(join(root, 'a'));
        symlinkSync('../../outside', join(root, 'a/second'));
        symlinkSync('a/second', join(root, 'first'));
        return 'first/secret';
      },
    ],
    [
      'a link that is absent where it points to',
      ({ root, outside }) => {
        symlinkSync(join(outside, 'absent'), join(root, 'link'));
        return 'link';
      },
    ],
    ['a magic link of /proc', () => '/proc/self/root/etc/passwd'],
  ];
  test.each(escapes)('%s', async (_name, pathIn) => {
    const here = place();
    const path = pathIn(here);
    expect(await codeOf(here.workspace.read(path))).toBe('PERMISSION_DENIED');
    expect(await codeOf(here.workspace.write(path, 'changed'))).toBe('PERMISSION_DENIED');
    expect(await codeOf(here.workspace.list(`${path}/..`))).toBe('PERMISSION_DENIED');
    expect(await codeOf(resolveFolder(here.root, path))).toBe('PERMISSION_DENIED');
    expect(readdirSync(here.outside)).toEqual(['secret']);
    expect(readFileSync(join(here.outside, 'secret'), 'utf8')).toBe('secret');
  });

  test('reads and writes stay inside while a folder is constantly swapped for a symbolic link', async () => {
    const { root, outside, workspace } = place();
    mkdirSync(join(root, 'dir'));
    writeFileSync(join(root, 'dir/secret'), 'inside');
    const attacker = startScript(new URL('../fixtures/swapper.ts', import.meta.url), [root, outside]);
    await attacker.line('swapping');
    const seen = { done: 0, refused: 0 };
    const deadlineMs = performance.now() + 15_000;
    for (let turn = 0; (seen.done < 20 || seen.refused < 20) && performance.now() < deadlineMs; turn += 1) {
      const answers = await Promise.allSettled([
        workspace.write(`dir/file-${turn}`, 'x'),
        workspace.write(`dir/new/folder-${turn % 7}/file`, 'x'),
        workspace.read('dir/secret').then((bytes) => expect(Buffer.from(bytes).toString()).toBe('inside')),
        workspace.read('dir/../dir/secret').then((bytes) => expect(Buffer.from(bytes).toString()).toBe('inside')),
      ]);
      for (const answer of answers) {
        if (answer.status === 'fulfilled') seen.done += 1;
        else if (answer.reason instanceof PawlError) seen.refused += 1;
        else throw answer.reason;
      }
    }
    await attacker.kill();
    expect(seen.done).toBeGreaterThan(0);
    expect(seen.refused).toBeGreaterThan(0); // or the attack never met a call, and the test shows nothing
    expect(readdirSync(outside)).toEqual(['secret']);
    expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe('secret');
  });
});

describe('paths inside the root work however they are written (A11)', () => {
  test.each(['a/b.txt', './a/b.txt', 'a//b.txt', 'a/../a/b.txt', 'link/b.txt', 'a/self/b.txt', 'absolute/b.txt'])(
    '%s',
    async (path) => {
      const { root, workspace } = place();
      mkdirSync(join(root, 'a'));
      writeFileSync(join(root, 'a/b.txt'), 'here');
      symlinkSync('a', join(root, 'link'));
      symlinkSync('../a', join(root, 'a/self'));
      symlinkSync(join(root, 'a'), join(root, 'absolute'));
      expect(await text(workspace.read(path))).toBe('here');
      expect(await workspace.write(path, 'there')).toEqual({ created: false, bytes: 5 });
      expect(readFileSync(join(root, 'a/b.txt'), 'utf8')).toBe('there');
      expect(readdirSync(join(root, 'a')).sort()).toEqual(['b.txt', 'self']);
    },
  );

  test('an absolute path below the root, and a root that is itself reached through a link', async () => {
    const { root, workspace } = place();
    await workspace.write(join(root, 'new/file.txt'), 'one');
    const alias = join(temporaryFolder(), 'alias');
    symlinkSync(root, alias);
    expect(await text(openWorkspace(alias, 'read').read(join(alias, 'new/file.txt')))).toBe('one');
    expect(await resolveFolder(alias, 'new')).toBe(join(root, 'new'));
  });

  test('names that look like escapes and are none', async () => {
    const { workspace } = place();
    for (const name of ['..a', '...', 'a..b', ' ', '-rf', 'a\nb', '~', '\\..\\x', 'ü'])
      await workspace.write(name, name);
    for (const { path } of await workspace.list('.')) expect(await text(workspace.read(path))).toBe(path);
  });

  test('a loop of links is refused and does not hang', async () => {
    const { root, workspace } = place();
    symlinkSync('b', join(root, 'a'));
    symlinkSync('a', join(root, 'b'));
    expect(await codeOf(workspace.read('a'))).toBe('INVALID_PARAMS');
  });
});

describe('only regular files (A11)', () => {
  test('NUL, half of a character, a folder, a FIFO, a socket and a device are INVALID_PARAMS, and nothing hangs', async () => {
    const { root, workspace } = place();
    mkdirSync(join(root, 'folder'));
    execFileSync('mkfifo', [join(root, 'fifo')]);
    const server = createServer().listen(join(root, 'socket'));
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const paths = ['a\0b', 'a\ud83d', 'folder', 'folder/', '.', '', 'fifo', 'socket'];
    if (process.getuid?.() === 0) {
      execFileSync('mknod', [join(root, 'device'), 'c', '1', '3']);
      paths.push('device');
    }
    for (const path of paths) {
      expect([path, await codeOf(workspace.read(path))]).toEqual([path, 'INVALID_PARAMS']);
      expect([path, await codeOf(workspace.write(path, 'x'))]).toEqual([path, 'INVALID_PARAMS']);
    }
  });

  test('a path through a file, or a file written with a slash at its end', async () => {
    const { workspace } = place();
    await workspace.write('file', 'x');
    for (const path of ['file/', 'file/more', 'file/more/still']) {
      expect(await codeOf(workspace.read(path))).toBe('INVALID_PARAMS');
      expect(await codeOf(workspace.write(path, 'x'))).toBe('INVALID_PARAMS');
    }
  });
});

describe('reading', () => {
  test('an absent file, folder or root is NOT_FOUND, and the message has the path that was asked for', async () => {
    const { root, workspace } = place();
    await expect(workspace.read('no/such/file')).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'There is no "no/such/file" in the workspace.',
    });
    expect(await codeOf(workspace.list('absent'))).toBe('NOT_FOUND');
    expect(await codeOf(openWorkspace(join(root, 'absent'), 'read').read('file'))).toBe('NOT_FOUND');
  });

  test('up to maxBytes, and RESULT_TOO_LARGE above it', async () => {
    const { workspace } = place();
    await workspace.write('file', '12345');
    expect(await text(workspace.read('file', { maxBytes: 5 }))).toBe('12345');
    expect(await codeOf(workspace.read('file', { maxBytes: 4 }))).toBe('RESULT_TOO_LARGE');
  });

  test('a file without a known size', async () => {
    const status = await openWorkspace('/proc/self', 'read').read('status');
    expect(status.byteLength).toBeGreaterThan(100);
    expect(await codeOf(openWorkspace('/proc/self', 'read').read('status', { maxBytes: 100 }))).toBe(
      'RESULT_TOO_LARGE',
    );
  });

  test('list returns one level, sorted, with links as links', async () => {
    const { root, workspace } = place();
    await workspace.write('b/inner', 'x');
    await workspace.write('a', '123');
    symlinkSync('/etc', join(root, 'c'));
    expect(await workspace.list('.')).toEqual([
      { path: 'a', kind: 'file', bytes: 3 },
      { path: 'b', kind: 'directory', bytes: 0 },
      { path: 'c', kind: 'other', bytes: 0 },
    ]);
    expect(await workspace.list('b/')).toEqual([{ path: 'b/inner', kind: 'file', bytes: 1 }]);
  });
});

describe('writing', () => {
  test('with access to read only, write is PERMISSION_DENIED (A9)', async () => {
    const { root } = place();
    expect(await codeOf(openWorkspace(root, 'read').write('file', 'x'))).toBe('PERMISSION_DENIED');
    expect(existsSync(join(root, 'file'))).toBe(false);
  });

  test('keeps the permissions of the file that it replaces', async () => {
    const { root, workspace } = place();
    writeFileSync(join(root, 'script'), 'old');
    chmodSync(join(root, 'script'), 0o751);
    await workspace.write('script', 'new');
    expect(statSync(join(root, 'script')).mode & 0o777).toBe(0o751);
  });

  test('bytes and text come back as they were given', async () => {
    const { workspace } = place();
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    expect(await workspace.write('bytes', bytes)).toEqual({ created: true, bytes: 256 });
    expect(new Uint8Array(await workspace.read('bytes'))).toEqual(bytes);
    expect(await workspace.write('text', 'ü\r\n')).toEqual({ created: true, bytes: 4 });
  });

  test('a reader never sees a part of a file', async () => {
    const { root, workspace } = place();
    const versions = ['a', 'b'].map((letter) => letter.repeat(1_000_000));
    await workspace.write('file', versions[0] ?? '');
    let reads = 0;
    const writer = (async () => {
      for (let turn = 0; reads < 20; turn += 1) await workspace.write('file', versions[turn % 2] ?? '');
    })();
    for (; reads < 20; reads += 1) expect(versions).toContain(await text(workspace.read('file')));
    await writer;
    expect(readdirSync(root)).toEqual(['file']);
  });

  test('removes its temporary file when it fails', async () => {
    const { root, workspace } = place();
    mkdirSync(join(root, 'gone'));
    const writing = workspace.write('gone/file', Buffer.alloc(64 * 1024 * 1024));
    while (readdirSync(join(root, 'gone')).length === 0) await new Promise((resolve) => setImmediate(resolve));
    renameSync(join(root, 'gone'), join(root, 'moved')); // the folder is no longer where the walk found it
    await writing.catch(() => undefined);
    for (const folder of ['gone', 'moved']) {
      const names = existsSync(join(root, folder)) ? readdirSync(join(root, folder)) : [];
      expect(names.filter((name) => name.endsWith('.tmp'))).toEqual([]);
    }
  });

  test('closes every descriptor that it opens', async () => {
    const { workspace } = place();
    await workspace.write('a/b/c/file', 'x');
    const open = () => readdirSync('/proc/self/fd').length;
    const before = open();
    for (let turn = 0; turn < 20; turn += 1) {
      await workspace.write('a/b/c/file', 'x');
      await workspace.read('a/b/../b/c/file');
      await workspace.list('a/b');
      await codeOf(workspace.read('a/b/absent/file'));
      await codeOf(workspace.read('a/../../x'));
    }
    expect(open()).toBeLessThanOrEqual(before);
  });
});

describe('a workspace below the folder of all workspaces works (A11)', () => {
  /** The folder of all workspaces, reached through a link, with a workspace in it and a link that leads out. */
  function ground() {
    const folder = temporaryFolder();
    const real = join(folder, 'real');
    mkdirSync(join(real, 'mine'), { recursive: true });
    mkdirSync(join(folder, 'outside'));
    writeFileSync(join(folder, 'outside', 'secret'), 'secret');
    writeFileSync(join(real, 'mine', 'note'), 'note');
    symlinkSync(real, join(folder, 'workspaces'));
    symlinkSync('../outside', join(real, 'out'));
    symlinkSync('mine', join(real, 'also-mine'));
    addWorkspaceFolder(join(folder, 'workspaces'));
    return join(folder, 'workspaces');
  }

  test.each(['out', 'mine/../out', 'out/.'])('the root %s, which leads out, is refused', async (name) => {
    const root = `${ground()}/${name}`;
    const workspace = openWorkspace(root, 'write');
    expect(await codeOf(workspace.read('secret'))).toBe('PERMISSION_DENIED');
    expect(await codeOf(workspace.list('.'))).toBe('PERMISSION_DENIED');
    expect(await codeOf(workspace.write('new', 'x'))).toBe('PERMISSION_DENIED');
    expect(await codeOf(workspace.search({ pattern: 'secret' }))).toBe('PERMISSION_DENIED');
    expect(await codeOf(resolveFolder(root, '.'))).toBe('PERMISSION_DENIED');
  });

  test.each(['mine', 'also-mine'])('the root %s, which stays inside, works', async (name) => {
    expect(await text(openWorkspace(join(ground(), name), 'read').read('note'))).toBe('note');
  });

  test('a root that becomes a link after it was opened is refused from then on', async () => {
    const root = join(ground(), 'mine');
    const workspace = openWorkspace(root, 'read');
    expect(await text(workspace.read('note'))).toBe('note');
    renameSync(root, `${root}-moved`);
    symlinkSync('../outside', root);
    expect(await codeOf(workspace.read('secret'))).toBe('PERMISSION_DENIED');
  });
});
