import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { baseTools } from '../../../src/workers/tools/index.ts';

test('docs/base-tools.md describes every tool exactly, and no other', () => {
  const text = readFileSync(new URL('../../../docs/base-tools.md', import.meta.url), 'utf8');
  const rows = text.split('\n').filter((line) => /^\| `\w+` \|/.test(line));
  const told = rows.map((row) =>
    row
      .split('|')
      .slice(1, 5)
      .map((cell) => cell.trim()),
  );
  const expected = baseTools.map((tool) => [
    `\`${tool.name}\``,
    tool.tier,
    tool.effects,
    Object.keys(tool.inputSchema['properties'] ?? {})
      .map((name) => `\`${name}\``)
      .join(', '),
  ]);
  expect(told).toEqual(expected);
});
