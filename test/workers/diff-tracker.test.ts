import { expect, test } from 'vitest';
import { CallChanges, unifiedDiff } from '../../src/workers/diff-tracker.ts';
import { testContext } from '../helpers/context.ts';

test('C11: what a call writes is tracked, from the first content to the last', async () => {
  const ctx = testContext();
  await ctx.workspace.write('a.txt', 'one\ntwo\n');
  await ctx.workspace.write('a.txt', 'one\nthree\n');
  expect(ctx.changes.changes()).toEqual([{ path: 'a.txt', after: Buffer.from('one\nthree\n') }]);
  expect(ctx.changes.unified()).toBe('--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+three\n');
});

test('C11: what ends as it began is no change, and a tool notes what its programs did', () => {
  const changes = new CallChanges();
  changes.note({ path: 'a', before: Buffer.from('x\n'), after: Buffer.from('y\n') });
  changes.note({ path: 'a', before: Buffer.from('y\n'), after: Buffer.from('x\n') });
  changes.note({ path: 'b', before: Buffer.from('x\n') });
  expect(changes.unified()).toBe('--- a/b\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n');
});

test('binary and very large files are named only', () => {
  expect(unifiedDiff('a', undefined, Uint8Array.of(1, 0, 2))).toBe('Binary or large files /dev/null and b/a differ\n');
  expect(unifiedDiff('a', 'x', 'y'.repeat(300_000))).toBe('Binary or large files a/a and b/a differ\n');
});
