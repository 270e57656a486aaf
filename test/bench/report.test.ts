import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { Compared, Ratio } from '../../bench/comparison.ts';
import type { Measured } from '../../bench/fleet.ts';
import { performancePage } from '../../bench/page.ts';
import { folderOf } from '../../bench/processes.ts';
import { notesPage } from '../../bench/report.ts';
import type { BenchResult } from '../../bench/result.ts';
import { judge } from '../../bench/scenarios/memory.ts';
import { verdicts } from '../../bench/verdicts.ts';
import { PEERS, SCENARIOS, WORKLOADS } from '../../bench/workloads.ts';

const ratio = (median: number): Ratio => ({ median, lowest: median / 2, highest: median * 2 });
const measured: Measured = {
  callsPerSecond: 1_000,
  p50Ms: 1,
  p99Ms: 2,
  cpu: { worker: 1, callers: 2, store: 3 },
  fileBytesPerCall: 100,
  runs: 10,
  othersShare: 0,
};

function compared(name: string, figures: Partial<Compared>): Compared {
  return {
    name,
    title: WORKLOADS.find((workload) => workload.name === name)?.title ?? name,
    against: 'bullmq',
    rounds: { run: 21, disturbed: 0, leftOut: 0 },
    theirs: measured,
    pawl: measured,
    throughputRatio: ratio(1),
    latencyRatio: ratio(1),
    cpuRatio: ratio(1),
    ...figures,
  };
}

const nothing: BenchResult = {
  machine: {
    date: '2026-11-22',
    cores: 2,
    processor: 'processor',
    platform: 'linux x64',
    memoryGiB: 24,
    node: '24.0.0',
    redis: '7.0.0',
    pawl: '0.1.0',
    bullmq: '6.7.0',
    ioredis: '6.0.0',
  },
  dates: {},
  effort: { rounds: 21, roundMs: 700, warmUpMs: 3_000 },
  compared: [],
  scenarios: {},
  peers: [],
};

test('docs/performance.md and bench/NOTES.md are what the report makes of the record', () => {
  const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
  const record = JSON.parse(read('bench/record.json')) as BenchResult;
  expect(performancePage(record)).toBe(read('docs/performance.md'));
  expect(notesPage(record)).toBe(read('bench/NOTES.md'));
});

test('the short page shows each workload that was compared, and names those that were not', () => {
  const page = performancePage({ ...nothing, compared: [compared('deep-1', { throughputRatio: ratio(0.71) })] });
  expect(page).toContain('| 200 B, 1 producer, 512 in flight | BullMQ');
  expect(page).toContain('0.71×');
  expect(page).toMatch(/Not measured: 200 B, 1 producer;/);
});

test('the page says of every workload, scenario and peer that was not measured how it is', () => {
  const page = notesPage(nothing);
  for (const { name } of [...SCENARIOS, ...PEERS.map((peer) => ({ name: peer }))])
    expect(page).toContain(`\`npm run bench -- --only ${name} --add\` adds it.`);
  for (const { title } of WORKLOADS) expect(page).toContain(title);
  expect(page.match(/^Not part of this run/gm)?.length).toBeGreaterThanOrEqual(SCENARIOS.length + 1);
});

test('parts that were measured on an earlier day are named with it', () => {
  const dates = { memory: '2026-11-20', backlog: '2026-11-22' };
  expect(notesPage({ ...nothing, dates })).toContain('Older: memory (2026-11-20).');
  expect(notesPage(nothing)).not.toContain('Older:');
});

test('a peer that does not install is named with the reason', () => {
  const page = notesPage({ ...nothing, peers: [{ peer: 'dbos', leftOut: 'it does not install: no network' }] });
  expect(page).toContain('**dbos** was left out: it does not install: no network.');
  expect(page).not.toContain('--only dbos');
});

