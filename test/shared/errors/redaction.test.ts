import { describe, expect, test } from 'vitest';
import { failureOf } from '../../../src/shared/errors/failure.ts';
import { redact, redactFields, redactLine, secretsIn, secretsOf } from '../../../src/shared/errors/redaction.ts';
import { REDACTED } from '../../../src/shared/errors/secret-patterns.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';

// The tokens are put together here, so that no scanner takes this file for a leak.
const TOKENS: Readonly<Record<string, string>> = {
  'a JSON Web Token': ['eyJhbGciOiJIUzI1NiJ9', 'eyJzdWIiOiIxMjM0NTY3ODkwIn0', 'dozjgNryP4J3jVmNHl0w5N'].join('.'),
  'a model provider’s key': ['sk', 'proj', 'Abc123def456Ghi789jkl'].join('-'),
  'a forge’s token': ['ghp', 'a1B2c3D4e5F6g7H8i9J0k1L2m3N4'].join('_'),
  'a chat token': ['xoxb', '123456789012', 'abcdefGHIJKL'].join('-'),
  'a cloud key ID': `AKIA${'IOSFODNN7EXAMPLE'}`,
  'a private key': ['-----BEGIN RSA', 'PRIVATE KEY-----\nMIIEow\n-----END RSA', 'PRIVATE KEY-----'].join(' '),
};

describe('R31: secrets are redacted by their form', () => {
  test.each(Object.entries(TOKENS))('%s', (_name, token) => {
    expect(redact(`before ${token} after`)).toBe(`before ${REDACTED} after`);
  });

  test.each([
    ['Authorization: Bearer abcdefgh.ijkl', `Authorization: Bearer ${REDACTED}`],
    ['redis://default:hunter22@host:6379/0', `redis://default:${REDACTED}@host:6379/0`],
    ['password=hunter22&user=ada', `password=${REDACTED}&user=ada`],
    ['{"db_password":"four plain \\"words\\" here","n":1}', `{"db_password":"${REDACTED}","n":1}`],
    ['{"apiKey":"hunter22","n":1}', `{"apiKey":"${REDACTED}","n":1}`],
    ['{"body":"{\\"access_token\\":\\"hunter22\\"}"}', `{"body":"{\\"access_token\\":\\"${REDACTED}\\"}"}`],
    ['Authorization: Token abcdef0123456789', `Authorization: ${REDACTED}`],
    ["{'authorization': 'ApiKey abcdef0123456789'}", `{'authorization': '${REDACTED}'}`],
    ['Cookie: sid=abcd1234; session=hunter22\nHost: x', `Cookie: ${REDACTED}\nHost: x`],
    ['curl -H "Cookie: a=1; b=hunter22" http://x/', `curl -H "Cookie: ${REDACTED}" http://x/`],
    ['Set-Cookie: a=hunter22; Path=/', `Set-Cookie: ${REDACTED}`],
    ['{"token":12345678,"n":1}', `{"token":"${REDACTED}","n":1}`],
    ['{ "token": 12345678 }', `{ "token": "${REDACTED}" }`],
  ])('%s', (text, clean) => {
    expect(redact(text)).toBe(clean);
    expect(redact(clean)).toBe(clean);
  });

  test.each([
    ['paid with 4111 1111 1111 1111, thanks', `paid with ${REDACTED}, thanks`],
    ['3782-822463-10005', REDACTED],
    ['card 5555555555554444.', `card ${REDACTED}.`],
    ['{"card":4111111111111111,"n":1}', '{"card":0,"n":1}'],
    ['{"card":"4111-1111-1111-1111"}', `{"card":"${REDACTED}"}`],
    ['https://ada:hunter22@example.org/x?y=1', `https://ada:${REDACTED}@example.org/x?y=1`],
    ['https://example.org/x?access_token=abcd1234&y=1', `https://example.org/x?access_token=${REDACTED}&y=1`],
  ])('cards and addresses: %s', (text, clean) => {
    expect(redact(text)).toBe(clean);
    expect(redact(clean)).toBe(clean);
  });

  test.each([
    '4111 1111 1111 1112 has no check digit',
    '{"time":1795318289144,"ns":1795318289144000000}',
    '0af7651916cd43dd8448eb211c80319c-4111111111111111',
    'maxTokens: 4000',
    'tokens used: 17',
    'the path src/token/index.ts',
    '{"hasToken":true,"token":null,"n":1}',
    '{"credentials":[1234,5678],"secret":{"from":"env"}}',
    '{"body":"{\\"hasToken\\":false}"}',
    '{"n":4111111111111111.5}',
    'r0.bi13n2-BfB6zxU75eP1IA7e-EYf5bX8T',
  ])('%s stays', (text) => expect(redact(text)).toBe(text));

  test('a log line keeps no mail address, and stays JSON', () => {
    const line = JSON.stringify({ msg: 'to ada@example.org', headers: { cookie: 'sid=abcdef; a="b"' } });
    const clean = redactLine(line);
    expect(clean).not.toMatch(/ada@|abcdef/);
    expect(() => JSON.parse(clean)).not.toThrow();
  });

  test.each([
    ['tools.get_weather@1.0.0 has drifted', 'tools.get_weather@1.0.0 has drifted'],
    ['the package server-files@2026.8.31-rc.1.', 'the package server-files@2026.8.31-rc.1.'],
    ['ada@163.com, ada@10.0.10.1', '[address], [address]'],
  ])('a version is no mail address: %s', (line, clean) => expect(redactLine(line)).toBe(clean));

  test('long hostile text takes no long time', async () => {
    const spentMs = await cpuMsOf(() => {
      for (const part of [
        'a',
        'sk-',
        'password:',
        'x://',
        '-----BEGIN PRIVATE KEY-----',
        'a@a.',
        'eyJ',
        'cookie:',
        'authorization: a ',
      ])
        redactLine(part.repeat(20_000));
    });
    expect(spentMs).toBeLessThan(6_000);
  });
});

