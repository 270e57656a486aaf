import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { ToolPreview } from '../../../src/shared/tools/tool-variant.ts';
import { previewCall } from '../../../src/workers/approvals/preview.ts';
import { edit } from '../../../src/workers/tools/edit.ts';
import { execCommand } from '../../../src/workers/tools/exec-command.ts';
import { shell } from '../../../src/workers/tools/shell.ts';
import { shellCommand } from '../../../src/workers/tools/shell-command.ts';
import { write } from '../../../src/workers/tools/write.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

const tool = (preview?: () => ToolPreview | Promise<ToolPreview>) =>
  defineTool({
    name: 'sell',
    version: '1.0.0',
    title: 'Sell shares',
    description: 'x',
    tier: 'elevated',
    input: z.object({ count: z.number() }),
    run: () => ({ output: null }),
    ...(preview === undefined ? {} : { preview }),
  });
const session = { workspaceRoot: '/nowhere' };
const plain = { summary: 'Sell shares (elevated)', details: '{\n  "count": 3\n}' };

describe('D4: what a call would do', () => {
  test('write and edit show a real diff, and change nothing', async () => {
    const workspaceRoot = temporaryFolder();
    writeFileSync(join(workspaceRoot, 'a.txt'), 'one\ntwo\nthree\n');
    expect(await previewCall(edit, { path: 'a.txt', old_string: 'two', new_string: 'TWO' }, { workspaceRoot })).toEqual(
      {
        summary: 'Edit a.txt',
        details: '--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n',
      },
    );
    expect(await previewCall(write, { path: 'a.txt', content: 'one\n' }, { workspaceRoot })).toEqual({
      summary: 'Replace a.txt (4 bytes)',
      details: '--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,1 @@\n one\n-two\n-three\n',
    });
  });

  test.each(['./'.repeat(300), 'a/../'.repeat(200), `.${' '.repeat(900)}`, '\n'.repeat(700)])(
    'a folder with a long name hides from no one that a program leaves the sandbox',
    async (workdir) => {
      const escalated = { workdir, sandbox_permissions: 'require_escalated', justification: 'x' };
      const long = 'x'.repeat(4_000);
      for (const [each, params] of [
        [shell, { command: ['rm', long] }],
        [shellCommand, { command: `rm ${long}` }],
        [execCommand, { cmd: `rm ${long}` }],
      ] as const)
        expect((await previewCall(each, { ...params, ...escalated }, session)).summary.slice(0, 200)).toContain(
          'outside of the sandbox',
        );
    },
  );

  test('without a preview of its own the parameters are shown', async () => {
    expect(await previewCall(tool(), { count: 3 }, session)).toEqual(plain);
  });

  test('a preview that throws, answers nonsense or never ends does not stand in the way', async () => {
    const throwing = tool(() => {
      throw new Error('x');
    });
    expect(await previewCall(throwing, { count: 3 }, session)).toEqual(plain);
    expect(
      await previewCall(
        tool(() => 7 as never),
        { count: 3 },
        session,
      ),
    ).toEqual(plain);
    const endless = tool(() => new Promise(() => {}));
    const atOnce = (run: () => void) => {
      queueMicrotask(run);
      return () => {};
    };
    expect(await previewCall(endless, { count: 3 }, session, atOnce)).toEqual(plain);
  });

  test.each([
    ['a text', 'Sells 3 shares', 'preview of sell must return { summary, details? } with texts; it returned a text.'],
    ['details that are none', { summary: 'x', details: {} }, 'it returned { summary: a text, details }.'],
    ['nothing', undefined, 'it returned nothing.'],
  ])('a preview that returns %s is named', async (_name, made, fault) => {
    const faults: string[] = [];
    const shown = await previewCall(
      tool(() => made as never),
      { count: 3 },
      session,
      undefined,
      (each) => faults.push(each),
    );
    expect([shown, faults]).toEqual([plain, [expect.stringContaining(fault)]]);
  });

  test('what is too long is cut, visibly', async () => {
    const long = tool(() => ({ summary: 'x'.repeat(1_000) }));
    expect((await previewCall(long, { count: 3 }, session)).summary).toBe(`${'x'.repeat(500)}… [cut]`);
  });
});

test.each([
  [false, 'Sell them'],
  [true, plain.summary],
])('a preview that began before and left nothing (%s) is not run again: %s', async (hasBegun, summary) => {
  const { pawl, startWorker } = await startFleet({ tools: [tool(() => ({ summary: 'Sell them' }))], workers: 0 });
  const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
  const { callId } = pending(await session.submit('sell', { count: 3 }));
  const { approvals } = pawl.backend;
  const id = (await approvals.idOfCall(callId)) ?? '';
  if (hasBegun) expect(await approvals.beginPreview(id)).toBe(true);
  await startWorker();
  const { preview } = await eventually(async () => {
    const record = await approvals.read(id);
    return record?.preview && record;
  });
  expect(preview?.summary).toBe(summary);
});
