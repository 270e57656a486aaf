import { expect, test } from 'vitest';
import { MAX_SERIES, MAX_TOOLS, METRICS, type MetricDefinition } from '../../../../src/shared/telemetry/metrics.ts';
import { eventually } from '../../../helpers/signal.ts';
import { startRig, testTools } from '../rig.ts';

/** More than the tools that may have series of their own. */
const NUMBER = MAX_TOOLS + 200;
/** As the contract allows them, and as it does not. */
const hostile = (number: number) =>
  [`invented-${number}`, `a.b.c${number}`, `x"} 1\ny{z="${number}`, `${'n'.repeat(200)}${number}`][number % 4] ?? '';

test(`${NUMBER} sessions, keys and hostile tool names add no series beyond the bound of docs/metrics.md`, {
  timeout: 300_000,
}, async () => {
  const rig = await startRig(testTools());
  /** Every eighth call is of a tool that there is. */
  const call = (number: number) =>
    rig.call({
      tool: number % 8 === 0 ? 'echo' : hostile(number),
      session: `s${number}`,
      idempotencyKey: `k${number}`,
      params: { text: `t${number}` },
    });
  const seriesNow = async () =>
    (await rig.ask('/metrics')).text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => line.slice(0, line.lastIndexOf(' ')));
  for (let number = 0; number < 8; number += 1) await call(number);
  // The worker says every two seconds what it has counted.
  const before = await eventually(
    async () => {
      const series = await seriesNow();
      // The first reading learns which tools there are; the next one shows a count of 0 for each.
      const shows = (part: string) => series.some((name) => name.includes(part));
      return shows('attempts_total{tool="echo"') && shows('hits_total{tool="hold"') && series;
    },
    { everyMs: 100 },
  );
  for (let from = 8; from < NUMBER; from += 50)
    await Promise.all(Array.from({ length: Math.min(50, NUMBER - from) }, (_, offset) => call(from + offset)));
  const after = await seriesNow();

  expect(after.filter((series) => !before.includes(series))).toEqual([]);
  const names = after.join('\n');
  expect(names).not.toMatch(/invented|a\.b\.c|nnnn|z=/);
  const tools = new Set([...names.matchAll(/tool="([^"]*)"/g)].map(([, tool]) => tool));
  expect([...tools].sort()).toEqual(['acme.far.echo', 'echo', 'fail', 'hold', 'other'].sort());
  const labels = new Set([...names.matchAll(/([a-z_]+)="/g)].map(([, label]) => label));
  const documented = Object.values(METRICS).flatMap(({ labels: own }: MetricDefinition) => own);
  expect([...labels].filter((label) => label !== 'le' && !documented.includes(label ?? ''))).toEqual([]);
  expect(after.length).toBeLessThan(MAX_SERIES);
  expect(tools.size).toBeLessThan(MAX_TOOLS);
});
