import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/index.ts';
import { startFleet } from '../../helpers/fleet.ts';

const repeat = defineTool({
  name: 'repeat',
  version: '1.0.0',
  description: 'Repeats a text.',
  tier: 'workspace',
  input: z.object({ text: z.string(), times: z.number() }),
  run: ({ text, times }) => ({ output: text.repeat(times) }),
});

test('large parameters and results of a fleet are kept in files, streamed, and replayed', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-blobs-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { session, pawl } = await startFleet({ tools: [repeat], settings: { blobStore: `file:${folder}` } });
  const params = { text: 'é'.repeat(200_000), times: 3 };
  const first = await session.call(repeat, params, { idempotencyKey: 'large' });
  expect(first.status === 'success' && first.output.content === params.text.repeat(3)).toBe(true);
  const files = readdirSync(folder, { recursive: true }).map(String);
  for (const kind of ['params', 'outcome'])
    expect(files.filter((file) => file.includes(kind)).length).toBeGreaterThan(1);
  const again = await session.call(repeat, params, { idempotencyKey: 'large' });
  expect(again).toMatchObject({ status: 'success', fromCache: true });
  expect(again.output?.content === first.output?.content).toBe(true);
  const parts: Buffer[] = [];
  for await (const part of await pawl.outputStream(first.callId ?? '')) parts.push(part as Buffer);
  expect(JSON.parse(Buffer.concat(parts).toString()) === params.text.repeat(3)).toBe(true);
});
