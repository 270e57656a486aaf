import { expect, test } from 'vitest';
import { EXPOSITION_TYPE, exposition, MetricSet, withoutTool } from '../../../src/shared/telemetry/metric-set.ts';
import { METRICS, ToolLabels } from '../../../src/shared/telemetry/metrics.ts';

test('counts, gauges and histograms become series that can be added up', () => {
  const set = new MetricSet();
  set.count(METRICS.retriesRefused, { tool: 'echo' });
  set.count(METRICS.retriesRefused, { tool: 'echo' }, 2);
  set.set(METRICS.workers, { tier: 'system' }, 3);
  for (const ms of [1, 5, 6, 400_000]) set.observe(METRICS.queueWait, { tier: 'system' }, ms);
  const series = set.series();
  expect(series.get('retries_refused_total{tool="echo"}')).toBe(3);
  expect(series.get('workers{tier="system"}')).toBe(3);
  expect(series.get('queue_wait_ms_bucket{le="5",tier="system"}')).toBe(2);
  expect(series.get('queue_wait_ms_bucket{le="10",tier="system"}')).toBe(3);
  expect(series.get('queue_wait_ms_bucket{le="+Inf",tier="system"}')).toBe(4);
  expect(series.get('queue_wait_ms_count{tier="system"}')).toBe(4);
  expect(series.get('queue_wait_ms_sum{tier="system"}')).toBe(400_012);
});

test('the text has help and type of every metric, escapes what stands in labels, and leaves unknown series out', () => {
  const set = new MetricSet();
  set.count(METRICS.retriesRefused, { tool: 'a"b\\c\nd' });
  const text = exposition('mine', [...set.series(), ['something_else{x="1"}', 1]]);
  expect(text).toContain('# HELP mine_retries_refused_total Retries');
  expect(text).toContain(
    '# TYPE mine_retries_refused_total counter\nmine_retries_refused_total{tool="a\\"b\\\\c\\nd"} 1\n',
  );
  expect(text.match(/^# TYPE /gm)).toHaveLength(Object.keys(METRICS).length);
  expect(text).not.toContain('something_else');
  expect(EXPOSITION_TYPE).toMatch(/^text\/plain; version=0\.0\.4/);
});

test.each([1, 7, 23])(
  'the buckets of a histogram ascend and stay together, in whatever order its series come (%i)',
  (step) => {
    const set = new MetricSet();
    for (const tool of ['a', 'le="5"', 'z'])
      for (const ms of [1, 70, 400_000]) set.observe(METRICS.duration, { tool, status: 'success' }, ms);
    for (const ms of [1, 70]) set.observe(METRICS.inboxLag, {}, ms);
    const series = [...set.series()];
    const turned = series.map((_, index) => series[(index * step + 5) % series.length] ?? (['', 0] as const));
    const buckets = exposition('p', turned)
      .split('\n')
      .filter((line) => line.includes('_bucket{'));
    const inOrder = exposition('p', series)
      .split('\n')
      .filter((line) => line.includes('_bucket{'));
    expect(buckets.toSorted()).toEqual(inOrder.toSorted());
    const seriesOf = (line: string) => line.replace(/le="[^"]*",?/, '').replace(/ \S+$/, '');
    const together = buckets.map(seriesOf).filter((each, index, all) => each !== all[index - 1]);
    expect(together).toHaveLength(new Set(together).size);
    for (const one of together) {
      const bounds = buckets.filter((line) => seriesOf(line) === one).map((line) => /le="([^"]*)"/.exec(line)?.[1]);
      expect(bounds).toEqual(
        inOrder.filter((line) => seriesOf(line) === one).map((line) => /le="([^"]*)"/.exec(line)?.[1]),
      );
    }
  },
);

test('a series beyond the bound is counted under other, whatever its tool is named', () => {
  expect(withoutTool('calls_total{tool="a\\"}b",status="error",scope="session"}', 'other')).toBe(
    'calls_total{tool="other",status="error",scope="session"}',
  );
  expect(withoutTool('call_duration_ms_bucket{le="5",tool="x",status="error"}', 'other')).toBe(
    'call_duration_ms_bucket{le="5",tool="other",status="error"}',
  );
  expect(withoutTool('workers{tier="system"}', 'other')).toBe('workers{tier="system"}');
});

test('500 tools have labels of their own; further and unpublished tools count as other', () => {
  const labels = new ToolLabels();
  for (let number = 0; number < 600; number += 1) labels.add({ namespace: 'tools', name: `tool${number}` });
  expect(labels.labelFor('tools', 'tool499')).toBe('tool499');
  expect(labels.labelFor('tools', 'tool500')).toBe('other');
  expect(labels.labelFor('tools', 'nobody')).toBe('other');
  expect([...labels.all()]).toHaveLength(500);
});
