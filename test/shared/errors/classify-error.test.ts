import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, test } from 'vitest';
import { classify } from '../../../src/shared/errors/classify-error.ts';
import { failureOf, PawlError, ToolError } from '../../../src/shared/errors/failure.ts';
import { FAILURES, type FailureCode } from '../../../src/shared/errors/failure-codes.ts';

/** An error with members that Error's constructor does not take. */
function error(message: string, members: object = {}): Error {
  return Object.assign(new Error(message), members);
}

describe('Node’s and undici’s codes (R18)', () => {
  const codes: readonly (readonly [string, FailureCode])[] = [
    ['ECONNREFUSED', 'CONNECTION_REFUSED'],
    ['ENOTFOUND', 'DNS_FAILED'],
    ['EAI_AGAIN', 'DNS_FAILED'],
    ['EHOSTUNREACH', 'UNREACHABLE'],
    ['ENETUNREACH', 'UNREACHABLE'],
    ['ECONNRESET', 'CONNECTION_RESET'],
    ['EPIPE', 'CONNECTION_RESET'],
    ['ETIMEDOUT', 'UPSTREAM_TIMEOUT'],
    ['UND_ERR_CONNECT_TIMEOUT', 'CONNECT_TIMEOUT'],
    ['UND_ERR_HEADERS_TIMEOUT', 'UPSTREAM_TIMEOUT'],
    ['UND_ERR_BODY_TIMEOUT', 'UPSTREAM_TIMEOUT'],
    ['UND_ERR_SOCKET', 'CONNECTION_RESET'],
  ];

  test.each(codes)('%s is %s', (code, expected) => {
    expect(classify(error('it broke', { code })).code).toBe(expected);
  });

  test.each(codes)('%s under fetch’s TypeError is %s too', (code, expected) => {
    const failure = classify(new TypeError('fetch failed', { cause: error('connect', { code }) }));
    expect(failure).toMatchObject({ code: expected, message: 'fetch failed: connect' });
  });

  test('the errors in an AggregateError of a name with several addresses are read', () => {
    const refused = [error('::1', { code: 'ECONNREFUSED' }), error('127.0.0.1', { code: 'ECONNREFUSED' })];
    expect(classify(new TypeError('fetch failed', { cause: new AggregateError(refused) })).code).toBe(
      'CONNECTION_REFUSED',
    );
  });

  const refusals = ['::1:5432', '127.0.0.1:5432'].map((partition) => new Error(`connect ECONNREFUSED ${partition}`));
  const told = 'connect ECONNREFUSED ::1:5432; connect ECONNREFUSED 127.0.0.1:5432';
  test.each<[string, Error, string]>([
    ['that says nothing itself', new AggregateError(refusals), told],
    [
      'that is a cause',
      new TypeError('fetch failed', { cause: new AggregateError(refusals) }),
      `fetch failed: ${told}`,
    ],
    ['with a message', new AggregateError(refusals, 'No server answers'), `No server answers: ${told}`],
    ['of what are no errors', new AggregateError(['no', undefined]), FAILURES.TOOL_FAILED.sentence],
  ])('the message of an AggregateError %s joins those of its errors', (_which, thrown, message) => {
    expect(classify(thrown).message).toBe(message);
  });

  test('causes are followed however deep a library nests them, and cycles end', () => {
    let nested: Error = error('reset', { code: 'ECONNRESET' });
    for (let depth = 0; depth < 8; depth += 1) nested = new Error(`layer ${depth}`, { cause: nested });
    expect(classify(nested).code).toBe('CONNECTION_RESET');
    const cycle = error('round');
    cycle.cause = cycle;
    expect(classify(cycle).code).toBe('TOOL_FAILED');
  });

  test('a real refused connection is recognised', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, 'close');
    const thrown: unknown = await fetch(`http://127.0.0.1:${port}/`).catch((caught: unknown) => caught);
    expect(classify(thrown)).toMatchObject({ code: 'CONNECTION_REFUSED', nothingHappened: true });
  });

  test('AbortSignal.timeout’s TimeoutError is a timeout of the service', () => {
    expect(classify(new DOMException('The operation timed out', 'TimeoutError')).code).toBe('UPSTREAM_TIMEOUT');
  });

  test('a request that the tool’s own signal ended may have had its effect', async () => {
    const aborted = await fetch('http://127.0.0.1:9/', { signal: AbortSignal.abort() }).catch(
      (caught: unknown) => caught,
    );
    const canceled = error('canceled', { name: 'CanceledError', code: 'ERR_CANCELED' });
    for (const thrown of [aborted, canceled, new Error('no answer', { cause: aborted })])
      expect(classify(thrown)).toMatchObject({ code: 'UPSTREAM_TIMEOUT', retriable: true, nothingHappened: false });
    const refused = error('refused', { name: 'AbortError', cause: error('refused', { code: 'ECONNREFUSED' }) });
    expect(classify(refused).code).toBe('CONNECTION_REFUSED');
  });

  test.each(['EHOSTUNREACH', 'ENETUNREACH', 'ECONNREFUSED'])(
    '%s proves nothing of a connection that was open',
    (code) => {
      expect(classify(error('cut', { code, syscall: 'connect' }))).toMatchObject({ nothingHappened: true });
      for (const syscall of ['read', 'write'])
        expect(classify(new TypeError('fetch failed', { cause: error('cut', { code, syscall }) }))).toMatchObject({
          code: 'CONNECTION_RESET',
          retriable: true,
          nothingHappened: false,
        });
    },
  );

  test('a certificate that is refused proves that nothing was sent, and a TLS connection that breaks proves nothing', () => {
    for (const code of ['CERT_HAS_EXPIRED', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'ERR_TLS_CERT_ALTNAME_INVALID'])
      expect(classify(new TypeError('fetch failed', { cause: error('no', { code }) }))).toMatchObject({
        code: 'UNREACHABLE',
        nothingHappened: true,
      });
    for (const code of ['EPROTO', 'ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC'])
      expect(classify(error('no', { code }))).toMatchObject({ code: 'CONNECTION_RESET', nothingHappened: false });
  });

  test('a real connection that ends before it is secure proves that nothing was sent', async () => {
    const server = createServer((socket) => socket.once('data', () => socket.end())).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const thrown: unknown = await fetch(`https://127.0.0.1:${port}/`, { method: 'POST' }).catch((caught) => caught);
    server.close();
    expect(classify(thrown)).toMatchObject({ code: 'UNREACHABLE', retriable: true, nothingHappened: true });
  });

  test('a stream of HTTP/2 that breaks is a broken connection', () => {
    const broken = { code: 'CONNECTION_RESET', nothingHappened: false };
    for (const code of ['ERR_HTTP2_SESSION_ERROR', 'ERR_HTTP2_STREAM_CANCEL', 'ERR_HTTP2_STREAM_ERROR'])
      expect(classify(error('cut', { code }))).toMatchObject(broken);
  });

  test('an unknown code is the tool’s own failure', () => {
    expect(classify(error('odd', { code: 'EWHATEVER' }))).toMatchObject({ code: 'TOOL_FAILED', retriable: false });
    expect(classify(error('odd', { code: 'constructor' })).code).toBe('TOOL_FAILED');
    expect(classify(error('odd', { code: 42 })).code).toBe('TOOL_FAILED');
  });
});

