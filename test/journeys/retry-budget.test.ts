/** @module-tag slow */
import { expect, test } from 'vitest';
import type { ToolResultEnvelope } from '../../src/index.ts';
import { eventually } from '../helpers/signal.ts';
import { startFleet } from './fixtures/fleet.ts';
import { startService } from './fixtures/service.ts';

const CALLS = 50;
const FLOOR = 100;
const TOOLS = ['ask_freely_1', 'ask_freely_2'];

test('with every service down, what reaches it is at most 1.2 times the calls made plus the floor, over 3 workers; successes buy retries back (R20)', async () => {
  const [fleet, ...services] = await Promise.all([startFleet({ workers: 3 }), startService(), startService()]);
  for (const service of services) service.behave('hold');
  let number = 0;
  const ask = (index: number) => {
    number += 1;
    const params = { url: services[index]?.url ?? '' };
    return fleet.session.call(TOOLS[index] ?? '', params, { idempotencyKey: `ask-${number}` });
  };
  const outage = () => Promise.all(Array.from({ length: CALLS * TOOLS.length }, (_, call) => ask(call % TOOLS.length)));

  const outages = outage();
  const visitors = () => new Set(services.flatMap(({ visits }) => visits.map(({ pid }) => pid)));
  await eventually(() => visitors().size === 3, { what: 'visits from all workers' });
  for (const service of services) service.behave('down');
  const results: ToolResultEnvelope[] = await outages;
  for (const { visits } of services) {
    expect(visits.length).toBeLessThanOrEqual(1.2 * CALLS + FLOOR);
    expect(visits.length).toBe(CALLS + FLOOR);
  }
  expect(results.reduce((sum, { attempts }) => sum + attempts, 0)).toBe(TOOLS.length * (CALLS + FLOOR));
  const refused = results.filter(({ attempts }) => attempts < 4);
  expect(refused.length).toBeGreaterThanOrEqual(results.length - (TOOLS.length * FLOOR) / 3);
  for (const { status, error } of refused) {
    expect(status).toBe('retry_exhausted');
    expect(error).toMatchObject({ code: 'HTTP_503', retriable: true });
    expect(error?.message).toContain('retry budget exhausted');
  }

  // Ten successes are worth two retries, of the tool that succeeded.
  services[0]?.behave('up');
  for (let call = 0; call < 10; call += 1) expect((await ask(0)).status).toBe('success');
  for (const service of services) {
    service.forget();
    service.behave('down');
  }
  await outage();
  expect(services.map(({ visits }) => visits.length)).toEqual([CALLS + 2, CALLS]);
});
