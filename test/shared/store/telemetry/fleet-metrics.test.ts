import { expect, onTestFinished, test } from 'vitest';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { FleetMetrics, MetricsPublisher } from '../../../../src/shared/store/telemetry/fleet-metrics.ts';
import { createWorld } from '../../../helpers/world.ts';

async function open(maxSeries?: number) {
  const world = await createWorld();
  const redis = openConnection({ url: world.redisUrl, name: `${world.prefix}:metrics`, mode: 'fail-fast' });
  onTestFinished(() => redis.disconnect());
  return new FleetMetrics(redis, world.prefix, maxSeries);
}

test('what processes count is added up, outlives them, and saying the same twice adds nothing', async () => {
  const fleet = await open();
  const nothing = new Map<string, number>();
  await fleet.add('one', [['calls_total{tool="a"}', 3]], nothing);
  await fleet.add('two', [['calls_total{tool="a"}', 4]], nothing);
  // The answer was lost, and the process says it again, with one more.
  await fleet.add('one', [['calls_total{tool="a"}', 4]], nothing);
  await fleet.add('one', [['call_duration_ms_sum{tool="a"}', 0.1 + 0.2]], nothing);
  expect(await fleet.read()).toEqual(
    new Map([
      ['calls_total{tool="a"}', 8],
      ['call_duration_ms_sum{tool="a"}', 0.1 + 0.2],
    ]),
  );
  // Redis has forgotten the process meanwhile; what was acknowledged to it is not added again.
  await fleet.add('three', [['calls_total{tool="a"}', 10]], new Map([['calls_total{tool="a"}', 9]]));
  expect((await fleet.read()).get('calls_total{tool="a"}')).toBe(9);
});

test('beyond the largest number of series, further tools are counted under other', async () => {
  const fleet = await open(2);
  const series = ['a', 'b', 'c', 'd'].map((tool) => [`calls_total{tool="${tool}"}`, 1] as const);
  await fleet.add('one', series, new Map());
  await fleet.add('one', [['calls_total{tool="c"}', 5]], new Map([['calls_total{tool="c"}', 1]]));
  expect(await fleet.read()).toEqual(
    new Map([
      ['calls_total{tool="a"}', 1],
      ['calls_total{tool="b"}', 1],
      ['calls_total{tool="other"}', 6],
    ]),
  );
});

test('a publisher says only what has changed, and the last when it closes', async () => {
  const fleet = await open();
  const said: number[] = [];
  const counted = new Map([
    ['calls_total{tool="a"}', 1],
    ['calls_total{tool="b"}', 1],
  ]);
  const publisher = new MetricsPublisher({
    fleet: Object.assign(Object.create(fleet) as FleetMetrics, {
      add: (...args: Parameters<FleetMetrics['add']>) => {
        said.push(args[1].length);
        return fleet.add(...args);
      },
    }),
    processId: 'one',
    own: { series: () => counted, roundTrip: (ms) => expect(ms).toBeGreaterThan(0) },
    onError: () => {},
  });
  await publisher.publish();
  counted.set('calls_total{tool="b"}', 2);
  await publisher.publish();
  await publisher.publish();
  counted.set('calls_total{tool="a"}', 7);
  await publisher.close(5_000);
  expect(said).toEqual([2, 1, 1]);
  expect(await fleet.read()).toEqual(
    new Map([
      ['calls_total{tool="a"}', 7],
      ['calls_total{tool="b"}', 2],
    ]),
  );
});
