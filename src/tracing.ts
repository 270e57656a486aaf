/**
 * OpenTelemetry in this process (R29): spans go out as OTLP over HTTP where the standard variables name an endpoint, or to the
 * provider that the program around has registered. Without either, nothing is loaded and nothing is measured.
 */
import { type ProxyTracerProvider, type Span, type Tracer, trace } from '@opentelemetry/api';

const ENDPOINTS = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'] as const;
const SERVICE = 'pawl';

export interface Tracing {
  readonly tracer: Tracer;
  /** Sends what has ended so far. */
  flush(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

let started: Promise<() => Promise<void>> | undefined;

/** This process' tracing, started at most once; undefined where nobody would receive a span. */
export async function openTracing(environment: Environment, version: string): Promise<Tracing | undefined> {
  const tracer = () => trace.getTracer(SERVICE, version);
  if (hasProvider()) return { tracer: tracer(), flush: (await started) ?? (async () => {}) };
  const wanted = ENDPOINTS.some((name) => (environment[name] ?? '') !== '');
  if (!wanted || environment['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return undefined;
  started ??= start(environment['OTEL_SERVICE_NAME'] ?? SERVICE);
  const flush = await started;
  return { tracer: tracer(), flush };
}

function hasProvider(): boolean {
  return (trace.getTracerProvider() as Partial<ProxyTracerProvider>).getDelegateTracer?.(SERVICE) !== undefined;
}

/** Loaded only when it is used: it is larger than all of Pawl. */
async function start(serviceName: string): Promise<() => Promise<void>> {
  const { NodeSDK } = await import('@opentelemetry/sdk-node');
  const { BatchSpanProcessor } = await import('@opentelemetry/sdk-trace');
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http');
  const processor = new BatchSpanProcessor({ exporter: new OTLPTraceExporter() });
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

/** As W3C's `traceparent` header says where a span is. */
export function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
}
