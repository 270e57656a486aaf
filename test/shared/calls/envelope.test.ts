import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  contractSchemas,
  MAX_KEY_BYTES,
  parseEnvelope,
  toolResultEnvelopeSchema,
} from '../../../src/shared/calls/envelope.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { RESULT_STATUSES } from '../../../src/shared/errors/result-status.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { uuidv7 } from '../../../src/shared/util/time.ts';

/** An envelope with every field of the contract. */
function whole() {
  return {
    contractVersion: '1.1',
    requestId: uuidv7(),
    toolCallId: 'call_1',
    toolName: 'read',
    toolNamespace: 'tools',
    target: {
      agentId: 'g',
      sessionKey: 's',
      actorId: 'a',
      workspaceId: 'w',
      correlationId: 'c',
      tenantId: 't',
    },
    payload: {
      version: '1.0',
      params: { path: 'a.txt' },
      idempotencyKey: 'k',
      callHints: { safetyCritical: true, expectedRetrySafe: false, timeoutMs: 1_000 },
    },
    transport: {
      dedupeMode: 'enforced',
      retryBudget: { maxAttempts: 4, maxElapsedMs: 30_000 },
      circuitBreakerHint: 'tool',
    },
    control: { deadlineAtMs: 1_900_000_000_000, requestTags: ['x'], fromHook: 'h' },
    trace: { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', baggage: { a: 'b' } },
  };
}

test('parameters of any name are kept', () => {
  const params = JSON.parse('{"__proto__":{"a":1},"constructor":2,"b":{"__proto__":3}}');
  const parsed = parseEnvelope({ ...whole(), payload: { ...whole().payload, params } }).payload.params;
  expect(JSON.stringify(parsed)).toBe(JSON.stringify(params));
});

/** The whole envelope with one path set to a value; undefined removes it. */
function changed(path: string, value?: unknown): unknown {
  const envelope: Record<string, unknown> = structuredClone(whole());
  const names = path.split('.');
  const last = names.pop() ?? '';
  let at = envelope;
  for (const name of names) at = at[name] as Record<string, unknown>;
  if (value === undefined) delete at[last];
  else at[last] = value;
  return envelope;
}

function refusal(value: unknown): PawlError {
  try {
    parseEnvelope(value);
  } catch (error) {
    if (error instanceof PawlError) return error;
    throw error;
  }
  throw new Error('the envelope was accepted');
}

describe('R1 to R6: contract 1.1', () => {
  test('every field is kept as it came', () => {
    const envelope = whole();
    expect(parseEnvelope(envelope)).toEqual(envelope);
  });

  test.each([
    'toolCallId',
    'payload.idempotencyKey',
    'payload.callHints',
    'transport.circuitBreakerHint',
    'target.agentId',
    'target.tenantId',
  ])('%s may be absent', (path) => {
    expect(() => parseEnvelope(changed(path))).not.toThrow();
  });

  test('a request ID may be a ULID', () => {
    expect(() => parseEnvelope(changed('requestId', '01ARZ3NDEKTSV4RRFFQ69G5FAV'))).not.toThrow();
  });
});

describe('TR-1: a malformed envelope is refused with the path of each fault', () => {
  test.each([
    ['toolName', undefined],
    ['toolName', ''],
    ['toolName', 'x'.repeat(257)],
    ['contractVersion', '1.0'],
    ['contractVersion', undefined],
    ['requestId', 'nonsense'],
    ['requestId', '0af76519-16cd-43dd-8448-eb211c80319c'],
    ['toolNamespace', undefined],
    ['target', undefined],
    ['target.sessionKey', ''],
    ['target.actorId', 7],
    ['payload.version', '2.0'],
    ['payload.params', []],
    ['payload.params', 'text'],
    ['payload.idempotencyKey', ''],
    ['payload.idempotencyKey', 'x'.repeat(MAX_KEY_BYTES + 1)],
    ['payload.idempotencyKey', '😀'.repeat(257)],
    ['payload.callHints.timeoutMs', 0],
    ['transport.dedupeMode', 'maybe'],
    ['transport.retryBudget.maxAttempts', 0],
    ['transport.retryBudget.maxAttempts', 1.5],
    ['transport.retryBudget.maxElapsedMs', -1],
    ['transport.circuitBreakerHint', 'session'],
    ['control.deadlineAtMs', -5],
    ['control.requestTags', Array.from({ length: 33 }, () => 'x')],
    ['trace.traceparent', 'x'.repeat(129)],
    ['trace', undefined],
  ])('%s: %j', (path, value) => {
    const { code, issues, message } = refusal(changed(path, value));
    expect(code).toBe('CONTRACT_INVALID');
    expect(issues?.map((issue) => issue.path)).toEqual([path]);
    expect(message).toContain(`${path}: `);
  });

  test('several faults come in one error', () => {
    const { issues } = refusal({ ...whole(), toolName: undefined, contractVersion: '9', target: {} });
    expect(issues?.map((issue) => issue.path).sort()).toEqual([
      'contractVersion',
      'target.actorId',
      'target.sessionKey',
      'toolName',
    ]);
  });

  test('an unknown field is refused with its path', () => {
    expect(refusal(changed('priority', 1)).message).toContain('priority');
    const { issues } = refusal(changed('target.userId', 'x'));
    expect(issues?.[0]).toMatchObject({ path: 'target', message: expect.stringContaining('userId') });
  });

  test.each([undefined, null, 7, 'text', [], () => {}])('%j is no envelope', (value) => {
    expect(refusal(value).code).toBe('CONTRACT_INVALID');
  });

  test.each(['a:b', '123', 'wait', 'meta', '\u0000', '😀', '{}', 'x'.repeat(MAX_KEY_BYTES)])(
    'the key %j is fine',
    (key) => {
      expect(parseEnvelope(changed('payload.idempotencyKey', key)).payload.idempotencyKey).toBe(key);
    },
  );
});

describe('R35: the contract is published as JSON Schema', () => {
  const command = 'node scripts/write-schemas.ts && npm run format';

  test.each(Object.entries(contractSchemas()))('the file of %s equals the schema of the code', (_name, schema) => {
    const file = String((schema as { $id?: unknown }).$id)
      .split('/')
      .pop();
    const written: unknown = JSON.parse(readFileSync(new URL(`../../../schemas/${file}`, import.meta.url), 'utf8'));
    expect(written, `schemas/${file} is not up to date: run \`${command}\``).toEqual(
      JSON.parse(JSON.stringify(schema)),
    );
  });

  test('Ajv accepts and refuses the same values by the schema as the code does', () => {
    const validate = compileSchema(contractSchemas().toolCallEnvelope as Record<string, unknown>);
    expect(validate(whole())).toEqual([]);
    for (const path of ['toolName', 'contractVersion', 'target.sessionKey', 'payload.params', 'trace'])
      expect(
        validate(changed(path)).map((issue) => issue.path),
        path,
      ).toContain(path);
    expect(validate(changed('priority', 1)).map((issue) => issue.path)).toEqual(['priority']);
  });

  test('R7: results have six statuses', () => {
    expect(RESULT_STATUSES).toEqual([
      'success',
      'error',
      'retriable_error',
      'retry_exhausted',
      'circuit_open',
      'timeout',
    ]);
    const validate = compileSchema(contractSchemas().toolResultEnvelope as Record<string, unknown>);
    const result = { requestId: 'r', status: 'success', fromCache: false, toolName: 't', durationMs: 1, attempts: 1 };
    expect(validate(result)).toEqual([]);
    expect(validate({ ...result, status: 'done' })).toHaveLength(1);
    expect(toolResultEnvelopeSchema.safeParse(result).success).toBe(true);
  });
});