describe('HTTP statuses (R18, R19)', () => {
  test.each([400, 401, 403, 404, 409, 410, 413, 422])(
    '%i is the caller’s fault: TR-6, no retry, no mark against the circuit',
    (status) => {
      expect(classify(error('no', { status }))).toMatchObject({
        code: `HTTP_${status}`,
        class: 'caller',
        retriable: false,
        againstCircuit: false,
      });
    },
  );

  test.each([408, 429, 500, 502, 503, 504])('%i is retriable', (status) => {
    expect(classify(error('no', { status }))).toMatchObject({ code: `HTTP_${status}`, retriable: true });
  });

  test.each([501, 505, 599])('%i counts against the circuit but is not retried', (status) => {
    expect(classify(error('no', { status }))).toMatchObject({
      code: `HTTP_${status}`,
      retriable: false,
      againstCircuit: true,
    });
  });

  test.each([
    ['status', { status: 503 }],
    ['statusCode', { statusCode: 503 }],
    ['response.status', { response: { status: 503 } }],
    ['response.statusCode', { response: { statusCode: 503 }, code: 'ERR_NON_2XX_3XX_RESPONSE' }],
    ['the cause’s status', { cause: { status: 503 } }],
  ])('is read from %s', (_where, members) => {
    expect(classify(error('no', members)).code).toBe('HTTP_503');
  });

  test.each([200, 302, 0, Number.NaN, '503', null])('%j is no failure status', (status) => {
    expect(classify(error('no', { status })).code).toBe('TOOL_FAILED');
  });
});

