import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { startScript } from './helpers/process.ts';

const SCRIPT = fileURLToPath(new URL('fixtures/young-generation.ts', import.meta.url));
const MIB = 1_024 * 1_024;

/** The most bytes that the young generation of a process had, in which much outlives V8's collections. */
async function mostBytes(options: string): Promise<number> {
  const started = startScript(SCRIPT, [], { env: { NODE_OPTIONS: options } });
  await started.ended;
  return Number(started.stdout());
}

test('the young generation of a process stays small where Node would let it grow', async () => {
  expect(await mostBytes('')).toBeLessThanOrEqual(64 * MIB);
});

test('a program that sets the size of the young generation keeps it', async () => {
  expect(await mostBytes('--max-semi-space-size=128')).toBeGreaterThan(64 * MIB);
});
