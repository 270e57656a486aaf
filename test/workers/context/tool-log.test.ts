import { expect, test } from 'vitest';
import { z } from 'zod';
import { ToolError } from '../../../src/shared/errors/failure.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { ToolContext } from '../../../src/shared/tools/tool-context.ts';
import { createLocalRunner } from '../../../src/testing.ts';

/** The log line that a tool in plain JavaScript writes, and the outcome of its call. */
async function lineFrom(say: (log: Record<'error', (...given: unknown[]) => void>) => void) {
  const lines: [fields: object, message: string][] = [];
  const keep = (fields: object, message: string) => void lines.push([fields, message]);
  const tool = defineTool({
    name: 'tells',
    version: '1.0.0',
    description: 'Writes into the log.',
    tier: 'read-only',
    input: z.object({ token: z.string() }),
    run: (_params, ctx: ToolContext) => {
      say(ctx.log as never);
      return { output: null };
    },
  });
  const runner = createLocalRunner({ tools: [tool], log: { debug: keep, info: keep, warn: keep, error: keep } });
  const { status } = await runner.run(tool, { token: 'not-for-the-log' });
  await runner.close();
  const [fields, message] = lines[0] ?? [];
  return { status, fields, message };
}

const failed = new Error('no way to the shop');

test.each<[string, Parameters<typeof lineFrom>[0], string]>([
  ['as a field', (log) => log.error('cannot buy', { error: failed }), 'cannot buy'],
  ['in place of the fields', (log) => log.error('cannot buy', failed), 'cannot buy'],
  ['alone', (log) => log.error(failed), 'no way to the shop'],
])('an error that a tool logs %s is shown with its stack', async (_how, say, message) => {
  expect(await lineFrom(say)).toMatchObject({
    status: 'success',
    message,
    fields: { toolName: 'tells', error: expect.stringMatching(/^Error: no way to the shop\n +at /) },
  });
});

test('fields before the text, in pino’s order, are logged, too', async () => {
  const line = await lineFrom((log) => log.error({ shop: 7, seen: 'not-for-the-log' }, 'cannot buy'));
  expect(line).toMatchObject({ status: 'success', message: 'cannot buy', fields: { shop: 7, seen: '[redacted]' } });
});

test.each([[undefined], [null], [7]])('%s in place of the text does not fail the call', async (message) => {
  expect(await lineFrom((log) => log.error(message))).toMatchObject({ status: 'success', message: String(message) });
});

test('an unforeseen error is logged with its stack; a ToolError is a result and is not logged', async () => {
  const events: unknown[] = [];
  const keep = (fields: object) => void events.push({ ...fields });
  const tool = defineTool({
    name: 'throws',
    version: '1.0.0',
    description: 'Fails.',
    tier: 'read-only',
    input: z.object({ foreseen: z.boolean() }),
    run: ({ foreseen }) => {
      throw foreseen ? new ToolError('This account has no such invoice.') : new TypeError('invoice is undefined');
    },
  });
  const runner = createLocalRunner({ tools: [tool], log: { debug: keep, info: keep, warn: keep, error: keep } });
  expect(await runner.run(tool, { foreseen: true })).toMatchObject({ error: { code: 'TOOL_FAILED' } });
  expect(await runner.run(tool, { foreseen: false })).toMatchObject({ error: { code: 'TOOL_FAILED' } });
  await runner.close();
  const thrown = events.filter((fields) => (fields as { event?: string }).event === 'tool_exception');
  expect(thrown).toMatchObject([{ toolName: 'throws', stack: expect.stringContaining('TypeError: invoice') }]);
});
