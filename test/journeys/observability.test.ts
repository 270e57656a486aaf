/** @module-tag slow */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { METRICS } from '../../src/shared/telemetry/metrics.ts';
import { openPlace } from '../cli/pawl.ts';
import { eventually } from '../helpers/signal.ts';

const TOOLS = `
import { defineTool } from 'pawl';
import { z } from 'zod';

/** Fails as often as it is told, attempt by attempt. */
export const swing = defineTool({
  name: 'swing',
  version: '1.0.0',
  description: 'Fails in its first attempts.',
  tier: 'workspace',
  effects: 'idempotent',
  retry: { baseMs: 1, maxDelayMs: 1 },
  circuit: { consecutiveFailures: 3, cooldownMs: 3_000 },
  input: z.object({ failures: z.number() }),
  run({ failures }, ctx) {
    if (ctx.attempt <= failures) throw Object.assign(new Error('down'), { status: 503 });
    return { output: 'up' };
  },
});

/** Says all that it knows. */
export const leak = defineTool({
  name: 'leak',
  version: '1.0.0',
  description: 'Quotes its parameters wherever it can.',
  tier: 'workspace',
  input: z.object({ password: z.string(), note: z.string() }),
  run(params, ctx) {
    ctx.log.warn('about to log in with ' + params.note, { params });
    throw new Error('login failed with ' + params.password + ', ' + params.note + ', ' + process.env.SERVICE_TOKEN);
  },
});
`;

async function startStack(environment: Readonly<Record<string, string>> = {}) {
  const partition = await openPlace();
  onTestFinished(() => partition[Symbol.asyncDispose]());
  writeFileSync(join(partition.folder, 'observed.ts'), TOOLS);
  const env = { LOG_LEVEL: 'debug', PAWL_METRICS_PORT: '0', ...environment };
  const worker = partition.start(['worker', '--tools', 'observed.ts', '--json'], env);
  const serve = partition.start(['serve', '--port', '0', '--json'], env);
  const ready = async (process: typeof worker) =>
    JSON.parse(await process.line('"event":"ready"')) as Record<string, unknown>;
  const [{ metricsPort }, { url }] = await Promise.all([ready(worker), ready(serve)]);
  const text = async (address: string) => (await fetch(address)).text();
  return {
    worker,
    serve,
    url: String(url),
    call: async (json: object) => {
      const answer = await fetch(`${url}/v1/calls`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ session: 'observed', ...json }),
      });
      return { status: answer.status, text: await answer.text() };
    },
    text,
    ofProducer: () => text(`${url}/metrics`),
    ofWorker: () => text(`http://127.0.0.1:${metricsPort}/metrics`),
  };
}

test('TR-13: success, retry, failure, open, half-open and closed are counted with the labels of the seed and logged; callers add no series', async () => {
  const { call, ofProducer, ofWorker, worker } = await startStack();
  const swing = (failures: number, key: string) => call({ tool: 'swing', params: { failures }, idempotencyKey: key });
  expect((await swing(0, 'a')).text).toContain('"success"');
  expect((await swing(0, 'a')).text).toContain('"fromCache":true');
  expect((await swing(1, 'b')).text).toContain('"attempts":2');
  expect((await swing(9, 'c')).text).toContain('retriable_error');
  expect((await swing(0, 'd')).text).toContain('CIRCUIT_OPEN');
  let number = 0;
  await eventually(
    async () => {
      await swing(0, `e${number++}`);
      return /from_state="HALF_OPEN",to_state="CLOSED"\} 1/.test(await ofProducer());
    },
    { everyMs: 100 },
  );
  for (let name = 0; name < 40; name += 1) await call({ tool: `made-up-${name}`, params: {} });

  // What was read of the ledger is shown for a few seconds.
  const producer = await eventually(
    async () => {
      const shown = await ofProducer();
      return shown.includes('dedupe_cache_size{tool="swing"') && shown.includes('tool="other",status="error"') && shown;
    },
    { everyMs: 200 },
  );
  const own = await ofWorker();
  const ofAttempts = [
    'retry_attempts_total{tool="swing",reason="HTTP_503"}',
    'circuit_breaker_transitions_total{tool="swing",from_state="CLOSED",to_state="OPEN"}',
    'circuit_breaker_transitions_total{tool="swing",from_state="OPEN",to_state="HALF_OPEN"}',
    'circuit_breaker_transitions_total{tool="swing",from_state="HALF_OPEN",to_state="CLOSED"}',
    'attempts_total{tool="swing",status="success"}',
    'attempts_total{tool="swing",status="retried"}',
  ];
  const ofAnswers = [
    'calls_total{tool="swing",status="success",scope="session"}',
    'calls_total{tool="swing",status="circuit_open",scope="session"}',
    'call_duration_ms_bucket{le="5",tool="swing",status="success"}',
  ];
  // The worker counts what it ran, the producer what it answered, and the front door shows both.
  for (const sample of ofAttempts) expect(own, sample).toContain(`openclaw_tool_${sample}`);
  for (const sample of ofAnswers) expect(own, sample).not.toContain(`openclaw_tool_${sample}`);
  for (const sample of [...ofAttempts, ...ofAnswers]) expect(producer, sample).toContain(`openclaw_tool_${sample}`);
  for (const samples of [own, producer]) expect(samples).not.toContain('made-up');
  for (const sample of [
    'idempotency_hits_total{tool="swing",state="done"} 1',
    'dedupe_cache_size{tool="swing",scope="session"}',
    'dedupe_ttl_seconds{tool="swing",state="failed"} 300',
    'circuit_breaker_state{tool="swing",state="CLOSED"}',
    'calls_total{tool="other",status="error",scope="session"} 40',
  ])
    expect(producer, sample).toContain(`openclaw_tool_${sample}`);
  for (const { name } of Object.values(METRICS)) expect(producer).toContain(`# TYPE openclaw_tool_${name} `);
  for (const [from, to] of [
    ['CLOSED', 'OPEN'],
    ['OPEN', 'HALF_OPEN'],
    ['HALF_OPEN', 'CLOSED'],
  ]) {
    const line = JSON.parse(await worker.line(new RegExp(`"from":"${from}","breakerState":"${to}"`)));
    expect(line).toMatchObject({ event: 'tool_call_circuit_state', circuit: 'tool:tools.swing' });
  }
});

