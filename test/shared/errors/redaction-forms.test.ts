/** The forms of secrets in every kind of text that is shown or kept. */
import { expect, test } from 'vitest';
import { redact, redactFields, redactLine, secretsIn } from '../../../src/shared/errors/redaction.ts';
import { REDACTED } from '../../../src/shared/errors/secret-patterns.ts';
import { MIXED_PREFIXES, PLAIN_PREFIXES, TOKEN_FORMS } from '../../../src/shared/errors/secret-rules.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';
import { TOKENS } from './secret-tokens.ts';

const contexts: Readonly<Record<string, (token: string) => string>> = {
  'by itself': (token) => `found ${token} here`,
  'in JSON': (token) => JSON.stringify({ msg: `found ${token}` }),
  'behind a line break in JSON in JSON': (token) => JSON.stringify({ body: JSON.stringify({ log: `a\n${token}\nb` }) }),
  'in a list': (token) => `[${token}, x]`,
};

test.each(Object.entries(TOKENS))('a token is redacted in every kind of text: %s', (_service, token) => {
  for (const [what, partition] of Object.entries(contexts)) {
    const clean = redact(partition(token));
    // The host of a webhook may stay.
    const secret = token.slice(token.lastIndexOf('/') + 1);
    expect(clean, what).not.toContain(secret);
    expect(clean, what).not.toContain(secret.slice(-12));
    expect(clean, what).toContain(REDACTED);
  }
});

const HIDDEN = 'Hunter22-hunter22';
test.each([
  `[["accept","*/*"],["X-Api-Key","${HIDDEN}"]]`,
  `["Host","x.example","Authorization","${HIDDEN}"]`,
  `{"name":"Authorization","value":"${HIDDEN}"}`,
  `{"key": "db_password", "value": "${HIDDEN}"}`,
  `{"value":"${HIDDEN}","name":"CLIENT_SECRET"}`,
  `["run","--token","${HIDDEN}"]`,
  `run --api-key ${HIDDEN} --verbose`,
  `run --password=${HIDDEN}`,
  `<password>${HIDDEN}</password>`,
  `machine example.org login ada password ${HIDDEN}`,
  `curl -sS -u ada:${HIDDEN} https://example.org`,
  `curl -u ada:${HIDDEN} https://example.org`,
  `(curl --user ada:${HIDDEN} https://example.org)`,
  `/usr/bin/curl -u ada:${HIDDEN} https://example.org`,
  `'password' => '${HIDDEN}'`,
  `password := "${HIDDEN}"`,
  `https://${HIDDEN}:x-oauth-basic@example.org/x.git`,
  `https://${HIDDEN}@example.org/x.git`,
  `https://ada:${HIDDEN}@example.org/x`,
  `redis://:${HIDDEN}@localhost:6379`,
  `https://x.example/blob?sv=2024&sig=${HIDDEN}&se=1`,
  `https://x.example/o?X-Amz-Signature=${HIDDEN}&x=1`,
  `https://x.example/o?X-Goog-Signature=${HIDDEN}`,
  `https://x.example/?key=${HIDDEN}`,
  `https://x.example/callback?code=${HIDDEN}&state=1`,
  `X-Goog-Api-Key: ${HIDDEN}`,
  `AZURE_STORAGE_CONNECTION_STRING="${HIDDEN}"`,
  `AccountName=x;AccountKey=${HIDDEN};EndpointSuffix=y`,
  `client_secret: ${HIDDEN}`,
  `smtp_pwd=${HIDDEN}`,
  `_gitlab_session=${HIDDEN}; path=/`,
  `//registry.example/:_auth=${HIDDEN.replaceAll(/\d/g, 'x')}`,
  `BUNDLE_ENTERPRISE__CONTRIBSYS__COM=${HIDDEN}:deadbeef`,
  `{"BUNDLE_GEMS__EXAMPLE__COM": "cafe:${HIDDEN}"}`,
  `apiVersion: v1\ndata:\n  a: YWJj\n  b: ${HIDDEN}\nkind: Secret\nmetadata:\n  name: x\n`,
  JSON.stringify({ body: `apiVersion: v1\ndata:\n  b: ${HIDDEN}\nkind: Secret\n` }),
  JSON.stringify({ apiVersion: 'v1', data: { a: 'YWJj', b: HIDDEN }, kind: 'Secret' }),
  JSON.stringify({ kind: 'Secret', metadata: { name: 'x' }, stringData: { b: HIDDEN } }, null, 4),
  JSON.stringify({ log: JSON.stringify({ data: { b: HIDDEN }, kind: 'Secret' }) }),
  `Proxy-Authorization: Basic ${Buffer.from(HIDDEN).toString('base64')}`,
])('a secret under its name, or in a URL, is redacted: %s', (text) => {
  const clean = redact(text);
  expect(clean).not.toContain(HIDDEN);
  expect(clean).toContain(REDACTED);
  expect(redact(clean)).toBe(clean);
});

