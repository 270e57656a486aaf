/**
 * The spans of an attempt: `tool_attempt` below the caller's `tool_execution`, a span for the wait before it (`queue_wait`,
 * `retry_delay`), and one for each request that the tool makes through `ctx.fetch`.
 */
import {
  context,
  defaultTextMapGetter,
  type Link,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  type Context as SpanScope,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type { Failure } from '../../shared/errors/failure.ts';
import type { StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import { keyHash } from '../../shared/telemetry/log-events.ts';
import { traceparentOf } from '../../shared/telemetry/tracing.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import type { CircuitHold } from './circuit-hold.ts';
import { callOutcome, type JobOutcome } from './job-outcome.ts';

export class AttemptTraces {
  readonly #tracer: Tracer;

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  /** Begins the span of an attempt that has begun. Attempts before it are linked, so that a retry leads back to what failed. */
  begin({ callId, generation }: CallJob, started: StartedAttempt, circuit: CircuitHold): AttemptTrace {
    const { request, earlierAttempts: earlier, fence, nowMs } = started;
    const { envelope } = request;
    const parentScope = scopeOf(envelope.trace.traceparent);
    const previous = earlier.at(-1);
    // A generation is the time at which it was queued.
    const waitedSinceMs = Math.min(previous?.finishedAtMs ?? Number(generation), nowMs);
    const attributes = {
      'tool.name': envelope.toolName,
      'pawl.call_id': callId,
      'pawl.session': envelope.target.sessionKey,
      'idempotency.key': keyHash(request.idempotencyKey),
      'retry.attempt': earlier.length + 1,
      'breaker.state': circuit.snapshot.state,
      'pawl.fence': fence,
    };
    this.#tracer
      .startSpan(
        previous === undefined ? 'queue_wait' : 'retry_delay',
        { startTime: waitedSinceMs, attributes },
        parentScope,
      )
      .end(nowMs);
    const links = earlier.flatMap(({ traceparent }): Link[] => {
      const linked = trace.getSpanContext(scopeOf(traceparent));
      return linked === undefined ? [] : [{ context: linked }];
    });
    const span = this.#tracer.startSpan('tool_attempt', { kind: SpanKind.CONSUMER, attributes, links }, parentScope);
    return new AttemptTrace(this.#tracer, span, trace.setSpan(parentScope, span));
  }
}

export class AttemptTrace {
  /** The trace context of this attempt, for the tool and the services that it calls. */
  readonly traceparent: string;
  readonly #tracer: Tracer;
  readonly #span: Span;
  readonly #scope: SpanScope;

  constructor(tracer: Tracer, span: Span, scope: SpanScope) {
    this.#tracer = tracer;
    this.#span = span;
    this.#scope = scope;
    this.traceparent = traceparentOf(span);
  }

  /** Runs the tool with this span as the parent, also of spans from instrumented libraries. */
  run<T>(tool: () => Promise<T>): Promise<T> {
    return context.with(this.#scope, tool);
  }

  /** `fetch` with a span for each request, and the trace context in its headers. Path and query are left out: they may hold secrets. */
  tracedFetch(fetch: ToolContext['fetch']): ToolContext['fetch'] {
    return async (input, init) => {
      const method = init?.method?.toUpperCase() ?? 'GET';
      const attributes = { 'http.request.method': method, 'server.address': hostOf(input) };
      const span = this.#tracer.startSpan(`HTTP ${method}`, { kind: SpanKind.CLIENT, attributes }, this.#scope);
      const headers = new Headers(init?.headers);
      headers.set('traceparent', traceparentOf(span));
      try {
        const response = await fetch(input, { ...init, headers });
        span.setAttribute('http.response.status_code', response.status);
        if (response.status >= 400) span.setStatus({ code: SpanStatusCode.ERROR });
        return response;
      } catch (error) {
        span.setAttribute('error.type', error instanceof Error ? error.name : 'Error');
        span.setStatus({ code: SpanStatusCode.ERROR });
        throw error;
      } finally {
        span.end();
      }
    };
  }

  failed({ code, retriable }: Failure): void {
    this.#span.setAttributes({ 'error.type': code, 'pawl.retriable': retriable });
    this.#span.setStatus({ code: SpanStatusCode.ERROR, message: code });
  }

  end(jobOutcome: JobOutcome): void {
    const outcome = callOutcome(jobOutcome);
    this.#span.setAttribute('pawl.job_outcome', outcome === undefined ? jobOutcome.kind : 'finished');
    if (outcome !== undefined) {
      const { status, error } = outcome;
      this.#span.setAttribute('pawl.status', status);
      if (error !== undefined) {
        this.#span.setAttribute('error.type', error.code);
        this.#span.setStatus({ code: SpanStatusCode.ERROR, message: error.code });
      }
    }
    this.#span.end();
  }
}

function hostOf(address: string | URL): string {
  return URL.canParse(String(address)) ? new URL(address).host : '';
}

function scopeOf(traceparent: string | undefined): SpanScope {
  return traceparent === undefined
    ? ROOT_CONTEXT
    : propagation.extract(ROOT_CONTEXT, { traceparent }, defaultTextMapGetter);
}
