import { describe, expect, test } from 'vitest';
import { FAILURES, type FailureCode } from '../../../src/shared/errors/failure-codes.ts';
import { FAILURE_RESPONSES } from '../../../src/shared/errors/failure-responses.ts';

describe('the catalogue', () => {
  test.each(Object.entries(FAILURES))('%s has a sentence for the model and one for the operator', (code, kind) => {
    expect(code).toMatch(/^[A-Z][A-Z0-9_]+$/);
    expect(kind.sentence).toMatch(/^[A-Z].*\.$/);
    expect(kind.operator).toMatch(/^[A-Z].*\.$/);
  });

  test.each([
    'HTTP_408',
    'HTTP_429',
    'HTTP_500',
    'HTTP_502',
    'HTTP_503',
    'HTTP_504',
    'CONNECTION_RESET',
    'DNS_FAILED',
    'UPSTREAM_TIMEOUT',
  ] as const)('R18: %s is retriable and counts against the circuit', (code) => {
    expect(FAILURES[code]).toMatchObject({ retriable: true, againstCircuit: true });
  });

  test.each([
    'CONTRACT_INVALID',
    'INVALID_PARAMS',
    'PERMISSION_DENIED',
    'IDEMPOTENCY_CONFLICT',
    'HTTP_4XX',
    'CANCELLED',
    'CIRCUIT_OPEN',
  ] as const)('%s never counts against a circuit', (code) => {
    expect(FAILURES[code].againstCircuit).toBe(false);
  });

  test('only failures from before anything was sent both prove that nothing happened and count against the circuit', () => {
    const proving = (Object.keys(FAILURES) as FailureCode[]).filter(
      (code) => FAILURES[code].nothingHappened && FAILURES[code].againstCircuit,
    );
    expect(proving.sort()).toEqual(
      ['CONNECTION_REFUSED', 'CONNECT_TIMEOUT', 'DNS_FAILED', 'HTTP_429', 'MCP_UNAVAILABLE', 'UNREACHABLE'].sort(),
    );
  });

  test('MCP reports failures of the fleet as errors of the protocol, and all others as results', () => {
    const ofFleet = Object.entries(FAILURE_RESPONSES).filter(([, { mcp }]) => mcp === 'protocolError');
    expect(ofFleet.map(([code]) => code).sort()).toEqual([
      'BACKEND_UNAVAILABLE',
      'CHECKPOINT_INVALID',
      'RESULT_INVALID',
      'SIGNATURE_INVALID',
      'TOOL_UNAVAILABLE',
    ]);
  });
});