test('R31: secrets are known by the names above them, at every depth, the longest first', () => {
  const params = {
    user: 'ada',
    auth: { password: 'plain words', tokens: 3 },
    headers: [{ 'X-Api-Key': 'plain words too' }],
  };
  const known = secretsIn(params);
  expect(known).toEqual(['plain words too', 'plain words']);
  expect(redact('said plain words too, and plain words; ada', known)).toBe(`said ${REDACTED}, and ${REDACTED}; ada`);
  expect(redact(JSON.stringify({ msg: 'a "quoted" one' }), ['a "quoted" one'])).toBe(`{"msg":"${REDACTED}"}`);
});

test.each([
  'redis://u:hunt%40er:22-and@h',
  'redis://u:hunt@er:22-and@h,redis://u:hunt@er:22-and@i',
  'unix://u:hunt%40er:22-and@/run/x',
  'redis://h?password=hunt%40er%3A22-and&db=1',
  'redis+sentinel://h/m?sentinelPassword=hunt%40er:22-and',
])('R31: the password of %s is known as it is sent', (url) => {
  for (const settings of [{ redisUrl: url }, { boardRedisUrl: url }])
    expect(redact('it said hunt@er:22-and', secretsOf(settings, {}))).toBe(`it said ${REDACTED}`);
});

test('R31: fields whose names sound secret hide none but themselves', () => {
  const known = ['hunter22-hunter22'];
  const fields = { hasToken: true, token: null, maxToken: 40_960, credentials: [12_345], cause: 'hunter22-hunter22' };
  expect(redactFields(fields, known)).toEqual({ ...fields, maxToken: REDACTED, cause: REDACTED });
});

test('R31: where a caller sends so many secrets that the search would block the process, the whole text is redacted', () => {
  const params = { path: 'a', token: Array.from({ length: 20_000 }, (_, index) => `secret-${index}`) };
  const known = secretsIn(params);
  expect(redactFields(params, known)).toEqual({ fields: REDACTED });
  expect(redact('x'.repeat(10_000), known)).toBe(REDACTED);
  const half = 'a'.repeat(100_000);
  expect(redactFields({ token: `${half}b${half}`, text: `${half}${half}` }, [`${half}b${half}`])).toEqual({
    fields: REDACTED,
  });
  expect(redactFields({ token: 'secret-17', text: 'cookie:'.repeat(200_000) }, ['secret-17'])).toEqual({
    fields: REDACTED,
  });
  expect(JSON.parse(redactLine(`${JSON.stringify(params)}\n`, known))).toEqual({ msg: REDACTED });
  expect(redact('said secret-17, and no more', known)).toBe(`said ${REDACTED}, and no more`);
});

test('R31: the message of every failure is clean', () => {
  const { message } = failureOf('TOOL_FAILED', `login failed for ${TOKENS['a forge’s token']}`);
  expect(message).toBe(`login failed for ${REDACTED}`);
});

test.each(['\u200b', '\u200d', '\u2060', '\ufeff', '\u00ad', '\u180e'])(
  'a secret with an invisible character inside is redacted: %j',
  (invisible) => {
    const token = `ghp_${'a1B2c3D4e5F6g7H8i9J0'}k1L2m3N4`;
    for (const at of [2, 4, 12]) {
      const clean = redact(`found ${token.slice(0, at)}${invisible}${token.slice(at)} here`);
      expect(clean).toBe(`found ${REDACTED} here`);
    }
    expect(redact(`pass${invisible}word: Hunter22`)).toBe(`password: ${REDACTED}`);
    expect(redact(`is Known${invisible}Value12 there`, ['KnownValue12'])).toBe(`is ${REDACTED} there`);
    const ordinary = `a${invisible}b`;
    expect(redact(ordinary)).toBe(ordinary);
  },
);

test.each(['base64', 'base64url', 'hex'] as const)('a known value is redacted in lines of %s', (encoding) => {
  const known = 'a-passphrase-of-the-fleet/2026+more';
  for (const before of ['', 'ada:', 'so much text that the value begins in the second line: ']) {
    const encoded = Buffer.from(`${before}${known} and what comes after it, for a line or two`).toString(encoding);
    // Letters that only the value itself decides.
    const middle = Buffer.from(`${before}${known}`).toString(encoding).slice(-24, -8);
    for (const width of [60, 64, 76])
      for (const end of ['\n', '\r\n', '\n  ']) {
        const text = `begin\n${encoded.match(new RegExp(`.{1,${width}}`, 'g'))?.join(end)}\nend`;
        for (const shown of [text, JSON.stringify({ text }), JSON.stringify({ body: JSON.stringify({ text }) })])
          expect(redact(shown, [known]).replace(/\s|\\+[rn]/g, '')).not.toContain(middle);
        expect(redact(text, ['another-value-of-the-fleet'])).toBe(text);
      }
  }
});
