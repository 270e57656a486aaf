import { describe, expect, test } from 'vitest';
import { type IdentityRules, identify, paramsDigest, partitionOf } from '../../../src/shared/calls/call-id.ts';
import type { ToolCallEnvelope } from '../../../src/shared/calls/envelope.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { canonicalJson, digest } from '../../../src/shared/schema/canonical-json.ts';

describe('R9: canonical JSON is RFC 8785', () => {
  test.each([
    [
      'keys are sorted at every depth',
      { b: { d: 1, c: 2 }, a: [{ z: 1, y: 2 }] },
      '{"a":[{"y":2,"z":1}],"b":{"c":2,"d":1}}',
    ],
    [
      'by UTF-16 code units, as in the RFC’s own example',
      {
        '\u20ac': 'Euro Sign',
        '\r': 'Carriage Return',
        '\ufb33': 'Hebrew Letter Dalet With Dagesh',
        '1': 'One',
        '\ud83d\ude00': 'Emoji: Grinning Face',
        '\u0080': 'Control',
        '\u00f6': 'Latin Small Letter O With Diaeresis',
      },
      '{"\\r":"Carriage Return","1":"One","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis","\u20ac":"Euro Sign","\ud83d\ude00":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}',
    ],
    ['numeric keys are text too', { 10: 'ten', 9: 'nine', a: 1 }, '{"10":"ten","9":"nine","a":1}'],
    ['minus zero is zero', [-0, 0], '[0,0]'],
    [
      'numbers are written as ECMAScript writes them',
      [Number('333333333.33333329'), 1e30, 4.5, 2e-3, 0.000_000_000_000_000_000_000_000_001, 1e21, 1e20],
      '[333333333.3333333,1e+30,4.5,0.002,1e-27,1e+21,100000000000000000000]',
    ],
    ['strings are escaped as in the RFC', '\u20ac$\u000f\nA\'B"\\\\"/', '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'],
    ['white space is kept: it can be the difference between two commands', ' a\t b ', '" a\\t b "'],
    ['case and Unicode form are kept', ['é', 'e\u0301'], '["é","e\u0301"]'],
    ['undefined members are dropped', { a: undefined, b: 1 }, '{"b":1}'],
    ['undefined items are null, as JSON has them', [1, undefined, 2], '[1,null,2]'],
    // biome-ignore lint/suspicious/noSparseArray: the hole is the case.
    ['holes are null, as JSON has them', [1, , 2], '[1,null,2]'],
    ['literals', [true, false, null, '', {}, []], '[true,false,null,"",{},[]]'],
    ['dates are what JSON makes of them', { at: new Date(0) }, '{"at":"1970-01-01T00:00:00.000Z"}'],
  ])('%s', (_rule, value, text) => {
    expect(canonicalJson(value)).toBe(text);
    expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
  });

  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  let deep: unknown = 1;
  for (let level = 0; level < 129; level += 1) deep = [deep];
  test.each([
    ['NaN', { a: Number.NaN }, 'holds NaN in a, which'],
    ['infinity', [{ a: Number.POSITIVE_INFINITY }], 'holds Infinity in [0].a, which'],
    ['a date that is none', { a: new Date('never') }, 'holds Invalid Date in a, which'],
    ['a promise that was not awaited', { a: [Promise.resolve(1)] }, 'holds Promise in a[0], which'],
    ['an error', { a: new TypeError('x') }, 'holds TypeError (its message would be lost) in a, which'],
    ['a pattern', { a: /x/ }, 'holds RegExp without members'],
    ['bytes', { a: new Uint8Array(2) }, 'holds Uint8Array (bytes'],
    ['a member that throws', { a: new Proxy({}, { ownKeys: () => undefined as never }) }, 'holds a value that throws'],
    ['a BigInt', { a: 1n }, 'holds bigint in a, which'],
    ['a function', { a: () => {} }, 'holds function, which'],
    ['a symbol', [Symbol('a')], 'holds symbol in [0], which'],
    ['a cycle', cycle, 'nested more than 128 levels'],
    ['too deep a nest', deep, 'nested more than 128 levels'],
    ['undefined itself', undefined, 'holds undefined, which'],
  ])('%s is a typed error with its path', (_what, value, text) => {
    const thrown = catching(() => canonicalJson(value));
    expect(thrown).toBeInstanceOf(PawlError);
    expect(thrown).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path: 'payload.params' }] });
    expect((thrown as Error).message).toContain(text);
  });

  test('128 levels are fine', () => {
    let value: unknown = 1;
    for (let level = 0; level < 128; level += 1) value = [value];
    expect(canonicalJson(value)).toHaveLength(257);
  });
});

