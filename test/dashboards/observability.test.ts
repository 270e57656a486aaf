import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { exposition, MetricSet } from '../../src/shared/telemetry/metric-set.ts';
import { METRICS, type MetricDefinition } from '../../src/shared/telemetry/metrics.ts';

const FOLDER = fileURLToPath(new URL('../../dashboards/', import.meta.url));
const PREFIX = 'openclaw_tool_';
const HAS_PROMTOOL = spawnSync('promtool', ['--version']).error === undefined;

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition: string }[] };
}

/** What is read of a rule that scales workers. */
interface ScalingRule {
  readonly kind?: string;
  readonly spec?: {
    readonly triggers?: readonly { readonly metadata: { readonly query: string; readonly threshold: string } }[];
    readonly metrics?: readonly { readonly external: { readonly metric: unknown; readonly target: unknown } }[];
  };
  readonly externalRules?: readonly { readonly seriesQuery: string }[];
}

const file = (path: string) => readFileSync(join(FOLDER, path), 'utf8');
const dashboards = readdirSync(join(FOLDER, 'grafana'))
  .filter((name) => name.endsWith('.json'))
  .map((name) => ({ name, dashboard: JSON.parse(file(join('grafana', name))) as Dashboard }));
const queries = dashboards.flatMap(({ name, dashboard }) =>
  dashboard.panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ where: `${name}: ${title}`, expr }))),
);
const alerts = file('prometheus/alerts.yml');

/** Every name under which a metric can be asked for, with its labels. */
const series = new Map<string, readonly string[]>(
  Object.values(METRICS).flatMap(({ name, type, labels }: MetricDefinition): [string, readonly string[]][] =>
    type === 'histogram'
      ? [
          [`${name}_bucket`, [...labels, 'le']],
          [`${name}_sum`, labels],
          [`${name}_count`, labels],
        ]
      : [[name, labels]],
  ),
);

