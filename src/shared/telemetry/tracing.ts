/**
 * OpenTelemetry in this process. Spans go out as OTLP over HTTP if a setting or the standard variable for traces names an endpoint, or to
 * the provider that the host program registered. Otherwise nothing is loaded or measured.
 */
import type { ProxyTracerProvider, Span, Tracer } from '@opentelemetry/api';
import { loadOptional } from '../errors/optional-packages.ts';

/** The variable for traces alone, which the exporter reads itself. It takes precedence over the endpoint of all signals. */
const TRACES_ENDPOINT = 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT';
const SERVICE = 'pawl';
/** The global symbol under which every copy of OpenTelemetry's API stores the registered provider. */
const API_KEY = Symbol.for('opentelemetry.js.api.1');

export interface Tracing<Traces> {
  /** The object that makes a side's spans. */
  readonly traces: Traces;
  /** Sends the spans that have ended so far. */
  flush(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

let startedSdk: Promise<() => Promise<void>> | undefined;

/**
 * The tracing of this process, started at most once; undefined where no provider or collector would receive a span. Throws
 * `CONFIGURATION` where the packages of OpenTelemetry are needed and not installed.
 */
export async function openTracing<Traces>(
  environment: Environment,
  endpoint: string | undefined,
  version: string,
  createTraces: (tracer: Tracer) => Promise<Traces>,
): Promise<Tracing<Traces> | undefined> {
  const isRegistered = await hasProvider();
  if (!isRegistered) {
    const hasTracesEndpoint = (environment[TRACES_ENDPOINT] ?? '') !== '';
    if (!hasTracesEndpoint && endpoint === undefined) return undefined;
    if (environment['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return undefined;
    startedSdk ??= start(environment['OTEL_SERVICE_NAME'] ?? SERVICE, hasTracesEndpoint ? undefined : endpoint);
  }
  const flush = (await startedSdk) ?? (async () => {});
  const { trace } = await import('@opentelemetry/api');
  return { traces: await createTraces(trace.getTracer(SERVICE, version)), flush };
}

async function hasProvider(): Promise<boolean> {
  if (!(API_KEY in globalThis)) return false;
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
  const exporterOptions = endpoint === undefined ? {} : { url: `${endpoint.replace(/\/+$/, '')}/v1/traces` };
  const processor = new BatchSpanProcessor({ exporter: new OTLPTraceExporter(exporterOptions) });
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
