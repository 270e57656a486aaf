import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { WorkspaceChange } from '../../../src/shared/tools/capabilities.ts';
import { edit } from '../../../src/workers/tools/edit.ts';
import { hashOf } from '../../../src/workers/tools/lib/text-file.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { openWorkspace } from '../../../src/workers/workspace/workspace.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';

describe('a change is compared with the file in the same step', () => {
  test('by the hash of the file, or its absence', async () => {
    const workspace = openWorkspace(temporaryFolder(), 'write');
    await workspace.write('file', 'one', { expected: 'absent' });
    await expect(workspace.write('file', 'two', { expected: 'absent' })).rejects.toMatchObject({
      code: 'PRECONDITION_FAILED',
    });
    const hash = hashOf(Buffer.from('one'));
    await workspace.write('file', 'two', { expected: hash });
    await expect(workspace.write('file', 'three', { expected: hash })).rejects.toThrow('has changed since it was read');
    await expect(workspace.commit([{ kind: 'remove', path: 'file', expected: hash }])).rejects.toMatchObject({
      code: 'PRECONDITION_FAILED',
    });
    await workspace.commit([{ kind: 'remove', path: 'file' }]);
    await expect(workspace.write('file', 'x', { expected: hash })).rejects.toThrow('no longer exists');
    expect(await workspace.list('.')).toEqual([]);
  });

  test('edits by several processes at once lose none', async () => {
    const root = temporaryFolder();
    writeFileSync(join(root, 'file'), 'begin\nend\n');
    const script = fileURLToPath(new URL('../fixtures/edit-file.ts', import.meta.url));
    const marks = ['a', 'b', 'c'];
    await Promise.all(marks.map((mark) => promisify(execFile)(process.execPath, [script, root, mark, '15'])));
    const lines = readFileSync(join(root, 'file'), 'utf8').split('\n');
    expect(lines.slice(1, -2).sort()).toEqual(
      marks.flatMap((mark) => Array.from({ length: 15 }, (_, index) => `${mark}${index}`)).sort(),
    );
    expect(readdirSync(root)).toEqual(['file']);
  });
});

describe('expected_hash of the tools', () => {
  test('edit refuses a file that has changed since it was read, and makes several edits or none', async () => {
    const ctx = testContext();
    await ctx.workspace.write('file', 'a b c');
    const hash = hashOf(Buffer.from('a b c'));
    const edits = [
      { old_string: 'a', new_string: 'x' },
      { old_string: 'x b', new_string: 'y' },
    ];
    const result = await edit.run(edit.parse({ path: 'file', edits, expected_hash: hash }), ctx);
    expect(result.output).toEqual({ path: 'file', replacements: 2, hash: hashOf(Buffer.from('y c')) });
    await expect(edit.run(edit.parse({ path: 'file', edits, expected_hash: hash }), ctx)).rejects.toMatchObject({
      code: 'PRECONDITION_FAILED',
    });
    const half = [{ old_string: 'y', new_string: 'z' }, ...edits];
    await expect(edit.run(edit.parse({ path: 'file', edits: half }), ctx)).rejects.toThrow('Edit 2 of 3');
    expect(readFileSync(join(ctx.workspace.root, 'file'), 'utf8')).toBe('y c');
  });

  test.each([
    [{ path: 'f' }, 'old_string is required'],
    [{ path: 'f', old_string: 'a' }, 'new_string is required'],
    [{ path: 'f', old_string: 'a', edits: [{ old_string: 'a', new_string: 'b' }] }, 'cannot be given together'],
  ])('edit %j: %s', async (params, message) => {
    await expect(async () => edit.run(edit.parse(params), testContext())).rejects.toMatchObject({
      code: 'INVALID_PARAMS',
      message: expect.stringContaining(message),
    });
  });

  test('write refuses it too, and a second attempt of the same write is no refusal', async () => {
    const ctx = testContext();
    const params = { path: 'file', content: 'new', expected_hash: 'absent' };
    expect((await write.run(params, ctx)).output).toMatchObject({ created: true });
    expect((await write.run(params, ctx)).output).toMatchObject({ created: false, hash: hashOf(Buffer.from('new')) });
    await expect(write.run({ ...params, content: 'other' }, ctx)).rejects.toMatchObject({
      code: 'PRECONDITION_FAILED',
    });
  });
});

describe('a change that is refused leaves no folder', () => {
  const write = (path: string, expected?: string): WorkspaceChange => ({
    kind: 'write',
    path,
    content: 'x',
    ...(expected !== undefined && { expected }),
  });
  test.each<readonly [string, readonly WorkspaceChange[]]>([
    ['the file is one of the owner’s', [write('new/.cargo/config')]],
    ['the path names a folder', [write('new/deep/')]],
    ['a folder on the way is one of the owner’s', [write('new/sub/.vscode/tasks.json')]],
    ['the name is too long', [write(`new/deep/${'x'.repeat(300)}`)]],
    ['the file is expected', [write('new/deep/file', 'f'.repeat(64))]],
    ['the path leaves the workspace through a link', [write('new/a'), write('out/b')]],
    ['another change is refused', [write('new/a/b'), write('new/a/c'), write('other/d'), write('.envrc')]],
    ['another file is gone', [write('new/a/b'), { kind: 'remove', path: 'gone' }]],
  ])('because %s', async (_name, changes) => {
    const root = temporaryFolder();
    symlinkSync('/usr', join(root, 'out'));
    await expect(openWorkspace(root, 'write').commit(changes)).rejects.toThrow();
    expect(readdirSync(root)).toEqual(['out']);
  });

  test('and takes none away from another writer', async () => {
    const workspace = openWorkspace(temporaryFolder(), 'write');
    for (let round = 0; round < 30; round += 1) {
      const refused = [1, 2, 3].map((n) => workspace.write(`${round}/deep/.envrc${'/x'.repeat(n)}`, 'x'));
      const written = [1, 2, 3].map((n) => workspace.write(`${round}/deep/file${n}`, 'x'));
      for (const each of await Promise.allSettled(refused)) expect(each.status).toBe('rejected');
      await Promise.all(written);
      expect(await workspace.list(`${round}/deep`)).toHaveLength(3);
    }
  });
});
