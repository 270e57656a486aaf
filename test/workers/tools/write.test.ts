import { expect, test } from 'vitest';
import { previewCall } from '../../../src/workers/approvals/preview.ts';
import { applyPatch } from '../../../src/workers/tools/apply-patch.ts';
import { edit } from '../../../src/workers/tools/edit.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';

test('write creates a file with its folders, then replaces it, and names the artifact (A12, A16)', async () => {
  const ctx = testContext();
  expect(await write.run({ path: 'a/b/c.txt', content: 'ü\n' }, ctx)).toEqual({
    output: { path: 'a/b/c.txt', created: true, bytes: 3, hash: expect.stringMatching(/^[0-9a-f]{64}$/) },
    display: 'Created a/b/c.txt (3 bytes)',
    artifacts: [{ kind: 'file-created', reference: 'a/b/c.txt' }],
  });
  expect(await write.run({ path: 'a/b/c.txt', content: '' }, ctx)).toMatchObject({
    output: { created: false, bytes: 0 },
    artifacts: [{ kind: 'file-modified', reference: 'a/b/c.txt' }],
  });
  expect(await ctx.workspace.read('a/b/c.txt')).toHaveLength(0);
});

test('a path of thousands of folders is refused before any is made, because it would keep a worker busy for minutes', async () => {
  const ctx = testContext();
  for (const depth of [257, 2_000])
    await expect(write.run({ path: `${'d/'.repeat(depth)}x`, content: '' }, ctx)).rejects.toMatchObject({
      code: 'INVALID_PARAMS',
      message: expect.stringMatching(/ lies more than 256 folders deep\.$/),
    });
  expect(await ctx.workspace.list('.')).toEqual([]);
});

test('write out of the workspace, or in a worker session, is PERMISSION_DENIED (A10, A11, A17)', async () => {
  const denied = { code: 'PERMISSION_DENIED' };
  await expect(write.run({ path: '../x', content: '' }, testContext())).rejects.toMatchObject(denied);
  await expect(write.run({ path: 'x', content: '' }, testContext({ kind: 'worker' }))).rejects.toMatchObject(denied);
});

test('write is in the workspace tier, and a second run is harmless', async () => {
  expect([write.tier, write.effects, write.needs]).toEqual([
    'workspace',
    'idempotent',
    ['workspace:read', 'workspace:write'],
  ]);
  expect(await previewCall(write, { path: 'x', content: 'ab\n' }, { workspaceRoot: temporaryFolder() })).toEqual({
    summary: 'Create x (3 bytes)',
    details: '--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+ab\n',
  });
});

test('a text with half of a character is refused instead of written with another', async () => {
  const ctx = testContext();
  await ctx.workspace.write('file', 'a\n');
  const patch = '*** Begin Patch\n*** Update File: file\n@@\n-a\n+\ude00\n*** End Patch';
  for (const writing of [
    () => write.run(write.parse({ path: 'file', content: 'x\ud83d' }), ctx),
    () => edit.run(edit.parse({ path: 'file', old_string: 'a', new_string: '\ud83d' }), ctx),
    () => applyPatch.run(applyPatch.parse({ patch }), ctx),
  ])
    await expect((async () => writing())()).rejects.toMatchObject({
      code: 'INVALID_PARAMS',
      message: expect.stringContaining('half of a character'),
    });
  expect(Buffer.from(await ctx.workspace.read('file')).toString()).toBe('a\n');
});
