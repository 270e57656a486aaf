import { expect, test } from 'vitest';
import type { Outcome } from '../../../../src/shared/calls/outcome.ts';
import { METRICS } from '../../../../src/shared/telemetry/metrics.ts';
import { WorkerMetrics } from '../../../../src/workers/execution/metrics.ts';
import { eventually } from '../../../helpers/signal.ts';
import { type Rig, startRig, startTestWorker, testTools } from '../rig.ts';

/** Samples of Prometheus' text format: `name{a="b"}` to its value. Throws for a line that is none. */
function parse(text: string): {
  readonly types: ReadonlyMap<string, string>;
  readonly samples: ReadonlyMap<string, number>;
} {
  const types = new Map<string, string>();
  const samples = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('# HELP ')) continue;
    const type = /^# TYPE (\S+) (\S+)$/.exec(line);
    if (type !== null) {
      types.set(type[1] ?? '', type[2] ?? '');
      continue;
    }
    const sample = /^([a-z_]+(?:\{[^}]*\})?) (\S+)$/.exec(line);
    if (sample === null || Number.isNaN(Number(sample[2]))) throw new Error(`no sample: ${line}`);
    samples.set(sample[1] ?? '', Number(sample[2]));
  }
  return { types, samples };
}

const read = async (rig: Rig) => parse((await rig.ask('/metrics')).text);

test('has the eight metrics of R28, and counts answers, replays, conflicts and circuits', async () => {
  const rig = await startRig(testTools());
  const { call, ask } = rig;
  const echo = { tool: 'echo', session: 's', idempotencyKey: 'k' };
  await call({ ...echo, params: { text: 'one' } });
  await call({ ...echo, params: { text: 'one' } });
  await call({ ...echo, params: { text: 'two' } });
  await call({ tool: 'fail', session: 's' });
  await call({ tool: `invented-${'x'.repeat(100)}`, session: 's' });
  await ask('/debug/tool-reliability', { method: 'POST', json: { action: 'force_open', tool: 'fail' } });
  const { samples } = await eventually(async () => {
    const now = await read(rig);
    const moved =
      'openclaw_tool_circuit_breaker_transitions_total{tool="fail",from_state="CLOSED",to_state="FORCED_OPEN"}';
    return now.samples.get(moved) === 1 ? now : undefined;
  });
  const value = (name: string) => samples.get(`openclaw_tool_${name}`);
  expect(value('calls_total{tool="echo",status="success",scope="session"}')).toBe(2);
  expect(value('calls_total{tool="echo",status="error",scope="session"}')).toBe(1);
  expect(value('calls_total{tool="fail",status="error",scope="session"}')).toBe(1);
  expect(value('calls_total{tool="other",status="error",scope="session"}')).toBe(1);
  expect(value('call_duration_ms_count{tool="echo",status="success"}')).toBe(1);
  expect(value('idempotency_hits_total{tool="echo",state="done"}')).toBe(1);
  expect(value('idempotency_hits_total{tool="echo",state="conflict"}')).toBe(1);
  expect([...samples.keys()].join('\n')).not.toContain('invented');

  const { types } = await read(rig);
  expect([...types].sort()).toEqual(
    Object.values(METRICS)
      .map(({ name, type }) => [`openclaw_tool_${name}`, type])
      .sort(),
  );
});

test('shows the ledger, its times to live and every circuit as they stand', async () => {
  const rig = await startRig({ ...testTools(), settings: { metricsPrefix: 'mine', ttl: { doneMs: 60_000 } } });
  await rig.call({ tool: 'echo', session: 's', params: { text: 'x' } });
  // What was read when the server started is shown for a few seconds.
  const samples = await eventually(
    async () => {
      const now = await read(rig);
      return now.samples.get('mine_ledger_calls{tier="workspace",state="settled"}') === 1 ? now.samples : undefined;
    },
    { everyMs: 200 },
  );
  expect(samples.get('mine_ledger_calls{tier="workspace",state="inflight"}')).toBe(0);
  expect(samples.get('mine_dedupe_cache_size{tool="echo",scope="session"}')).toBe(1);
  expect(samples.get('mine_dedupe_cache_size{tool="hold",scope="session"}')).toBe(0);
  expect(samples.get('mine_dedupe_ttl_seconds{tool="echo",state="done"}')).toBe(60);
  expect(samples.get('mine_dedupe_ttl_seconds{tool="acme.far.echo",state="failed"}')).toBe(300);
  expect(samples.get('mine_circuit_breaker_state{tool="hold",state="CLOSED"}')).toBe(1);
  expect(samples.get('mine_circuit_breaker_state{tool="hold",state="OPEN"}')).toBe(0);
});

