import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { DispatchEvent } from '../../../src/producer/calls/submission.ts';
import type { ToolCallEnvelope } from '../../../src/shared/calls/envelope.ts';
import type { WorkerEvent } from '../../../src/shared/telemetry/call-events.ts';
import { LOG_EVENTS, producerLine, workerLine, writeLogLine } from '../../../src/shared/telemetry/log-events.ts';

const KEY = 'trip-1';
const SECRET = 'a parameter that no log may hold';
const callId = 'r0.bi13n2-BfB6zxU75eP1IA7e-EYf5bX8T_P6KWJ8ZmWs';

function envelope(idempotencyKey?: string): ToolCallEnvelope {
  return {
    contractVersion: '1.1',
    requestId: '01a20089-c3e5-73e8-b36a-b8e3f2329b92',
    toolName: 'weather',
    toolNamespace: 'tools',
    target: { sessionKey: 'trip', actorId: 'ada', correlationId: 'turn-7' },
    payload: {
      version: '1.0',
      params: { secret: SECRET },
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    },
    transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 4, maxElapsedMs: 30_000 } },
    control: {},
    trace: {},
  };
}

const identity = {
  callId,
  requestId: '01a20089-c3e5-73e8-b36a-b8e3f2329b92',
  toolName: 'weather',
  sessionKey: 'trip',
  idempotencyKeyHash: createHash('sha256').update(KEY).digest('hex'),
  correlationId: 'turn-7',
};

const workerEvents: readonly WorkerEvent[] = [
  { type: 'tool_call_start', callId, envelope: envelope(KEY), attempt: 1, fence: 3 },
  {
    type: 'tool_call_end',
    callId,
    envelope: envelope(KEY),
    attempt: 2,
    elapsedMs: 12,
    outcome: { status: 'success', toolName: 'weather', durationMs: 40, attempts: 2, output: { content: SECRET } },
  },
  { type: 'tool_call_retry', callId, envelope: envelope(KEY), attempt: 1, delayMs: 150, errorCode: 'HTTP_503' },
  {
    type: 'tool_call_blocked',
    callId,
    envelope: envelope(KEY),
    attempt: 1,
    errorCode: 'CIRCUIT_OPEN',
    breakerState: 'OPEN',
  },
  { type: 'tool_call_circuit_state', circuit: 'tool:tools.weather', from: 'CLOSED', to: 'OPEN', reason: '5 in a row' },
  { type: 'tool_call_shadow', callId, envelope: envelope(KEY), attempt: 1, kind: 'retried', detail: 'HTTP_503' },
  {
    type: 'tool_call_retry_refused',
    callId,
    envelope: envelope(KEY),
    attempt: 1,
    errorCode: 'HTTP_503',
    bucket: 'tools.weather',
  },
];

