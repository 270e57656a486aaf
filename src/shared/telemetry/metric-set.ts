/** Counts in memory, and Prometheus' text format. A series is identified by its line in that format, without prefix and value. */
import { getOrInsert } from '../util/get-or-insert.ts';
import { METRICS, type MetricDefinition } from './metrics.ts';

type LabelsOf<Definition extends MetricDefinition> = Readonly<Record<Definition['labels'][number], string>>;

export interface Counter {
  value: number;
}

export class Histogram {
  readonly definition: MetricDefinition;
  /** The formatted labels of the series. */
  readonly labels: readonly string[];
  /** The count of each bucket alone, without those below it; the last has no upper bound. */
  readonly counts: number[];
  readonly #buckets: readonly number[];
  sum = 0;

  constructor(definition: MetricDefinition, labels: readonly string[]) {
    this.definition = definition;
    this.labels = labels;
    this.#buckets = definition.buckets ?? [];
    this.counts = new Array<number>(this.#buckets.length + 1).fill(0);
  }

  observe(value: number): void {
    const buckets = this.#buckets;
    let index = 0;
    while (index < buckets.length && value > (buckets[index] as number)) index += 1;
    this.counts[index] = (this.counts[index] ?? 0) + 1;
    this.sum += value;
  }
}

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

export class MetricSet {
  readonly #values = new Map<string, Counter>();
  readonly #histograms = new Map<string, Histogram>();
  /** The series by metric and labels, cached because the same few come with every call. */
  readonly #names = new Map<MetricDefinition, Map<string, string>>();

  #seriesOf(definition: MetricDefinition, labels: Readonly<Record<string, string>>): string {
    const names = getOrInsert(this.#names, definition, () => new Map<string, string>());
    let key = '';
    for (const label of definition.labels) key += `${labels[label] ?? ''}\n`;
    return getOrInsert(names, key, () => seriesOf(definition.name, definition.labels.map(labelFormatter(labels))));
  }

  /** A counter to keep for repeated use: counting on it is faster than looking it up. */
  counter<Definition extends MetricDefinition>(definition: Definition, labels: LabelsOf<Definition>): Counter {
    const id = this.#seriesOf(definition, labels);
    return getOrInsert(this.#values, id, () => ({ value: 0 }));
  }

  histogram<Definition extends MetricDefinition>(definition: Definition, labels: LabelsOf<Definition>): Histogram {
    const id = this.#seriesOf(definition, labels);
    const make = () => new Histogram(definition, definition.labels.map(labelFormatter(labels)));
    return getOrInsert(this.#histograms, id, make);
  }

  count<Definition extends MetricDefinition>(
    definition: Definition,
    labels: LabelsOf<Definition>,
    increment = 1,
  ): void {
    this.counter(definition, labels).value += increment;
  }

  set<Definition extends MetricDefinition>(definition: Definition, labels: LabelsOf<Definition>, value: number): void {
    this.counter(definition, labels).value = value;
  }

  observe<Definition extends MetricDefinition>(
    definition: Definition,
    labels: LabelsOf<Definition>,
    value: number,
  ): void {
    this.histogram(definition, labels).observe(value);
  }

  /** All series with their values. Buckets include those below them, so that adding two sets gives a set. */
  series(): Map<string, number> {
    const series = new Map<string, number>();
    for (const [id, { value }] of this.#values) series.set(id, value);
    for (const { definition, labels, counts, sum } of this.#histograms.values()) {
      const bounds = [...(definition.buckets ?? []).map(String), '+Inf'];
      let total = 0;
      for (const [index, bound] of bounds.entries()) {
        total += counts[index] ?? 0;
        series.set(seriesOf(`${definition.name}_bucket`, [`le="${bound}"`, ...labels]), total);
      }
      series.set(seriesOf(`${definition.name}_sum`, labels), sum);
      series.set(seriesOf(`${definition.name}_count`, labels), total);
    }
    return series;
  }
}

function labelFormatter(labels: Readonly<Record<string, string>>): (name: string) => string {
  return (name) => `${name}="${escapeLabel(labels[name] ?? '')}"`;
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

function seriesOf(name: string, labels: readonly string[]): string {
  return labels.length === 0 ? name : `${name}{${labels.join(',')}}`;
}

/** The series that counts tools beyond the bound. */
export function withoutTool(series: string, other: string): string {
  return series.replace(/([{,]tool=")(?:[^"\\]|\\.)*"/, `$1${other}"`);
}

const FAMILIES: ReadonlyMap<string, MetricDefinition> = new Map(
  Object.values(METRICS).flatMap((definition: MetricDefinition) => {
    const parts = definition.type === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    return parts.map((part) => [`${definition.name}${part}`, definition] as const);
  }),
);

/** All metrics in Prometheus' text format, with their help, even those without series. Series of unknown metrics are left out. */
export function exposition(prefix: string, series: Iterable<readonly [string, number]>): string {
  const lines = new Map<string, string[]>(Object.values(METRICS).map(({ name }) => [name, []]));
  for (const [id, value] of inBucketOrder(series)) {
    const family = FAMILIES.get(id.split('{', 1)[0] ?? '');
    if (family !== undefined) lines.get(family.name)?.push(`${prefix}_${id} ${value}`);
  }
  return Object.values(METRICS)
    .map(({ name, type, help }) =>
      [`# HELP ${prefix}_${name} ${help}`, `# TYPE ${prefix}_${name} ${type}`, ...(lines.get(name) ?? []), ''].join(
        '\n',
      ),
    )
    .join('');
}

/** The format asks for a histogram's buckets together and in ascending order; Redis returns totals in any order. */
function inBucketOrder(series: Iterable<readonly [string, number]>): readonly (readonly [string, number])[] {
  const groups = new Map<string, (readonly [string, number])[]>();
  for (const each of series) {
    const group = each[0].replace(/^(\w+)_(?:bucket\{le="[^"]+",?|(?:sum|count)(?:\{|$))/, '$1{');
    getOrInsert(groups, group, () => []).push(each);
  }
  return [...groups.values()].flatMap((group) => group.sort(([a], [b]) => upperBound(a) - upperBound(b)));
}

/** The bound of a bucket. The last bucket, the sum and the count of a histogram have none. */
function upperBound(series: string): number {
  return Number(/_bucket\{le="([^"+]+)"/.exec(series)?.[1] ?? Number.MAX_VALUE);
}
