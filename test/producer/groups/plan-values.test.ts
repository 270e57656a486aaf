/** Values of references that no call can have end their node, and not the plan's driver. */
import { expect, test } from 'vitest';
import { startFleet } from '../../helpers/fleet.ts';
import { scripted } from '../../helpers/tools.ts';

const many = () => Object.fromEntries(Array.from({ length: 100_001 }, (_, index) => [`k${index}`, index]));
const nested = () => JSON.parse(`${'['.repeat(300)}${']'.repeat(300)}`) as object;

test.each([
  ['too long', () => 'x'.repeat(4_300_000), /4300\d+ characters/],
  ['too many', many, /more than 100000 values/],
  ['too deep', nested, /levels deep/],
])('values of references that are %s end their node', async (_, output, message) => {
  const { tool: make } = scripted('make', () => ({ output: output() }), { tier: 'read-only', effects: 'none' });
  const { tool: take } = scripted('take', () => ({ output: 1 }));
  const { session } = await startFleet({ tools: [make, take] });
  const plan = await session.plan({
    nodes: {
      made: { tool: make },
      taken: { tool: take, params: { value: { $from: 'made' } } },
      mended: { tool: take, when: { node: 'taken', is: 'error' } },
    },
  });
  expect(plan.state).toBe('done');
  const { made, taken, mended } = plan.nodes;
  expect([made?.state, taken?.state, mended?.state]).toEqual(['success', 'error', 'success']);
  expect(taken?.error?.message ?? taken?.calls[0]?.message).toMatch(message);
});