test.each([
  [['X-Api-Key', HIDDEN]],
  [
    [
      ['accept', '*/*'],
      ['authorization', HIDDEN],
    ],
  ],
  [['Host', 'x.example', 'Authorization', HIDDEN]],
  [{ headers: [{ name: 'Cookie', value: HIDDEN }] }],
  [{ env: [{ key: 'DB_PASSWORD', value: HIDDEN }] }],
  [{ command: ['deploy', '--token', HIDDEN] }],
  [{ command: ['deploy', `--token=${HIDDEN}`] }],
  [{ headers: [`X-Api-Key: ${HIDDEN}`] }],
  { id: 'password', label: 'Password', value: HIDDEN },
  { variable: 'API_TOKEN', value: HIDDEN },
])('a value is secret when its pair has a secret name: %j', (params) => {
  expect(secretsIn(params)).toContain(HIDDEN);
  expect(redact(`it said ${HIDDEN}`, secretsIn(params))).toBe(`it said ${REDACTED}`);
});

test('a known value is redacted in every encoding, whatever is around it', () => {
  for (const value of ['plain words, and more?', 'päss/wörd+=&', HIDDEN]) {
    const known = [value];
    const url = encodeURIComponent(value);
    for (const before of ['', 'a', 'ab', 'ada:', 'user:'])
      for (const after of ['', '!', '\n'])
        for (const encoding of ['base64', 'base64url', 'hex'] as const) {
          const encoded = Buffer.from(`${before}${value}${after}`).toString(encoding);
          const clean = redact(`saw ${encoded}.`, known);
          expect(clean, `${before} ${after} ${encoding}`).toContain(REDACTED);
          // The rest decodes to too little to be of use.
          expect(clean.length, `${before} ${after} ${encoding}`).toBeLessThan(40);
        }
    expect(redact(`GET /?q=${url}`, known)).toBe(`GET /?q=${REDACTED}`);
    expect(redact(`GET /?q=${url.replaceAll('%20', '+')}`, known)).toBe(`GET /?q=${REDACTED}`);
    expect(redact(Buffer.from(value).toString('hex').toUpperCase(), known)).toBe(REDACTED);
    expect(redactFields({ cause: url }, known)).toEqual({ cause: REDACTED });
  }
});

