import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { startPawl } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { createWorld } from '../helpers/world.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const CALLER = 'b7ad6b7169203331';
const TOOLS = fileURLToPath(new URL('./fixtures/traced-tools.ts', import.meta.url));

interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly status: { readonly code?: number };
  readonly links?: readonly { readonly spanId: string }[];
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
}

/** A collector that keeps what OTLP over HTTP brings it. */
async function startCollector() {
  const spans: ReceivedSpan[] = [];
  let text = '';
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    text += body;
    const { resourceSpans } = JSON.parse(body) as {
      resourceSpans: { scopeSpans: { spans: ReceivedSpan[] }[] }[];
    };
    spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  const url = await listen(server);
  return { url, spans, text: () => text };
}

/** A service that is down for its first visitor, and remembers what trace each came with. */
async function startService() {
  const traceparents: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    traceparents.push(request.headers['traceparent'] as string | undefined);
    response.writeHead(traceparents.length === 1 ? 503 : 200).end('hello');
  });
  return { url: await listen(server), traceparents };
}

async function listen(server: ReturnType<typeof createServer>): Promise<string> {
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test('one trace leads from the caller through server, queue, failed attempt, delay and retry to the service behind; a replay has its own span in it (R29)', async () => {
  const [world, collector, service] = [await createWorld(), await startCollector(), await startService()];
  const folder = mkdtempSync(join(tmpdir(), 'pawl-traces-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const env = {
    REDIS_URL: world.redisUrl,
    PAWL_PREFIX: world.prefix,
    PAWL_ALLOWED_HOSTS: new URL(service.url).host,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_BSP_SCHEDULE_DELAY: '50',
    LOG_LEVEL: 'warn',
  };
  const worker = startPawl(['worker', '--tools', TOOLS, '--tiers', 'read-only', '--json'], { cwd: folder, env });
  await worker.line('"event":"ready"');
  const server = startPawl(['serve', '--port', '0', '--json'], { cwd: folder, env });
  const { url } = JSON.parse(await server.line('"event":"ready"')) as { url: string };
  const call = async () => {
    const answer = await fetch(`${url}/v1/calls?wait=15000`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', traceparent: `00-${TRACE}-${CALLER}-01` },
      body: JSON.stringify({ tool: 'visit', params: { url: service.url }, session: 'traced', idempotencyKey: 'trip' }),
    });
    return (await answer.json()) as { status: string; fromCache: boolean; attempts: number };
  };

  expect(await call()).toMatchObject({ status: 'success', fromCache: false, attempts: 2 });
  expect(await call()).toMatchObject({ status: 'success', fromCache: true });
  for (const process of [worker, server]) process.signal('SIGTERM');
  await Promise.all([worker.ended, server.ended]);

  const named = (name: string) => collector.spans.filter((span) => span.name === name);
  await eventually(() => named('tool_execution').length === 2, { what: 'both spans of the caller' });
  expect(new Set(collector.spans.map(({ traceId }) => traceId))).toEqual(new Set([TRACE]));
  const [execution, replay] = named('tool_execution');
  expect([execution?.parentSpanId, replay?.parentSpanId]).toEqual([CALLER, CALLER]);
  expect(attribute(replay, 'pawl.from_cache')).toEqual({ boolValue: true });

  const [first, second] = named('tool_attempt');
  expect([first?.parentSpanId, second?.parentSpanId]).toEqual([execution?.spanId, execution?.spanId]);
  expect([first?.status.code, second?.status.code]).toEqual([2, 0]);
  expect(attribute(first, 'error.type')).toEqual({ stringValue: expect.stringMatching(/\w/) });
  expect(second?.links?.map(({ spanId }) => spanId)).toEqual([first?.spanId]);
  expect([named('queue_wait').length, named('retry_delay').length]).toEqual([1, 1]);
  expect(attribute(second, 'retry.attempt')).toEqual({ intValue: 2 });
  expect(attribute(second, 'tool.name')).toEqual({ stringValue: 'visit' });
  expect(attribute(second, 'breaker.state')).toEqual({ stringValue: 'CLOSED' });

  const requests = named('HTTP GET');
  expect(requests.map(({ parentSpanId }) => parentSpanId)).toEqual([first?.spanId, second?.spanId]);
  expect(service.traceparents).toEqual(requests.map(({ spanId }) => `00-${TRACE}-${spanId}-01`));
  // Neither the key nor what stands in an address is told (TR-15).
  expect(collector.text()).not.toMatch(/trip|planted-secret/);
});

function attribute(span: ReceivedSpan | undefined, key: string): unknown {
  return span?.attributes.find((candidate) => candidate.key === key)?.value;
}