describe('Retry-After', () => {
  test.each([
    ['retryAfterMs', { retryAfterMs: 1_500 }, 1_500],
    ['a header in seconds', { headers: { 'retry-after': '2' } }, 2_000],
    ['a header of a response', { response: { headers: { 'Retry-After': 3 } } }, 3_000],
    ['a Headers object', { response: { headers: new Headers({ 'Retry-After': '4' }) } }, 4_000],
    ['a date that has passed', { headers: { 'retry-after': 'Wed, 21 Oct 2015 07:28:00 GMT' } }, 0],
    ['nothing sensible', { headers: { 'retry-after': 'soon' } }, undefined],
    ['a negative number', { retryAfterMs: -1 }, undefined],
    ['endlessness', { retryAfterMs: Number.POSITIVE_INFINITY }, undefined],
  ])('is read from %s', (_where, members, retryAfterMs) => {
    expect(classify(error('slow down', { status: 429, ...members })).retryAfterMs).toBe(retryAfterMs);
  });

  test('HTTP 403 with a delay is a throttle: by Retry-After, or by a rate limit that is used up', () => {
    const inAMinute = Math.ceil(Date.now() / 1_000) + 60;
    const forbidden = (headers: object) => classify(error('forbidden', { status: 403, headers }));
    const throttled = { code: 'HTTP_403', class: 'throttle', retriable: true, nothingHappened: true };
    expect(forbidden({ 'retry-after': '60' })).toMatchObject({ ...throttled, retryAfterMs: 60_000 });
    const limit = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '60' };
    // Seconds from now, and the time in seconds and in milliseconds.
    for (const reset of [60, inAMinute, 1_000 * inAMinute]) {
      const { retryAfterMs, ...failure } = forbidden({ ...limit, 'x-ratelimit-reset': String(reset) });
      expect(failure).toMatchObject(throttled);
      expect(retryAfterMs).toBeGreaterThan(30_000);
      expect(retryAfterMs).toBeLessThanOrEqual(61_000);
    }
    expect(forbidden({ ...limit, 'x-ratelimit-remaining': '7' })).toMatchObject({ class: 'caller', retriable: false });
    expect(forbidden({})).toMatchObject({ code: 'HTTP_403', retriable: false });
  });

  test('is read from the cause whose status counts, unless the thrown value has its own', () => {
    const cause = error('429', { status: 429, headers: { 'retry-after': '120' } });
    expect(classify(error('call failed', { cause }))).toMatchObject({ code: 'HTTP_429', retryAfterMs: 120_000 });
    expect(classify(error('call failed', { cause, retryAfterMs: 5 })).retryAfterMs).toBe(5);
  });

  test.each([Number.NaN, -1, Number.POSITIVE_INFINITY])('%d in a tool’s own error is ignored', (retryAfterMs) => {
    expect(classify(new ToolError('slow down', { retriable: true, retryAfterMs }))).not.toHaveProperty('retryAfterMs');
  });

  test('is read from a future date', () => {
    const inAMinute = new Date(Date.now() + 60_000).toUTCString();
    const { retryAfterMs } = classify(error('slow down', { status: 503, headers: { 'retry-after': inAMinute } }));
    expect(retryAfterMs).toBeGreaterThan(30_000);
    expect(retryAfterMs).toBeLessThanOrEqual(60_000);
  });

  test('counts a time from the time of the answer, by the clock of the service, which may be hours off', () => {
    const servedAtMs = Date.parse('2026-11-30T10:00:00Z');
    const date = new Date(servedAtMs).toUTCString();
    const later = new Date(servedAtMs + 9_000);
    for (const headers of [
      { date, 'retry-after': later.toUTCString() },
      { date, 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(later.getTime()) },
    ])
      expect(classify(error('slow down', { status: 429, headers })).retryAfterMs).toBe(9_000);
  });
});