function catching(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return error;
  }
}

describe('the digest of parameters', () => {
  test('depends on every value and not on the order of keys', () => {
    expect(paramsDigest({ a: 1, b: 2 }, {})).toBe(paramsDigest({ b: 2, a: 1 }, {}));
    expect(paramsDigest({ a: '1' }, {})).not.toBe(paramsDigest({ a: 1 }, {}));
    expect(paramsDigest({ command: 'rm  a' }, {})).not.toBe(paramsDigest({ command: 'rm a' }, {}));
    expect(paramsDigest({ a: null }, {})).not.toBe(paramsDigest({}, {}));
  });

  test.each(['clientTs', 'retryCount', 'traceparent'])('R9: leaves %s out unless the tool declares it', (name) => {
    const declared = { properties: { [name]: { type: 'number' } } };
    expect(paramsDigest({ a: 1, [name]: 5 }, {})).toBe(paramsDigest({ a: 1 }, {}));
    expect(paramsDigest({ a: 1, [name]: 5 }, declared)).not.toBe(paramsDigest({ a: 1, [name]: 6 }, declared));
    expect(paramsDigest({ a: { [name]: 5 } }, {})).not.toBe(paramsDigest({ a: {} }, {}));
  });

  test('is 43 characters that are safe in keys, job IDs and URLs', () => {
    expect(digest('')).toBe('47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU');
  });
});

const RULES: IdentityRules = {
  tier: 'read-only',
  shard: 0,
  scope: 'session',
  derive: true,
  derivedReplay: 'same-request',
};

interface Asked {
  readonly target?: Partial<ToolCallEnvelope['target']>;
  readonly key?: string;
  readonly toolCallId?: string;
  readonly requestId?: string;
  readonly namespace?: string;
  readonly tool?: string;
  readonly dedupeMode?: ToolCallEnvelope['transport']['dedupeMode'];
}

function asked({ target, key, toolCallId, requestId, namespace, tool, dedupeMode }: Asked = {}): ToolCallEnvelope {
  return {
    contractVersion: '1.1',
    requestId: requestId ?? 'request-1',
    ...(toolCallId === undefined ? {} : { toolCallId }),
    toolName: tool ?? 'read',
    toolNamespace: namespace ?? 'tools',
    target: { sessionKey: 's', actorId: 'a', ...target },
    payload: { version: '1.0', params: {}, ...(key === undefined ? {} : { idempotencyKey: key }) },
    transport: { dedupeMode: dedupeMode ?? 'enforced', retryBudget: { maxAttempts: 1, maxElapsedMs: 0 } },
    control: {},
    trace: {},
  };
}

describe('members that separate two calls with one key', () => {
  const key = { key: 'trip-1' };
  const same = identify(asked(key), 'params', RULES).callId;

  test.each([
    ['session', asked({ ...key, target: { sessionKey: 't' } })],
    ['actor', asked({ ...key, target: { actorId: 'b' } })],
    ['tenant', asked({ ...key, target: { tenantId: 'acme' } })],
    ['namespace', asked({ ...key, namespace: 'other' })],
    ['tool', asked({ ...key, tool: 'write' })],
    ['key', asked({ key: 'trip-2' })],
  ])('another %s', (_what, envelope) => {
    expect(identify(envelope, 'params', RULES).callId).not.toBe(same);
  });

  test('joined text would collide: session `s::x` with actor `a`, and session `s` with actor `x::a`', () => {
    const one = identify(asked({ ...key, target: { sessionKey: 's::x', actorId: 'a' } }), 'params', RULES);
    const other = identify(asked({ ...key, target: { sessionKey: 's', actorId: 'x::a' } }), 'params', RULES);
    expect(one.callId).not.toBe(other.callId);
  });

  test('a tenant called null is not the absent tenant', () => {
    expect(identify(asked({ ...key, target: { tenantId: 'null' } }), 'params', RULES).callId).not.toBe(same);
  });

  test('the request’s ID, the agent’s and the parameters do not separate them', () => {
    const again = asked({
      ...key,
      requestId: 'request-2',
      toolCallId: 'x',
      target: { agentId: 'z', correlationId: 'y' },
    });
    expect(identify(again, 'other params', RULES)).toEqual({ callId: same });
  });

  test('a key is not confused with derived parameters of the same text', () => {
    const derived = identify(asked(), 'trip-1', { ...RULES, derivedReplay: 'always' });
    expect(derived.callId).not.toBe(same);
  });

  test('TR-4, policy `independent`: other parameters name another call', () => {
    const independent = { ...RULES, independent: true };
    const one = identify(asked(key), 'params', independent).callId;
    expect(identify(asked(key), 'params', independent).callId).toBe(one);
    expect(identify(asked(key), 'other', independent).callId).not.toBe(one);
    expect(one).not.toBe(same);
  });

  test('R10: the global scope merges sessions and actors, never tenants', () => {
    const rules: IdentityRules = { ...RULES, scope: 'global' };
    const one = identify(asked(key), 'params', rules).callId;
    expect(identify(asked({ ...key, target: { sessionKey: 't', actorId: 'b' } }), 'params', rules).callId).toBe(one);
    expect(identify(asked({ ...key, target: { tenantId: 'acme' } }), 'params', rules).callId).not.toBe(one);
    expect(one).not.toBe(same);
  });
});