describe('log events (R27)', () => {
  test('a worker has one line for each event, with the fields of the seed', () => {
    expect(workerEvents.map((event) => workerLine(event)?.fields)).toEqual([
      { event: 'tool_call_start', side: 'worker', ...identity, state: 'running', attempt: 1, fence: 3 },
      {
        event: 'tool_call_end',
        side: 'worker',
        ...identity,
        state: 'done',
        attempt: 2,
        elapsedMs: 12,
        fromCache: false,
      },
      {
        event: 'tool_call_retry',
        side: 'worker',
        ...identity,
        state: 'waiting-retry',
        attempt: 1,
        delayMs: 150,
        errorCode: 'HTTP_503',
        retriable: true,
      },
      {
        event: 'tool_call_blocked',
        side: 'worker',
        ...identity,
        state: 'failed',
        attempt: 1,
        errorCode: 'CIRCUIT_OPEN',
        retriable: true,
        breakerState: 'OPEN',
      },
      {
        event: 'tool_call_circuit_state',
        side: 'worker',
        circuit: 'tool:tools.weather',
        from: 'CLOSED',
        breakerState: 'OPEN',
        reason: '5 in a row',
      },
      { event: 'tool_call_shadow', side: 'worker', ...identity, attempt: 1, kind: 'retried', detail: 'HTTP_503' },
      {
        event: 'tool_call_retry_refused',
        side: 'worker',
        ...identity,
        attempt: 1,
        errorCode: 'HTTP_503',
        bucket: 'tools.weather',
      },
    ]);
    const changed = { circuit: 'tool:tools.weather', from: 'CLOSED', to: 'FORCED_OPEN', reason: 'a drill' } as const;
    expect(producerLine({ type: 'tool_call_circuit_state', ...changed })).toMatchObject({
      level: 'warn',
      fields: { event: 'tool_call_circuit_state', side: 'producer', breakerState: 'FORCED_OPEN', reason: 'a drill' },
    });
    // A producer alone sees loops.
    expect(new Set([...workerEvents.map(({ type }) => type), 'tool_call_loop'])).toEqual(new Set(LOG_EVENTS));
  });

  test('an error carries its code, whether it is retriable and the state of the circuit', () => {
    const line = workerLine({
      type: 'tool_call_end',
      callId,
      envelope: envelope(KEY),
      attempt: 4,
      elapsedMs: 5,
      outcome: {
        status: 'retry_exhausted',
        toolName: 'weather',
        durationMs: 900,
        attempts: 4,
        error: { code: 'HTTP_503', message: SECRET, retriable: true, terminal: true, breakerState: 'OPEN' },
      },
    });
    expect(line).toMatchObject({
      level: 'warn',
      fields: { state: 'failed', errorCode: 'HTTP_503', retriable: true, breakerState: 'OPEN' },
    });
    expect(JSON.stringify(line)).not.toContain(SECRET);
  });

  test('a producer emits what was submitted, refused and returned, from the ledger or not', () => {
    const events: readonly DispatchEvent[] = [
      { type: 'accepted', envelope: envelope(KEY), callId, answer: 'claimed' },
      { type: 'refused', envelope: envelope(KEY), code: 'PERMISSION_DENIED', message: SECRET },
      { type: 'refused', code: 'CONTRACT_INVALID', message: SECRET },
    ];
    const { callId: _, ...withoutId } = identity;
    expect(events.map((event) => producerLine(event)?.fields)).toEqual([
      { event: 'tool_call_start', side: 'producer', ...identity, state: 'queued' },
      {
        event: 'tool_call_blocked',
        side: 'producer',
        ...withoutId,
        errorCode: 'PERMISSION_DENIED',
        retriable: false,
      },
      { event: 'tool_call_blocked', side: 'producer', errorCode: 'CONTRACT_INVALID', retriable: false },
    ]);
    const ended = producerLine({
      type: 'ended',
      envelope: envelope(KEY),
      published: undefined,
      result: {
        requestId: identity.requestId,
        toolName: identity.toolName,
        callId,
        status: 'success',
        fromCache: true,
        attempts: 1,
        durationMs: 30,
        output: { content: SECRET },
      },
    });
    expect(ended?.fields).toMatchObject({ event: 'tool_call_end', ...identity, state: 'done', fromCache: true });
  });

  test('neither parameters nor outputs nor a key reach the log', () => {
    const written: string[] = [];
    const write = (fields: object, message: string) => void written.push(JSON.stringify({ ...fields, message }));
    const log = { debug: write, info: write, warn: write, error: write };
    for (const event of workerEvents) writeLogLine(log, workerLine(event));
    expect(written).toHaveLength(workerEvents.length);
    for (const line of written) {
      expect(line).not.toContain(SECRET);
      expect(line).not.toContain(`"${KEY}"`);
    }
  });

  test('a call without a key of its own is known by its ID, which is the key that its tool sees', () => {
    const line = workerLine({ type: 'tool_call_start', callId, envelope: envelope(), attempt: 1, fence: 1 });
    expect(line?.fields.idempotencyKeyHash).toBe(createHash('sha256').update(callId).digest('hex'));
  });
});