describe('D12: any value can be thrown', () => {
  const throwing = { get: () => thrower('get'), has: () => thrower('has'), getPrototypeOf: () => thrower('prototype') };
  function thrower(trap: string): never {
    throw new Error(`trap ${trap}`);
  }
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const sly = new Error('plain');
  Object.defineProperty(sly, 'message', { get: () => thrower('message') });
  Object.defineProperty(sly, 'cause', { get: () => thrower('cause') });

  test.each([
    ['undefined', undefined],
    ['null', null],
    ['nothing', ''],
    ['a number', 7],
    ['a symbol', Symbol('odd')],
    ['a bigint', 7n],
    ['a function', () => {}],
    ['an object without a prototype', Object.create(null)],
    ['an error without a message', new Error('')],
  ])('%s becomes TOOL_FAILED with the catalogue’s sentence', (_what, thrown) => {
    expect(classify(thrown)).toEqual(failureOf('TOOL_FAILED'));
  });

  test.each([
    ['a proxy whose every trap throws', new Proxy({}, throwing)],
    ['a proxy of an error whose every trap throws', new Proxy(new Error('x'), throwing)],
    ['a revoked proxy', revoked.proxy],
    ['an error whose getters throw', sly],
    ['an error with a hostile cause', new Error('outer', { cause: new Proxy(new Error('x'), throwing) })],
    ['hostile headers', error('x', { headers: new Proxy({}, throwing) })],
    ['hostile errors', error('x', { errors: revoked.proxy })],
  ])('%s becomes TOOL_FAILED', (_what, thrown) => {
    expect(classify(thrown)).toMatchObject({ code: 'TOOL_FAILED', retriable: false });
  });

  test('a string is its own message, an object’s message is taken', () => {
    expect(classify('out of paper').message).toBe('out of paper');
    expect(classify({ message: 'out of ink' }).message).toBe('out of ink');
  });

  test('a message never grows beyond bounds and never holds a stack', () => {
    const { message } = classify(new Error('x'.repeat(5_000)));
    expect(message).toBe(`${'x'.repeat(2_000)}… [3000 more characters]`);
    expect(JSON.stringify(classify(new Error('short')))).not.toContain('classify-error.test');
  });
});

describe('codes that a tool declares (R21)', () => {
  test('a ToolError carries its own code and traits', () => {
    const thrown = new ToolError('busy', {
      code: 'TILL_BUSY',
      retriable: true,
      nothingHappened: true,
      retryAfterMs: 50,
    });
    expect(classify(thrown)).toEqual({
      code: 'TILL_BUSY',
      class: 'tool',
      retriable: true,
      nothingHappened: true,
      againstCircuit: true,
      message: 'busy',
      retryAfterMs: 50,
    });
    expect(classify(new ToolError('no'))).toMatchObject({ code: 'TOOL_FAILED', retriable: false });
  });

  test('a ToolError with a code of the catalogue belongs to that code’s class', () => {
    expect(classify(new ToolError('gone', { code: 'NOT_FOUND' }))).toMatchObject({
      class: 'caller',
      againstCircuit: false,
    });
    expect(classify(new ToolError('odd', { code: 'toString' }))).toMatchObject({ class: 'tool' });
  });

  test('Pawl’s own errors keep code and issues', () => {
    const issues = [{ path: 'path', message: 'leaves the workspace' }];
    expect(classify(new PawlError('PERMISSION_DENIED', 'no', { issues }))).toMatchObject({
      code: 'PERMISSION_DENIED',
      class: 'permission',
      issues,
    });
  });

  test('lists of retriable and terminal codes win over the catalogue, and terminal wins over both', () => {
    const status = (code: number) => error('no', { status: code });
    expect(classify(status(404), { retriableCodes: ['HTTP_404'] }).retriable).toBe(true);
    expect(classify(status(503), { terminalCodes: ['HTTP_503'] }).retriable).toBe(false);
    expect(classify(status(503), { terminalCodes: ['HTTP_503'], retriableCodes: ['HTTP_503'] }).retriable).toBe(false);
    expect(classify(new ToolError('no', { code: 'TILL_BUSY' }), { retriableCodes: ['TILL_BUSY'] }).retriable).toBe(
      true,
    );
  });
});