/** A collector that keeps all that it is sent. */
async function startCollector() {
  let received = '';
  const server = createServer(async (request, response) => {
    for await (const chunk of request) received += chunk;
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received: () => received };
}

test('TR-15: planted secrets reach no log, trace, metric, page of Bull Board or error; log lines lead to the trace', async () => {
  const planted = {
    password: 'four plain words here',
    token: ['ghp', 'a1B2c3D4e5F6g7H8i9J0k1L2m3N4'].join('_'),
    environment: 'a-token-of-the-environment',
    signing: 'a-signing-key-of-the-fleet',
    address: 'ada@example.org',
    card: ['4111', '1111', '1111', '1111'].join(' '),
    ofAddress: 'hunter22-of-the-database',
    jwt: ['eyJhbGciOiJIUzI1NiJ9', 'eyJzdWIiOiIxMjM0NTY3ODkwIn0', 'dozjgNryP4J3jVmNHl0w5N'].join('.'),
  };
  const collector = await startCollector();
  const { call, worker, serve, url, text, ofProducer, ofWorker } = await startStack({
    SERVICE_TOKEN: planted.environment,
    PAWL_SIGNING_KEYS: `k1:${planted.signing}`,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_BSP_SCHEDULE_DELAY: '50',
  });
  const params = {
    password: planted.password,
    note: [
      `Bearer ${planted.token} for ${planted.address}`,
      `card ${planted.card}`,
      `postgres://ada:${planted.ofAddress}@db.example.org/x`,
      planted.jwt,
    ].join(', '),
  };
  const failed = await call({ tool: 'leak', params, idempotencyKey: planted.token });
  expect(failed.text).toContain('login failed with [redacted], Bearer [redacted]');
  const refused = await call({ tool: 'leak', params: { ...params, password: 7, secret: planted.password } });
  expect(refused.status).toBe(400);
  const end = JSON.parse(await worker.line('tool_call_end')) as { readonly traceId: string };
  const answered = JSON.parse(await serve.line('tool_call_end')) as { readonly traceId: string };
  expect(end.traceId).toMatch(/^[0-9a-f]{32}$/);
  expect(answered.traceId).toBe(end.traceId);
  expect(JSON.parse(await worker.line('about to log in'))).toMatchObject({ traceId: end.traceId });
  await eventually(() => ['tool_execution', 'tool_attempt'].every((span) => collector.received().includes(span)));
  expect(collector.received()).toContain(end.traceId);
  const board = await eventually(
    async () => {
      const queries = ['', '?activeQueue=workspace&status=failed', '?activeQueue=workspace&status=latest'];
      const pages = await Promise.all(queries.map((query) => text(`${url}/queues/api/queues${query}`)));
      return pages.join().includes('TOOL_FAILED') && pages;
    },
    { everyMs: 50 },
  );
  expect(worker.stderr()).toContain('about to log in');
  const partitions = {
    'the worker’s log': worker.stderr() + worker.stdout(),
    'the producer’s log': serve.stderr() + serve.stdout(),
    metrics: (await ofProducer()) + (await ofWorker()),
    'Bull Board': board.join('\n'),
    traces: collector.received(),
    errors: refused.text + failed.text.replaceAll(planted.address, ''),
  };
  for (const [where, said] of Object.entries(partitions))
    for (const [what, secret] of Object.entries(planted))
      expect(said.includes(secret), `${what} in ${where}`).toBe(false);
});
