/**
 * OpenTelemetry in this process. Spans go out as OTLP over HTTP if a setting or the standard variable for traces names an endpoint, or to
 * the provider that the host program registered. Otherwise nothing is loaded or measured.
 */
import type { ProxyTracerProvider, Span, Tracer } from '@opentelemetry/api';
import { loadOptional } from '../errors/optional-packages.ts';

/** The variable for traces alone, which the exporter reads itself. It takes precedence over the endpoint of all signals. */
const TRACES_ENDPOINT = 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT';
const SERVICE = 'pawl';
/** The key under which every copy of OpenTelemetry's API keeps the registered provider. */
const REGISTERED = Symbol.for('opentelemetry.js.api.1');

export interface Tracing<Traces> {
  /** The object that makes a side's spans. */
  readonly traces: Traces;
  /** Sends the spans that have ended so far. */
  flush(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

let started: Promise<() => Promise<void>> | undefined;

/**
 * The tracing of this process, started at most once; undefined where no provider or collector would receive a span. Throws
 * `CONFIGURATION` where the packages of OpenTelemetry are needed and not installed.
 */
export async function openTracing<Traces>(
  environment: Environment,
  endpoint: string | undefined,
  version: string,
  make: (tracer: Tracer) => Promise<Traces>,
): Promise<Tracing<Traces> | undefined> {
  const isRegistered = await hasProvider();
  if (!isRegistered) {
    const ownEndpoint = (environment[TRACES_ENDPOINT] ?? '') !== '';
    if (!ownEndpoint && endpoint === undefined) return undefined;
    if (environment['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return undefined;
    started ??= start(environment['OTEL_SERVICE_NAME'] ?? SERVICE, ownEndpoint ? undefined : endpoint);
  }
  const flush = (await started) ?? (async () => {});
  const { trace } = await import('@opentelemetry/api');
  return { traces: await make(trace.getTracer(SERVICE, version)), flush };
}

async function hasProvider(): Promise<boolean> {
  if (!(REGISTERED in globalThis)) return false;
  const { trace } = await import('@opentelemetry/api');
  return (trace.getTracerProvider() as Partial<ProxyTracerProvider>).getDelegateTracer?.(SERVICE) !== undefined;
}

/** The SDK is loaded only when it is used: it is larger than all of Pawl. */
async function start(serviceName: string, endpoint: string | undefined): Promise<() => Promise<void>> {
  const [{ NodeSDK }, { BatchSpanProcessor }, { OTLPTraceExporter }] = await loadOptional('traces', () =>
    Promise.all([
      import('@opentelemetry/sdk-node'),
      import('@opentelemetry/sdk-trace'),
      import('@opentelemetry/exporter-trace-otlp-http'),
    ]),
  );
  const to = endpoint === undefined ? {} : { url: `${endpoint.replace(/\/+$/, '')}/v1/traces` };
  const processor = new BatchSpanProcessor({ exporter: new OTLPTraceExporter(to) });
  const sdk = new NodeSDK({
    serviceName,
    spanProcessors: [processor],
    metricReaders: [],
    logRecordProcessors: [],
    instrumentations: [],
  });
  sdk.start();
  return () => processor.forceFlush();
}

/** The position of a span as a W3C `traceparent` header. */
export function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
}