test('targets are judged by the figures, both ways', () => {
  const judged = (figures: Partial<Compared>) =>
    verdicts({ ...nothing, compared: [compared('small-1', figures)] }).map(({ target, met }) => `${target}: ${met}`);
  expect(judged({ throughputRatio: ratio(1.2), cpuRatio: ratio(0.6) })).toEqual([
    'at most 1.05×: true',
    'at least 1.80×: false',
    'at most 0.70×: true',
  ]);
  expect(judged({ throughputRatio: ratio(1.8), latencyRatio: ratio(1.06), cpuRatio: ratio(0.71) })).toEqual([
    'at most 1.05×: false',
    'at least 1.80×: true',
    'at most 0.70×: false',
  ]);
});

test('a row without targets of its own must not lose, and one in steady state or of the first seconds has targets of its own', () => {
  const compare = [compared('small-16', { throughputRatio: ratio(3.2) })];
  const phase = { dates: {}, effort: nothing.effort, compared: compare, peers: [] };
  const found = verdicts({ ...nothing, compared: compare, steady: phase, cold: phase });
  expect(found.map(({ what, target, met }) => `${what}: ${target}: ${met}`)).toEqual([
    '200 B, 16 producers: throughput: at least 1.00×: true',
    '200 B, 16 producers: median latency: at most 1.05×: true',
    'In steady state, 200 B, 16 producers: median latency: at most 1.05×: true',
    'In steady state, 200 B, 16 producers: throughput: at least 3.50×: false',
    'In steady state, 200 B, 16 producers: CPU time of all processes: at most 0.35×: false',
    'In the first 5 s, 200 B, 16 producers: median latency: at most 1.05×: true',
    'In the first 5 s, 200 B, 16 producers: throughput: at least 3.00×: true',
  ]);
});

test('throughput with slow tools is measured against what the slots can do', () => {
  const figures = { pawl: { ...measured, callsPerSecond: 4_700 } };
  const found = verdicts({ ...nothing, compared: [compared('tool-50-4', figures)] });
  expect(found.at(-1)).toMatchObject({ measured: '0.92×', target: 'at least 0.90×', met: true });
});

test('Pawl has to be faster than a peer: in latency where calls come one at a time, in throughput elsewhere', () => {
  const rows = [
    compared('small-16', { against: 'dbos', throughputRatio: ratio(2.9), latencyRatio: ratio(0.5) }),
    compared('one-at-a-time', { against: 'dbos', throughputRatio: ratio(0.5), latencyRatio: ratio(0.9) }),
  ];
  const found = verdicts({
    ...nothing,
    peers: [
      {
        peer: 'dbos',
        title: 'dbos 5',
        store: 'PostgreSQL 15',
        comparisons: [{ durability: 'each second', settings: '', compared: rows }],
      },
    ],
  });
  expect(found.map(({ met }) => met)).toEqual([false, true]);
});

test('memory is flat when the last quarter of the samples is not above the second one', () => {
  const usage = (mebibytes: number) => ({
    cpuMs: 0,
    rssBytes: mebibytes * 2 ** 20,
    heapBytes: mebibytes * 2 ** 20,
    runs: 0,
  });
  const samples = (late: number) =>
    [50, 100, 100, late].flatMap((mebibytes) =>
      Array.from({ length: 4 }, (_, number) => ({
        calls: number,
        producer: usage(mebibytes),
        worker: usage(100),
        redisBytes: 2 ** 20,
      })),
    );
  const flat = (late: number) => judge(samples(late)).map((one) => one.flat);
  expect(flat(105)).toEqual([true, true, true, true, true]);
  expect(flat(120)).toEqual([false, false, true, true, true]);
});

test.each(PEERS)('%s has exact versions and a lock that knows them', (peer) => {
  const read = (file: string) => JSON.parse(readFileSync(`${folderOf(peer)}${file}`, 'utf8')) as never;
  const { dependencies } = read('package.json') as { readonly dependencies: Readonly<Record<string, string>> };
  const { packages } = read('package-lock.json') as {
    readonly packages: Readonly<Record<string, { readonly version?: string }>>;
  };
  const locked = Object.keys(dependencies).map((name) => [name, packages[`node_modules/${name}`]?.version]);
  expect(Object.fromEntries(locked)).toEqual(dependencies);
});