test.each(['p@ss/W0rd+x!y~z (ü)"&<1>', "it's\\a\\\\b\n\tc%d", '😀 ? -[x]{2}^$|.*', '%41%zz+ +'])(
  'a known value is redacted however its characters are escaped: %j',
  (value) => {
    const html = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
    const unicode = (text: string) =>
      text.replace(/[^A-Za-z0-9 "\\]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
    const nested = (depth: number): string => (depth === 0 ? value : JSON.stringify({ text: nested(depth - 1) }));
    const address = new URL('https://h/');
    address.searchParams.set('q', value);
    const forms = [
      encodeURIComponent(value).replace(/%../g, (code) => code.toLowerCase()),
      encodeURI(value),
      encodeURIComponent(encodeURIComponent(value)),
      new URLSearchParams({ q: value }).toString(),
      address.href,
      html(value),
      html(JSON.stringify(value)),
      JSON.stringify(html(value)),
      encodeURIComponent(nested(2)),
      ...[1, 2, 3, 4].map(nested),
      unicode(JSON.stringify(value).slice(1, -1)),
      JSON.stringify(value).replaceAll('/', '\\/'),
    ];
    for (const form of forms) expect(redact(`saw ${form}!`, [value]), form).toContain(REDACTED);
    for (const other of ['', value.slice(1), value.toUpperCase()].filter((text) => text !== value))
      expect(redact(`saw ${other}%`, [value])).toBe(`saw ${other}%`);
  },
);

test('the password of an address among parameters is known, but no plain word is', () => {
  const known = secretsIn({
    url: `https://ada:${HIDDEN}@example.com/`,
    db: 'postgres://postgres:postgres@localhost/a',
  });
  expect(known).toEqual([HIDDEN]);
});

test('no search for escaped values takes long, even in a text that is made against it', async () => {
  const known = Array.from({ length: 20 }, (_, index) => `${'\\'.repeat(40)}a"&${'<'.repeat(200)}${index}`);
  const text = `${'\\'.repeat(100)}a${'\\'.repeat(31)}"&amp;${'&lt;'.repeat(190)}`.repeat(60);
  expect(await cpuMsOf(() => redact(text, known))).toBeLessThan(2_000);
});

test.each([
  'task-a-very-long-name-of-a-task',
  'the disk-space-monitoring-service is up',
  'npm_config_user_agent npm_package_dependencies_bullmq',
  '{"required":["password","email","name"]}',
  '{"name":"token","description":"the token to send"}',
  '{"sessionKey":"0199f0c0-1111-7222-8333-444455556666"}',
  'r0.bi13n2-BfB6zxU75eP1IA7e-EYf5bX8T',
  'GET https://example.org/search?q=hello+world&page=2',
  'sha256:0a1b2c3d4e5f67890918273645546372',
  'https://example.org/@ada/a-long-path-of-a-page',
  'My.Module.Name and src/shared/store/calls/large-values.ts',
])('%s stays', (text) => expect(redact(text)).toBe(text));

test('no rule takes long, even on a text that is made against it', async () => {
  const parts = [
    ...PLAIN_PREFIXES,
    ...MIXED_PREFIXES,
    ...TOKEN_FORMS.map(([sign]) => sign),
    ...[
      '"token","',
      '"name":"token","value":"',
      '"value":"a","name":"',
      '<token>',
      '--token ',
      'curl -u ',
      ' curl ',
      'curl',
      "'password' => '",
    ],
    ...[
      'machine a login b password ',
      '?key=',
      'https://aaaaaaaaaaaaaaaaaaaa',
      'https://aaaaaaaaaaaaaaaaaaaa:b',
      'MaaaaaaaaaaaaaaaaaaaaaaaaA.',
      'eyJ.',
      '\\n',
    ],
    ...['aB3dE5gH7jK9mN1p.', '"password":"\\\\', '?aaaaaaaaaaaaaaaaaaaaaaaaaaaa'],
  ];
  for (const part of parts) {
    const text = part.repeat(Math.ceil(40_000 / part.length));
    const spentMs = await cpuMsOf(() => redactLine(text));
    expect(spentMs, part).toBeLessThan(1_500);
  }
});

test.each([
  'see v1.2.3-beta and api/v1.deadbeef',
  'the image app:production.1 and app:production-1b9d6bcd',
  'call opk_list() with aio_config and ck-editor-classic-build-for-everyone',
  'secret-service-account-for-production, secret_store_for_all_tenants',
  'test_parseHTTP2ResponseWithTrailersAndMore, live_reload_for_all_components',
  'permission.denied.because.the.user.has.no.role, perm-check.first.second',
  'SCWebServiceHandlerFactory, KEY0_LENGTH, AQEngine, mb_strtolower, dls_enabled',
  'the request 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed | ok',
  'api-gateway-2026-11-27, sdk-1.2.3, dub_step_bass, lip_sync_for_all, live_stream_for_2026_and_after',
  '0a1b2c3d4e5f67890918273645546372.js and 0a1b2c3d4e5f67890918273645546372-1.png',
])('what only begins like a token is left: %s', (text) => {
  expect(redact(text)).toBe(text);
});
