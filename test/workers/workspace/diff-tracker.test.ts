import { expect, test } from 'vitest';
import { CallDiffTracker, unifiedDiff } from '../../../src/workers/workspace/diff-tracker.ts';
import { testContext } from '../../helpers/context.ts';

test('C11: the writes of a call are tracked, from the first content to the last', async () => {
  const ctx = testContext();
  await ctx.workspace.write('a.txt', 'one\ntwo\n');
  await ctx.workspace.write('a.txt', 'one\nthree\n');
  expect(ctx.changes.changes()).toEqual([{ path: 'a.txt', after: Buffer.from('one\nthree\n') }]);
  expect(ctx.changes.unified()).toBe('--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+three\n');
});

test('C11: a file that ends as it began is no change, and a tool records the changes of its programs', () => {
  const changes = new CallDiffTracker();
  changes.note({ path: 'a', before: Buffer.from('x\n'), after: Buffer.from('y\n') });
  changes.note({ path: 'a', before: Buffer.from('y\n'), after: Buffer.from('x\n') });
  changes.note({ path: 'b', before: Buffer.from('x\n') });
  expect(changes.unified()).toBe('--- a/b\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n');
});

test('binary and very large files are named only', () => {
  expect(unifiedDiff('a', undefined, Uint8Array.of(1, 0, 2))).toBe('Binary or large files /dev/null and b/a differ\n');
  expect(unifiedDiff('a', 'x', 'y'.repeat(300_000))).toBe('Binary or large files a/a and b/a differ\n');
});

test('a file that differs in very many lines is only named, and comparing it blocks no other call', () => {
  const lines = (text: string) => `${text}\n`.repeat(60_000);
  const named = 'Files a/x and b/x differ in too many lines to be shown\n';
  expect(unifiedDiff('x', lines('a'), lines('b'))).toBe(named);
  expect(unifiedDiff('x', lines('a'), `${lines('a')}${lines('b')}`)).toBe(named);
  expect(unifiedDiff('x', undefined, lines('b'))).toContain('@@ -0,0 +1,60000 @@\n+b\n');
});

test('the changes of a call are reported quickly, however many files differ in many lines', () => {
  const changes = new CallDiffTracker();
  const lines = (text: string) => Buffer.from(`${text}\n`.repeat(1_500));
  for (let file = 0; file < 500; file += 1)
    changes.note({ path: `f${file}`, before: lines('a'), after: lines(`b${file}`) });
  const told = changes.unified();
  expect(told.split('\n').filter((line) => line.startsWith('Files '))).toHaveLength(500);
});