describe('derived keys', () => {
  test('calls with the same parameters share the slot in which they merge, and are calls of their own', () => {
    const one = identify(asked({ requestId: 'request-1' }), 'params', RULES);
    const other = identify(asked({ requestId: 'request-2' }), 'params', RULES);
    expect(one.mergeId).toBe(other.mergeId);
    expect(one.callId).not.toBe(other.callId);
    expect(identify(asked(), 'other', RULES).mergeId).not.toBe(one.mergeId);
  });

  test('the same requestId, or the same toolCallId, names the same call', () => {
    expect(identify(asked(), 'params', RULES)).toEqual(identify(asked(), 'params', RULES));
    const model = (requestId: string) => identify(asked({ requestId, toolCallId: 'call_7' }), 'params', RULES);
    expect(model('request-1')).toEqual(model('request-2'));
  });

  test('PAWL_DERIVED_REPLAY=always: the parameters name the call', () => {
    const always: IdentityRules = { ...RULES, derivedReplay: 'always' };
    const one = identify(asked({ requestId: 'request-1' }), 'params', always);
    expect(one.mergeId).toBeUndefined();
    expect(identify(asked({ requestId: 'request-2' }), 'params', always)).toEqual(one);
  });

  test('R33: with derivation off, calls without a key are calls of their own', () => {
    const off: IdentityRules = { ...RULES, derive: false };
    const one = identify(asked({ requestId: 'request-1' }), 'params', off);
    expect(one.mergeId).toBeUndefined();
    expect(identify(asked({ requestId: 'request-2' }), 'params', off).callId).not.toBe(one.callId);
  });

  test('with derivation on or off, a model’s ID with other parameters names another call', () => {
    for (const derive of [true, false]) {
      const idOf = (params: string) => identify(asked({ toolCallId: 'call_0' }), params, { ...RULES, derive }).callId;
      expect(idOf('params')).toBe(idOf('params'));
      expect(idOf('others')).not.toBe(idOf('params'));
    }
  });

  test('dedupeMode disabled: every request is a call of its own, whatever the key', () => {
    const disabled = { key: 'trip-1', dedupeMode: 'disabled' as const };
    const one = identify(asked({ ...disabled, requestId: 'request-1' }), 'params', RULES);
    const other = identify(asked({ ...disabled, requestId: 'request-2' }), 'params', RULES);
    expect(one.callId).not.toBe(other.callId);
    expect(one.mergeId).toBeUndefined();
  });
});

describe('a call’s ID holds the partition of its record', () => {
  test.each([
    ['read-only', 'r'],
    ['workspace', 'w'],
    ['system', 's'],
    ['elevated', 'e'],
  ] as const)('%s', (tier, letter) => {
    const { callId } = identify(asked({ key: 'a:b' }), 'params', { ...RULES, tier, shard: 12 });
    expect(callId).toMatch(new RegExp(`^${letter}12\\.[A-Za-z0-9_-]{22}$`));
    expect(partitionOf(callId)).toEqual({ tier, shard: 12 });
  });

  test.each(['', 'r0', 'x0.abc', `r0.${'a'.repeat(21)}`, `r0.${'a'.repeat(23)}`, `r0.${'a'.repeat(22)}\n`, 'r0.{}:*'])(
    '%j is no call ID',
    (text) => {
      expect(partitionOf(text)).toBeUndefined();
    },
  );
});
