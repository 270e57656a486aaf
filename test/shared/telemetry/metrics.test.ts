import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { METRICS, type MetricDefinition } from '../../../src/shared/telemetry/metrics.ts';

const PAGE = new URL('../../../docs/metrics.md', import.meta.url);
const WHO = { producer: 'producers', worker: 'workers', both: 'both', fleet: 'read from Redis' } as const;

const row = ({ name, type, labels, countedBy, help }: MetricDefinition) =>
  `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} | ${WHO[countedBy]} | ${help} |`;

test('docs/metrics.md lists every metric with its type, labels and meaning, and no other', () => {
  const table = [
    '| metric | type | labels | counted by | meaning |',
    '|---|---|---|---|---|',
    ...Object.values(METRICS).map(row),
  ].join('\n');
  expect(readFileSync(PAGE, 'utf8')).toContain(`\n${table}\n\n`);
});
