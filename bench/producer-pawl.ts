/** A producer of Pawl: one session that calls tools. */
import { randomUUID } from 'node:crypto';
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { connect, type Session } from '../src/index.ts';
import { processOptions, serve } from './child.ts';
import { fill, inLanes, runLoad } from './load.ts';
import type { Lanes, LatenessReport, Questions, RefusalReport, Turn } from './protocol.ts';
import { quantile } from './statistics.ts';
import { noteOf, runTogether } from './together.ts';

/** Longer than any queue here. */
const QUEUE_TIME_MS = 1_800_000;
/** Refusals that are asked for at once. */
const BULK = 1_000;

const { storeUrl: redisUrl, prefix, ttlMs } = processOptions();
const pawl = await connect({
  redisUrl,
  prefix,
  ttl: { doneMs: ttlMs, failedMs: ttlMs },
  // A full queue here is fuller than a tier takes by default.
  admission: { maxInflight: 1_000_000 },
});
const session = await pawl.openSession({ actorId: 'benchmark' });

/** One for all producers: a key means a call of its session. */
const sharedSession = await pawl
  .openSession({ sessionKey: 'shared', actorId: 'benchmark' })
  .catch(() => pawl.session('shared'));

async function call(by: Session, key: string, params: { bytes: number; ms: number; note?: string }): Promise<string> {
  const result = await by.call('reply', params, { idempotencyKey: key });
  if (result.status !== 'success') throw new Error(`${result.status}: ${result.error.message}`);
  return (result.output.content as { readonly text: string }).text;
}

/** Hands a call in; what becomes of it is another's affair. */
async function handIn(key: string, toolMs: number, startAfterMs?: number): Promise<void> {
  const [tool, params] =
    toolMs === 0 ? (['reply', { bytes: 200, ms: 0 }] as const) : (['slow', { ms: toolMs }] as const);
  const submission = await session.submit(tool, params, {
    idempotencyKey: key,
    timeoutMs: QUEUE_TIME_MS,
    ...(startAfterMs === undefined ? {} : { startAfterMs }),
  });
  if (submission.kind === 'answered') throw new Error(`not queued: ${JSON.stringify(submission.result)}`);
  submission.result.catch(() => {});
  if (startAfterMs !== undefined) submission.stop();
}

async function turns(until: Lanes['until']): Promise<readonly Turn[]> {
  const made: Turn[] = [];
  await inLanes(
    async () => {
      const calledAtMs = performance.timeOrigin + performance.now();
      const result = await session.call('clock', {}, { idempotencyKey: randomUUID() });
      if (result.status !== 'success') throw new Error(`${result.status}: ${result.error.message}`);
      made.push({ calledAtMs, ...(result.output.content as Omit<Turn, 'calledAtMs'>) });
    },
    { inFlight: 1, until },
  );
  return made;
}

async function lateness({ calls, aheadMs, spreadMs }: Questions['lateness']['asked']): Promise<LatenessReport> {
  const firstMs = Date.now() + aheadMs;
  const lateMs = await Promise.all(
    Array.from({ length: calls }, async (_, number) => {
      const startAt = new Date(firstMs + Math.floor((spreadMs * number) / calls));
      const result = await session.call('clock', {}, { idempotencyKey: randomUUID(), startAt });
      if (result.status !== 'success') throw new Error(`${result.status}: ${result.error.message}`);
      return (result.output.content as { readonly startedAtMs: number }).startedAtMs - startAt.getTime();
    }),
  );
  return {
    calls,
    // Redis' clock, by which calls start, may be a millisecond ahead of this one.
    early: lateMs.filter((ms) => ms < -2).length,
    p50Ms: quantile(lateMs, 0.5),
    p99Ms: quantile(lateMs, 0.99),
    maxMs: quantile(lateMs, 1),
  };
}

async function openCircuit(): Promise<void> {
  const deadlineMs = performance.now() + 10_000;
  for (;;) {
    const result = await session.call('broken', {});
    if (result.status === 'circuit_open' && result.callId === undefined) return;
    if (performance.now() > deadlineMs) throw new Error(`the circuit did not open: ${JSON.stringify(result)}`);
  }
}

async function refused(): Promise<void> {
  const { status } = await session.call('broken', {});
  if (status !== 'circuit_open') throw new Error(`the circuit let a call through: ${status}`);
}

async function refusals(calls: number, bulkMs: number): Promise<RefusalReport> {
  const latenciesMs: number[] = [];
  for (let made = -calls / 4; made < calls; made += 1) {
    const calledMs = performance.now();
    await refused();
    if (made >= 0) latenciesMs.push(performance.now() - calledMs);
  }
  let bulkCalls = 0;
  const startedMs = performance.now();
  while (performance.now() - startedMs < bulkMs) {
    await Promise.all(Array.from({ length: BULK }, refused));
    bulkCalls += BULK;
    // Answers of others, heartbeats and timers have their turn, as in a program.
    await yieldToEventLoop();
  }
  return {
    calls,
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
    maxMs: quantile(latenciesMs, 1),
    bulkCalls,
    bulkPerSecond: (1_000 * bulkCalls) / (performance.now() - startedMs),
  };
}

serve(() => pawl.close(), {
  load: (load) => {
    if (load.together !== undefined) return runTogether(session, load);
    const by = load.keys === 'same' ? sharedSession : session;
    let made = 0;
    const one = (key: string, bytes: number, ms: number) =>
      call(by, key, { bytes, ms, ...noteOf(load.alike, bytes, made++) });
    return runLoad(one, load);
  },
  fill: ({ calls, toolMs, startAfterMs }) => fill(calls, (key) => handIn(key, toolMs, startAfterMs)),
  lateness,
  turns,
  'open-circuit': async () => {
    await openCircuit();
    return null;
  },
  refusals: ({ calls, bulkMs }) => refusals(calls, bulkMs),
});