/** What a query asks for that does not exist. */
function wrongIn(expr: string): string[] {
  const wrong: string[] = [];
  for (const [, name = '', selector = ''] of expr.matchAll(new RegExp(`${PREFIX}(\\w+)(?:\\{([^}]*)\\})?`, 'g'))) {
    const labels = series.get(name);
    if (labels === undefined) wrong.push(name);
    for (const [, label = ''] of selector.matchAll(/(\w+)(?:=~|!~|!=|=)"/g))
      if (!labels?.includes(label)) wrong.push(`${name}{${label}}`);
  }
  const known = new Set([...series.values()].flat());
  for (const [, list = ''] of expr.matchAll(/\b(?:by|on|group_left) ?\(([^)]*)\)/g))
    for (const label of list.split(',').map((part) => part.trim()))
      if (label !== '' && !known.has(label)) wrong.push(`by ${label}`);
  return wrong;
}

test('every query of the dashboards and alerts asks for metrics and labels that exist, and every metric is on a dashboard', () => {
  expect(dashboards.map(({ dashboard }) => dashboard.uid).sort()).toEqual([
    'pawl-approvals',
    'pawl-calls',
    'pawl-fleet',
    'pawl-resilience',
  ]);
  const variables = dashboards.flatMap(({ name, dashboard }) =>
    dashboard.templating.list.map(({ definition }) => ({ where: `${name}: variable`, expr: definition })),
  );
  for (const { where, expr } of [...queries, ...variables, { where: 'alerts.yml', expr: alerts }])
    expect(wrongIn(expr), `${where}: ${expr}`).toEqual([]);
  const asked = queries.map(({ expr }) => expr).join('\n');
  for (const { name } of Object.values(METRICS)) expect(asked, name).toContain(`${PREFIX}${name}`);
  expect(wrongIn(`sum by (nobody) (${PREFIX}calls_total{session="x"}) / ${PREFIX}nothing`)).toEqual([
    'calls_total{session}',
    'nothing',
    'by nobody',
  ]);
});

test('the rules that scale workers ask for a gauge and labels that exist, and want one replica for each worker needed', () => {
  const page = readFileSync(join(FOLDER, '../docs/scaling.md'), 'utf8');
  const blocks = [...page.matchAll(/^```yaml\n([\s\S]*?)^```/gm)].map(([, text = '']) => parse(text) as ScalingRule);
  const [keda, adapter, autoscaler] = blocks;
  expect(blocks.map(({ kind }) => kind)).toEqual(['ScaledObject', undefined, 'HorizontalPodAutoscaler']);
  const needed = `${PREFIX}${METRICS.needed.name}`;
  expect(METRICS.needed.type).toBe('gauge');

  const [trigger] = keda?.spec?.triggers ?? [];
  expect(trigger?.metadata).toMatchObject({ query: `max(${needed}{tier="read-only"})`, threshold: '1' });
  expect(wrongIn(trigger?.metadata.query ?? '')).toEqual([]);

  expect(adapter?.externalRules?.map(({ seriesQuery }) => seriesQuery)).toEqual([needed]);
  const [metric] = autoscaler?.spec?.metrics ?? [];
  expect(metric?.external.metric).toEqual({ name: needed, selector: { matchLabels: { tier: 'read-only' } } });
  expect(METRICS.needed.labels).toEqual(['tier']);
  expect(metric?.external.target).toEqual({ type: 'AverageValue', averageValue: '1' });
  for (const [name = ''] of page.matchAll(/openclaw_tool_\w+/g))
    expect([...series.keys()].map((one) => PREFIX + one)).toContain(name);
});

test('every alert says how bad it is, and leads to an entry of the runbook', () => {
  const rules = alerts.split(/^ {6}- alert: /m).slice(1);
  expect(rules.length).toBeGreaterThan(10);
  const headings = readFileSync(join(FOLDER, '../docs/runbook.md'), 'utf8').matchAll(/^##+ (.+)$/gm);
  const anchors = new Set(
    [...headings].map(([, title = '']) =>
      title
        .toLowerCase()
        .replace(/[^\w\- ]/g, '')
        .replaceAll(' ', '-'),
    ),
  );
  for (const rule of rules) {
    expect(rule).toMatch(/^\w+\n/);
    expect(rule).toMatch(/severity: (page|ticket|info)/);
    expect(anchors, rule).toContain(/runbook: docs\/runbook\.md#(\S+)/.exec(rule)?.[1]);
  }
});

test('the collector uses what it defines, and takes spans where the stack sends them', () => {
  interface Collector {
    readonly receivers: { readonly otlp: { readonly protocols: { readonly http: { readonly endpoint: string } } } };
    readonly service: { readonly pipelines: { readonly traces: Readonly<Record<string, readonly string[]>> } };
  }
  const collector = parse(file('otel/collector.yml')) as Collector;
  for (const [kind, names] of Object.entries(collector.service.pipelines.traces))
    expect(Object.keys(collector[kind as keyof Collector]), kind).toEqual(expect.arrayContaining([...names]));
  const port = collector.receivers.otlp.protocols.http.endpoint.split(':').at(-1);
  const deployment = readFileSync(join(FOLDER, '../docs/deployment.md'), 'utf8');
  expect(deployment).toContain(`http://otel-collector:${port}`);
});

test('the seeds’ four alerts are there (R30)', () => {
  for (const name of ['PawlReadToolsSlow', 'PawlCircuitReopens', 'PawlFewReplays', 'PawlStaleInFlight'])
    expect(alerts).toContain(`- alert: ${name}\n`);
});

describe.skipIf(!HAS_PROMTOOL)('with promtool (skipped where it is not on the PATH)', () => {
  const promtool = (...args: string[]) =>
    execFileSync('promtool', args, { cwd: join(FOLDER, 'prometheus'), encoding: 'utf8' });

  test('Prometheus takes the configuration, the rules, and every query of the dashboards', () => {
    expect(promtool('check', 'config', 'prometheus.yml')).toContain('SUCCESS');
    const folder = mkdtempSync(join(tmpdir(), 'pawl-rules-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const rules = queries.map(({ expr }, index) => ({
      record: `query:${index}`,
      expr: expr.replaceAll('$__rate_interval', '1m').replaceAll(/"\$\w+"/g, '".*"'),
    }));
    const path = join(folder, 'queries.yml');
    writeFileSync(path, JSON.stringify({ groups: [{ name: 'queries', rules }] }));
    expect(promtool('check', 'rules', path)).toContain(`${queries.length} rules found`);
  });

  test('what a process says of itself is Prometheus’ text format, with every metric in it', () => {
    const set = new MetricSet();
    for (const definition of Object.values<MetricDefinition>(METRICS)) {
      const labels = Object.fromEntries(definition.labels.map((label) => [label, 'a "quoted" \\ value\n']));
      if (definition.type === 'histogram') set.observe(definition, labels, 7);
      else set.set(definition, labels, 1);
    }
    const { status, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: exposition('openclaw_tool', set.series()),
      encoding: 'utf8',
    });
    // It also has opinions on names, which are the seed's: those are told with status 3, what cannot be read with 1.
    expect([0, 3], stderr).toContain(status);
  });

  test('each alert fires when it should, and is quiet when it should be', () => {
    expect(promtool('test', 'rules', 'alerts.test.yml')).toContain('SUCCESS');
    const tests = file('prometheus/alerts.test.yml');
    for (const [, name = ''] of alerts.matchAll(/^ {6}- alert: (\w+)$/gm)) {
      expect(tests, `${name} fires`).toMatch(new RegExp(`alertname: ${name}\\n\\s+exp_alerts:\\n`));
      expect(tests, `${name} is quiet`).toMatch(new RegExp(`alertname: ${name}\\n\\s+exp_alerts: \\[\\]`));
    }
  });
});
