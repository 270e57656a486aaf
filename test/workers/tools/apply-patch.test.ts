import {
  chmodSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { applyPatch } from '../../../src/workers/tools/apply-patch.ts';
import { type TestContext, temporaryFolder, testContext } from '../../helpers/context.ts';

const patch = (...lines: string[]) => ({ patch: ['*** Begin Patch', ...lines, '*** End Patch'].join('\n') });

function folderWith(files: Readonly<Record<string, string>>): { root: string; ctx: TestContext } {
  const root = temporaryFolder();
  for (const [path, content] of Object.entries(files)) writeFileSync(join(root, path), content);
  return { root, ctx: testContext({ workspaceRoot: root }) };
}

/** All files of a folder with their contents. */
function contentsOf(root: string): Record<string, string> {
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  return Object.fromEntries(
    files.map((each) => [
      join(each.parentPath, each.name).slice(root.length + 1),
      readFileSync(join(each.parentPath, each.name), 'utf8'),
    ]),
  );
}

const everyKind = patch(
  '*** Add File: new/a.txt',
  '+a',
  '*** Update File: b.txt',
  '@@',
  '-b',
  '+B',
  '*** Delete File: c.txt',
  '*** Update File: d.txt',
  '*** Move to: moved/d.txt',
  '@@',
  '-d',
  '+D',
);

test('adds, changes, deletes and moves files in one step, and names them (A12, C17)', async () => {
  const { root, ctx } = folderWith({ 'b.txt': 'b\n', 'c.txt': 'c\n', 'd.txt': 'd\n' });
  const result = await applyPatch.run(everyKind, ctx);
  expect(contentsOf(root)).toEqual({ 'new/a.txt': 'a\n', 'b.txt': 'B\n', 'moved/d.txt': 'D\n' });
  expect(result).toMatchObject({
    output: {
      files: [
        { path: 'new/a.txt', change: 'added' },
        { path: 'b.txt', change: 'modified' },
        { path: 'c.txt', change: 'deleted' },
        { path: 'd.txt', change: 'moved', movedTo: 'moved/d.txt' },
      ],
    },
    display: 'Patched 4 files: added new/a.txt, modified b.txt, deleted c.txt, moved d.txt',
  });
  expect(ctx.changes.changes().map(({ path }) => path)).toEqual([
    'new/a.txt',
    'b.txt',
    'c.txt',
    'moved/d.txt',
    'd.txt',
  ]);
});

test.each([
  ['as it is', []],
  ['with changes', ['@@', '-run', '+RUN']],
])('a program that moves %s can still be run', async (_, hunks) => {
  const { root, ctx } = folderWith({ run: 'run\n' });
  chmodSync(join(root, 'run'), 0o755);
  await applyPatch.run(patch('*** Update File: run', '*** Move to: bin/run', ...hunks), ctx);
  expect(statSync(join(root, 'bin/run')).mode & 0o777).toBe(0o755);
});

test('a git diff says which files can be run', async () => {
  const { root, ctx } = folderWith({ 'a.sh': 'a\n', 'b.sh': 'b\n', 'c.sh': 'c\n' });
  chmodSync(join(root, 'b.sh'), 0o755);
  const diff = [
    'diff --git a/new.sh b/new.sh',
    'new file mode 100755',
    '--- /dev/null',
    '+++ b/new.sh',
    '@@ -0,0 +1 @@',
    '+n',
    'diff --git a/a.sh b/a.sh',
    'old mode 100644',
    'new mode 100755',
    'diff --git a/b.sh b/b.sh',
    'old mode 100755',
    'new mode 100644',
    '--- a/b.sh',
    '+++ b/b.sh',
    '@@ -1 +1 @@',
    '-b',
    '+B',
    'diff --git a/c.sh b/d.sh',
    'old mode 100644',
    'new mode 100755',
    'similarity index 100%',
    'rename from c.sh',
    'rename to d.sh',
  ].join('\n');
  await applyPatch.run({ patch: diff }, ctx);
  expect(contentsOf(root)).toEqual({ 'new.sh': 'n\n', 'a.sh': 'a\n', 'b.sh': 'B\n', 'd.sh': 'c\n' });
  const canBeRun = (name: string) => (statSync(join(root, name)).mode & 0o100) !== 0;
  expect(['new.sh', 'a.sh', 'b.sh', 'd.sh'].filter(canBeRun)).toEqual(['new.sh', 'a.sh', 'd.sh']);
});

describe('all or nothing', () => {
  test.each([
    ['a hunk of the last file does not fit', ['*** Update File: d.txt', '@@', '-zzz', '+y'], 'PRECONDITION_FAILED'],
    ['a file to delete is absent', ['*** Delete File: zzz'], 'NOT_FOUND'],
    ['a file to add exists', ['*** Add File: d.txt', '+x'], 'PRECONDITION_FAILED'],
    [
      'a move ends at a file that exists',
      ['*** Update File: d.txt', '*** Move to: c.txt', '@@', '-d', '+D'],
      'PRECONDITION_FAILED',
    ],
    ['a path leaves the workspace', ['*** Add File: ../out.txt', '+x'], 'PERMISSION_DENIED'],
    ['a link leads out of the workspace', ['*** Update File: link', '@@', '-secret', '+x'], 'PERMISSION_DENIED'],
    ['a file is changed twice', ['*** Update File: b.txt', '@@', '-b', '+x'], 'INVALID_PARAMS'],
  ])('%s', async (_name, lines, code) => {
    const { root, ctx } = folderWith({ 'b.txt': 'b\n', 'c.txt': 'c\n', 'd.txt': 'd\n' });
    const outside = join(temporaryFolder(), 'secret');
    writeFileSync(outside, 'secret\n');
    symlinkSync(outside, join(root, 'link'));
    const before = contentsOf(root);
    await expect(
      applyPatch.run(patch('*** Update File: b.txt', '@@', '-b', '+B', ...lines), ctx),
    ).rejects.toMatchObject({ code });
    expect(contentsOf(root)).toEqual(before);
    expect(readFileSync(outside, 'utf8')).toBe('secret\n');
  });

  test('a failed rename undoes the ones before it', async () => {
    const { root, ctx } = folderWith({ 'a.txt': 'a\n', 'z.txt': 'z\n' });
    await expect(
      ctx.workspace.commit([
        { kind: 'write', path: 'a.txt', content: 'A\n' },
        { kind: 'remove', path: 'z.txt' },
        // The file is absent when it is compared and exists when it is put in place, because the change before creates
        // it.
        { kind: 'write', path: 'b.txt', content: 'b' },
        { kind: 'write', path: 'b.txt/c.txt', content: 'c' },
      ]),
    ).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
    const { 'a.txt': a, 'z.txt': z } = contentsOf(root);
    expect([a, z]).toEqual(['a\n', 'z\n']);
    expect(readdirSync(root).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });
});

describe('a symbolic link', () => {
  test('is deleted or moved itself, and its target stays', async () => {
    const { root, ctx } = folderWith({ 'a.txt': 'a\n' });
    for (const name of ['deleted', 'moved']) symlinkSync('a.txt', join(root, name));
    await applyPatch.run(
      patch('*** Delete File: deleted', '*** Update File: moved', '*** Move to: b.txt', '@@', '-a', '+b'),
      ctx,
    );
    expect(contentsOf(root)).toEqual({ 'a.txt': 'a\n', 'b.txt': 'b\n' });
    expect(readdirSync(root).sort()).toEqual(['a.txt', 'b.txt']);
  });

  test('to a folder, or out of the workspace, is deleted, as is a file that is too large to be read', async () => {
    const { root, ctx } = folderWith({ 'large.bin': '' });
    truncateSync(join(root, 'large.bin'), 17 * 1024 * 1024);
    const outside = temporaryFolder();
    writeFileSync(join(outside, 'kept'), '');
    symlinkSync(outside, join(root, 'folder'));
    symlinkSync(join(outside, 'kept'), join(root, 'file'));
    await applyPatch.run(patch('*** Delete File: folder', '*** Delete File: file', '*** Delete File: large.bin'), ctx);
    expect(readdirSync(root)).toEqual([]);
    expect(readdirSync(outside)).toEqual(['kept']);
    await expect(applyPatch.run(patch('*** Delete File: ../kept'), ctx)).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    });
    await expect(applyPatch.run(patch('*** Delete File: .'), ctx)).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  });

  test('is restored when a later change of the patch fails', async () => {
    const { root, ctx } = folderWith({ 'a.txt': 'a\n' });
    symlinkSync('a.txt', join(root, 'link'));
    await expect(
      ctx.workspace.commit([
        { kind: 'remove', path: 'link' },
        { kind: 'write', path: 'b.txt', content: 'b' },
        { kind: 'write', path: 'b.txt/c.txt', content: 'c' },
      ]),
    ).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
    expect(lstatSync(join(root, 'link')).isSymbolicLink()).toBe(true);
  });

  test('is not removed if its content has changed since it was read', async () => {
    const { root, ctx } = folderWith({ 'a.txt': 'a\n' });
    symlinkSync('a.txt', join(root, 'link'));
    await expect(
      ctx.workspace.commit([{ kind: 'remove', path: 'link', expected: '0'.repeat(64) }]),
    ).rejects.toMatchObject({ code: 'PRECONDITION_FAILED' });
    expect(readdirSync(root).sort()).toEqual(['a.txt', 'link']);
  });
});

test('after a crash the files show whether the patch was applied', async () => {
  const { ctx, root } = folderWith({ 'b.txt': 'b\n', 'c.txt': 'c\n', 'd.txt': 'd\n' });
  expect(await applyPatch.probe?.(everyKind, ctx)).toEqual({ state: 'not-done' });
  await applyPatch.run(everyKind, ctx);
  expect(await applyPatch.probe?.(everyKind, ctx)).toMatchObject({ state: 'done' });
  writeFileSync(join(root, 'c.txt'), 'c\n');
  expect(await applyPatch.probe?.(everyKind, ctx)).toEqual({ state: 'unknown' });
});

test('a worker session cannot patch (A10, A17)', async () => {
  const ctx = testContext({ kind: 'worker' });
  await expect(applyPatch.run(patch('*** Add File: a', '+a'), ctx)).rejects.toMatchObject({
    code: 'PERMISSION_DENIED',
  });
  expect(existsSync(join(ctx.workspace.root, 'a'))).toBe(false);
});
