import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { StoredRequest } from '../../../../src/shared/store/calls/call-record.ts';
import { parseRequest, requestText } from '../../../../src/shared/store/calls/records/request-text.ts';

const ORDINARY: StoredRequest = {
  envelope: {
    contractVersion: '1.1',
    requestId: '01a217a6-1a8f-7080-9463-4a4fb6b27eab',
    toolName: 'reply',
    toolNamespace: 'tools',
    target: { sessionKey: '01a217a6-0e9f-7650-b225-bc8301513f37', actorId: 'ada' },
    payload: { version: '1.0', params: { bytes: 200 }, idempotencyKey: 'trip-1' },
    transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 100, maxElapsedMs: 86_400_000 } },
    control: {},
    trace: {},
  },
  tool: { version: '1.0.0', definition: 'uKprU4plfLCU', effects: 'none' },
  idempotencyKey: 'trip-1',
};

describe('the text of a request', () => {
  test('names no field that every request has, and nothing that has its default', () => {
    expect(requestText(ORDINARY)).toBe(
      '["reply","1.0.0","uKprU4plfLCU","n","~AaIXphqPcICUY0pPtrJ-qw","~AaIXpg6fdlCyJbyDAVE_Nw","ada","trip-1",{"bytes":200}]',
    );
    expect(parseRequest(requestText(ORDINARY))).toEqual(ORDINARY);
  });

  const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 8 });
  const maybe = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined });
  const effects = fc.constantFrom('none', 'idempotent', 'keyed', 'probe', 'once');
  const stored = fc.record({
    requestId: fc.oneof(fc.uuid({ version: 7 }), fc.constant('01ARZ3NDEKTSV4RRFFQ69G5FAV')),
    namespace: fc.oneof(fc.constant('tools'), text),
    toolCallId: maybe(text),
    sessionKey: fc.oneof(text, fc.uuid(), fc.constantFrom('~', '~~', '~AaIXpg6fdlCyJbyDAVE_Nw')),
    tenantId: maybe(text),
    key: maybe(
      fc.oneof(
        text,
        fc.uuid(),
        fc.uuid().map((uuid) => `${uuid}-1`),
        fc.constantFrom('~', '~~1'),
      ),
    ),
    timeoutMs: maybe(fc.nat()),
    dedupeMode: fc.constantFrom('enforced', 'bestEffort', 'disabled'),
    maxAttempts: fc.constantFrom(1, 100),
    deadlineAtMs: maybe(fc.nat()),
    traceparent: maybe(text),
    effects: maybe(effects),
    shared: maybe(fc.constant(true)),
    submittedBy: maybe(text),
  });

  test('is read as what was written, whatever a request has', () => {
    fc.assert(
      fc.property(stored, (given) => {
        const { key } = given;
        const request = JSON.parse(
          JSON.stringify({
            envelope: {
              ...ORDINARY.envelope,
              requestId: given.requestId,
              toolNamespace: given.namespace,
              toolCallId: given.toolCallId,
              target: { sessionKey: given.sessionKey, actorId: 'ada', tenantId: given.tenantId },
              payload: {
                version: '1.0',
                params: { a: [1] },
                idempotencyKey: key,
                callHints: given.timeoutMs === undefined ? undefined : { timeoutMs: given.timeoutMs },
              },
              transport: {
                dedupeMode: given.dedupeMode,
                retryBudget: { maxAttempts: given.maxAttempts, maxElapsedMs: 86_400_000 },
              },
              control: { deadlineAtMs: given.deadlineAtMs },
              trace: { traceparent: given.traceparent },
            },
            tool: { version: '1.0.0', definition: 'd', effects: given.effects },
            idempotencyKey: key ?? 'r0.derived',
            shared: given.shared,
            submittedBy: given.submittedBy,
          }),
        ) as StoredRequest;
        expect(parseRequest(requestText(request))).toEqual(request);
      }),
    );
  });
});
