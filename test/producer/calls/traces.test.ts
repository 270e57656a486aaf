import type { Tracer } from '@opentelemetry/api';
import { expect, test } from 'vitest';
import type { DispatchEvent } from '../../../src/producer/calls/submission.ts';
import { CallTraces } from '../../../src/producer/calls/traces.ts';
import type { ToolCallEnvelope } from '../../../src/shared/calls/envelope.ts';

/** Writes down what becomes of its spans. */
function tracer(): { readonly told: string[]; readonly tracer: Tracer } {
  const told: string[] = [];
  let spans = 0;
  const startSpan = () => {
    spans += 1;
    const number = spans;
    return {
      spanContext: () => ({ traceId: 'a'.repeat(32), spanId: String(number).padStart(16, '0'), traceFlags: 1 }),
      setAttribute: (_name: string, value: unknown) => void told.push(`${number}: ${value}`),
      setStatus: () => {},
      addEvent: (name: string) => void told.push(`${number}: ${name}`),
      end: () => void told.push(`${number}: ended`),
    };
  };
  return { told, tracer: { startSpan } as unknown as Tracer };
}

test('two who send the same request at the same time have a span each, and both end', () => {
  const { told, tracer: own } = tracer();
  const traces = new CallTraces(own);
  const asked = {
    requestId: '01a20856-024c-73d8-bcbb-970688f1c1d7',
    toolName: 'greet',
    target: { sessionKey: 'trip' },
    payload: { params: {} },
    trace: {},
  } as unknown as ToolCallEnvelope;
  const [first, second] = [traces.begin(asked), traces.begin(asked)];
  traces.observe({ type: 'refused', envelope: first, code: 'OVERLOADED', message: 'busy' } as DispatchEvent);
  traces.callerLeft(second);
  expect(told).toEqual(['1: OVERLOADED', '1: ended', '2: waiting stopped', '2: ended']);
});