test('counters of alerts start at 0, so that the first conflict or thirty lost leases are an increase', async () => {
  const rig = await startRig(testTools());
  await rig.call({ tool: 'echo', session: 's', idempotencyKey: 'k', params: { text: 'one' } });
  const conflict = 'openclaw_tool_idempotency_hits_total{tool="echo",state="conflict"}';
  const shown = (value: number) => eventually(async () => (await read(rig)).samples.get(conflict) === value);
  await shown(0);
  await rig.call({ tool: 'echo', session: 's', idempotencyKey: 'k', params: { text: 'two' } });
  await shown(1);
  const { samples } = await read(rig);
  expect(samples.get('openclaw_tool_audit_write_failures_total')).toBe(0);
  expect([...new WorkerMetrics([]).series()].filter(([, value]) => value === 0).map(([name]) => name)).toEqual(
    expect.arrayContaining(['lease_losses_total{tier="system"}', 'fenced_writes_total{tier="read-only"}']),
  );
});

test('two servers in one process count apart, and a worker counts its attempts', async () => {
  const { tools } = testTools();
  const one = await startRig({ tools });
  const other = await startRig();
  await one.call({ tool: 'echo', session: 's', params: { text: 'x' } });
  const calls = 'openclaw_tool_calls_total{tool="echo",status="success",scope="session"}';
  expect((await read(one)).samples.get(calls)).toBe(1);
  expect((await read(other)).samples.get(calls)).toBeUndefined();

  const worker = new WorkerMetrics(tools);
  const [record] = await one.pawl.calls.list();
  const envelope = record?.request.envelope;
  const outcome = record?.outcome;
  if (envelope === undefined || outcome === undefined) throw new Error('no call');
  const call = { callId: 'x', envelope, attempt: 1 };
  const unknown = { ...outcome, status: 'error', error: { code: 'OUTCOME_UNKNOWN', mayHaveHappened: true } } as Outcome;
  worker.observe({ type: 'tool_call_start', ...call, fence: 1, waitedMs: 30 });
  worker.observe({ type: 'tool_call_end', ...call, outcome, elapsedMs: 1 });
  worker.observe({ type: 'tool_call_end', ...call, outcome: unknown, elapsedMs: 1 });
  worker.observe({ type: 'tool_call_retry', ...call, delayMs: 5, errorCode: 'MY_OWN' });
  worker.observe({ type: 'tool_call_retry', ...call, delayMs: 5, errorCode: 'HTTP_503' });
  worker.observe({ type: 'tool_call_circuit_state', circuit: 'tool:tools.echo@acme', from: 'CLOSED', to: 'OPEN' });
  worker.attemptEnded('workspace', 12, { leaseLost: true });
  worker.writeFenced('workspace');
  const samples = worker.series();
  for (const [sample, value] of [
    ['attempts_total{tool="echo",status="success"}', 1],
    ['attempts_total{tool="echo",status="error"}', 1],
    ['attempts_total{tool="echo",status="retried"}', 2],
    ['in_doubt_total{tool="echo"}', 1],
    ['retry_attempts_total{tool="echo",reason="other"}', 1],
    ['retry_attempts_total{tool="echo",reason="HTTP_503"}', 1],
    ['circuit_breaker_transitions_total{tool="echo",from_state="CLOSED",to_state="OPEN"}', 1],
    ['queue_wait_ms_bucket{le="25",tier="workspace"}', 0],
    ['queue_wait_ms_bucket{le="50",tier="workspace"}', 1],
    ['attempt_duration_ms_sum{tier="workspace"}', 12],
    ['attempt_duration_ms_bucket{le="+Inf",tier="workspace"}', 1],
    ['lease_losses_total{tier="workspace"}', 1],
    ['fenced_writes_total{tier="workspace"}', 1],
  ] as const)
    expect(samples.get(sample), sample).toBe(value);
});

test('a declared tool is counted under its name and tier like one of code, with the cost of its declaration', async () => {
  const rig = await startRig();
  const spec = {
    kind: 'http',
    version: '1.0.0',
    description: 'Current weather.',
    tier: 'read-only',
    inputSchema: { type: 'object', properties: {} },
    // Nobody is there: an attempt that fails is one, too.
    routing: { method: 'GET', url: 'http://127.0.0.1:1/' },
    budget: { costUnits: 7 },
  };
  const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
  const worker = await startTestWorker(rig.settings, [], log);
  expect((await rig.ask('/v1/tools/weather', { method: 'PUT', json: spec })).status).toBe(201);
  const { body } = await rig.call({ tool: 'weather', session: 's', params: {} }, { wait: 30_000 });
  expect(body.status).toBe('error');

  const { samples: counted } = parse(worker.metrics().text);
  expect(counted.get('openclaw_tool_attempts_total{tool="weather",status="error"}')).toBe(1);
  expect(counted.get('openclaw_tool_queue_wait_ms_count{tier="read-only"}')).toBe(1);
  const { samples } = await read(rig);
  expect(samples.get('openclaw_tool_tier_info{tool="weather",tier="read-only"}')).toBe(1);
  expect(samples.get('openclaw_tool_dedupe_ttl_seconds{tool="weather",state="failed"}')).toBe(300);
  expect(samples.get('openclaw_tool_dedupe_cache_size{tool="weather",scope="session"}')).toBe(1);

  const { body: trail } = await rig.ask(`/v1/audit?type=attempt&call=${body.callId}`);
  expect(trail.records.at(-1)).toMatchObject({ tool: 'tools.weather', estimatedCostUnits: 7 });
});