test.each(['\n', '\r\n', '\t', '\u001b[2J', '\u202e', '\u2028'])(
  'the code of a ToolError stays in its line, because services choose codes: %j',
  (character) => {
    const { code } = classify(new ToolError('no', { code: `BUSY${character}  ended: success` }));
    expect(code).toMatch(/^BUSY(?:\\u\{[0-9A-F]+\})+(?:\[2J)? {2}ended: success$/);
    expect(classify(new ToolError('no', { code: 'not enough funds' })).code).toBe('not enough funds');
  },
);

test('members of a ToolError of another type count as absent, and its code is short and well-formed', () => {
  const odd = [5, null, '', {}, [], Number.NaN, 10n, Symbol('x'), () => 1];
  for (const value of odd)
    for (const name of ['code', 'retriable', 'nothingHappened', 'retryAfterMs'])
      expect(classify(new ToolError('m', { [name]: value })), `${name} ${typeof value}`).toEqual({
        ...classify(new ToolError('m')),
        ...(name === 'retryAfterMs' && value === 5 && { retryAfterMs: 5 }),
      });
  expect(classify(new ToolError('m', { code: `A\ud83d${'x'.repeat(1_000)}` })).code).toBe(`A\ufffd${'x'.repeat(98)}`);
});

test('a PawlError of a tool without types keeps the issues that are some, and a code that is one', () => {
  const issue = { path: 'a', message: 'is odd' };
  const thrown = (code: unknown, issues?: unknown) =>
    new PawlError(code as 'TOOL_FAILED', 'm', { issues: issues as [] });
  for (const issues of [5, null, 'x', { issue }])
    expect(classify(thrown('INVALID_PARAMS', issues))).toEqual(classify(thrown('INVALID_PARAMS')));
  const mixed = [null, 5, 'x', { path: 5n, message: 'x' }, { ...issue, more: 10n }, { path: 'a' }];
  expect(classify(thrown('INVALID_PARAMS', mixed)).issues).toEqual([issue]);
  for (const code of ['toString', '__proto__', 'NOPE', 5, null])
    expect(classify(thrown(code)).code, String(code)).toBe('TOOL_FAILED');
});

test('a tool cannot quarantine its call: the code of a quarantine is that of a failed tool', () => {
  expect(classify(new ToolError('m', { code: 'POISONED' }))).toEqual(classify(new ToolError('m')));
  expect(classify(new PawlError('POISONED', 'm'))).toEqual(classify(new Error('m')));
});

test('a ToolError of another copy of the package says as much', async () => {
  const module = new URL('../../../src/shared/errors/failure.ts', import.meta.url);
  const other: { ToolError: typeof ToolError } = await import(`${module.pathname}?another-copy`);
  expect(other.ToolError).not.toBe(ToolError);
  class NoFunds extends other.ToolError {}
  const said = { code: 'NO_FUNDS', retriable: true, nothingHappened: true, retryAfterMs: 70 };
  for (const Made of [ToolError, other.ToolError, NoFunds])
    expect(classify(new Made('no funds', said))).toMatchObject({ ...said, message: 'no funds' });
});
