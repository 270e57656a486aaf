/** A producer of Pawl: one session that calls tools. */
import { connect } from '../src/index.ts';
import { processOptions, serve } from './child.ts';
import { runLoad } from './load.ts';
import type { RefusalReport } from './protocol.ts';
import { quantile } from './statistics.ts';

const { redisUrl, prefix, ttlMs } = processOptions();
const pawl = await connect({ redisUrl, prefix, ttl: { doneMs: ttlMs, failedMs: ttlMs } });
const session = await pawl.openSession({ actorId: 'benchmark' });

async function call(key: string, resultBytes: number): Promise<string> {
  const result = await session.call('reply', { bytes: resultBytes }, { idempotencyKey: key });
  if (result.status !== 'success') throw new Error(`${result.status}: ${result.error.message}`);
  return (result.output.content as { readonly text: string }).text;
}

/** Lets the tool fail until its circuit is open here, then times the refusals, one at a time. */
async function refusals(calls: number): Promise<RefusalReport> {
  const deadlineMs = performance.now() + 10_000;
  for (;;) {
    const result = await session.call('broken', {});
    if (result.status === 'circuit_open' && result.callId === undefined) break;
    if (performance.now() > deadlineMs) throw new Error(`the circuit did not open: ${JSON.stringify(result)}`);
  }
  const latenciesMs: number[] = [];
  for (let made = -calls / 4; made < calls; made += 1) {
    const calledMs = performance.now();
    const { status } = await session.call('broken', {});
    if (made >= 0) latenciesMs.push(performance.now() - calledMs);
    if (status !== 'circuit_open') throw new Error(`the circuit let a call through: ${status}`);
  }
  return {
    calls,
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
    maxMs: quantile(latenciesMs, 1),
  };
}

serve(() => pawl.close(), {
  load: (load) => runLoad(call, load),
  refusals: (asked) => refusals(asked.calls),
});
