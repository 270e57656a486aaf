/**
 * The span of a call on its caller's side: `tool_execution`, from its submission to its answer. The envelope carries its trace context,
 * so that the worker's spans are its children.
 */
import {
  context,
  defaultTextMapGetter,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
} from '@opentelemetry/api';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { keyHash } from '../../shared/telemetry/log-events.ts';
import { traceparentOf } from '../../shared/telemetry/tracing.ts';
import type { DispatchEvent } from './submission.ts';

export class CallTraces {
  readonly #tracer: Tracer;
  /** Open spans by `traceparent`: two callers that send the same request have a span each. */
  readonly #open = new Map<string, Span>();

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  /** Begins a child span of the caller's span, and returns the envelope with its trace context. */
  begin(envelope: ToolCallEnvelope): ToolCallEnvelope {
    const { requestId, toolName, target, payload, trace } = envelope;
    const parent =
      trace.traceparent === undefined
        ? context.active()
        : propagation.extract(context.active(), { traceparent: trace.traceparent }, defaultTextMapGetter);
    const attributes = {
      'tool.name': toolName,
      'pawl.request_id': requestId,
      'pawl.session': target.sessionKey,
      ...(payload.idempotencyKey !== undefined && { 'idempotency.key': keyHash(payload.idempotencyKey) }),
    };
    const span = this.#tracer.startSpan('tool_execution', { kind: SpanKind.PRODUCER, attributes }, parent);
    const traceparent = traceparentOf(span);
    this.#open.set(traceparent, span);
    return { ...envelope, trace: { ...trace, traceparent } };
  }

  /** Updates the call's span by the events of the dispatch. */
  observe(event: DispatchEvent): void {
    if (event.type === 'tool_call_circuit_state') return;
    const traceparent = event.envelope?.trace.traceparent ?? '';
    const span = this.#open.get(traceparent);
    if (span === undefined) return;
    switch (event.type) {
      case 'accepted':
        span.setAttribute('pawl.call_id', event.callId);
        span.addEvent(event.answer);
        return;
      case 'shadow':
        span.addEvent('shadow', { kind: event.kind, detail: event.detail });
        return;
      case 'refused':
        span.setAttribute('error.type', event.code);
        span.setStatus({ code: SpanStatusCode.ERROR, message: event.code });
        this.#end(traceparent, span);
        return;
      case 'ended': {
        const { status, attempts, fromCache, error } = event.result;
        span.setAttributes({ 'pawl.status': status, 'pawl.attempts': attempts, 'pawl.from_cache': fromCache });
        if (error !== undefined) {
          span.setAttribute('error.type', error.code);
          if (error.breakerState !== undefined) span.setAttribute('breaker.state', error.breakerState);
          span.setStatus({ code: SpanStatusCode.ERROR, message: error.code });
        }
        this.#end(traceparent, span);
        return;
      }
    }
  }

  /** Ends the span of a caller that stopped waiting; the call goes on without it. */
  callerLeft({ trace: { traceparent = '' } }: ToolCallEnvelope): void {
    const span = this.#open.get(traceparent);
    if (span === undefined) return;
    span.addEvent('waiting stopped');
    this.#end(traceparent, span);
  }

  #end(traceparent: string, span: Span): void {
    this.#open.delete(traceparent);
    span.end();
  }
}
