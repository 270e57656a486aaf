/** The forms of secrets in every kind of text that is shown or kept. */
import { expect, test } from 'vitest';
import { redact, redactFields, redactLine, secretsIn } from '../../../src/shared/errors/redaction.ts';
import { REDACTED } from '../../../src/shared/errors/secret-patterns.ts';
import { MIXED_PREFIXES, PLAIN_PREFIXES, TOKEN_FORMS } from '../../../src/shared/errors/secret-rules.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';

/** The tokens are put together here, so that no scanner takes this file for a leak. */
const letters = (length: number) => 'aB3dE5gH7jK9mN1pQ2sT4vW6xY8z'.repeat(20).slice(0, length);
const hex = (length: number) => '0a1b2c3d4e5f67890918273645546372'.repeat(20).slice(0, length);
const upper = (length: number) => 'A2B3C4D5E6F7G2H3J4K5L6M7'.repeat(10).slice(0, length);
const join = (...parts: readonly string[]) => parts.join('');

/** As `letters`, with the other characters of Base64 from the beginning on. */
const mixed = (length: number, others = '-_') =>
  letters(length).replaceAll(/.../g, (three, at: number) => `${three.slice(0, 2)}${others[at % others.length]}`);

const UUID = '1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed';

const TOKENS: Readonly<Record<string, string>> = {
  '1Password service account': join('ops_', 'eyJ', letters(260)),
  '1Password secret key': join('A3', '-ABC123-ABCDE12345F-ABCD1-EFGH2-JKLM3'),
  'Anthropic key': join('sk-', 'ant-api03-', letters(93), 'AA'),
  'Anthropic admin key': join('sk-', 'ant-admin01-', letters(93), 'AA'),
  'OpenAI project key': join('sk-', 'proj-', letters(74), 'T3BlbkFJ', letters(74)),
  'OpenAI service account': join('sk-', 'svcacct-', letters(60)),
  'OpenRouter key': join('sk-', 'or-v1-', hex(64)),
  'Groq key': join('gsk', '_', letters(52)),
  'xAI key': join('xai', '-', letters(80)),
  'Replicate token': join('r8', '_', letters(37)),
  'Perplexity key': join('pplx', '-', letters(48)),
  'Hugging Face token': join('hf', '_', letters(34)),
  'NVIDIA key': join('nvapi', '-', letters(64)),
  'Grafana key of before 2022': join('eyJr', 'Ijoi', letters(70)),
  'LM Studio key': join('sk-', 'lm-', letters(8), ':', letters(20)),
  'Zhipu key': join(hex(32), '.', letters(16)),
  'Pinecone key': join('pcsk', '_', letters(60)),
  'LangSmith key': join('lsv2_', 'pt_', hex(32), '_', hex(10)),
  'Tavily key': join('tvly', '-', letters(32)),
  'Tavily development key': join('tvly', '-dev-', letters(32)),
  'Pinecone key in two parts': join('pcsk', '_', letters(6), '_', letters(60)),
  'Cerebras key': join('csk', '-', letters(48)),
  'GitHub token': join('ghp', '_', letters(36)),
  'GitHub installation token': join('ghs', '_', letters(36)),
  'GitHub fine-grained token': join('github', '_pat_', letters(22), '_', letters(59)),
  'GitLab token': join('glpat', '-', letters(20)),
  'GitLab routable token': join('glpat', '-', letters(27), '.01.', hex(9)),
  'GitLab runner token': join('glrt', '-', letters(20)),
  'GitLab CI token': join('glcbt', '-64_', letters(20)),
  'Bitbucket app password': join('ATBB', letters(32)),
  'Atlassian token': join('ATATT3', 'xFfGF0', letters(180)),
  'npm token': join('npm', '_', letters(36)),
  'PyPI token': join('pypi-', 'AgEIcHlwaS5vcmc', letters(80)),
  'RubyGems key': join('rubygems', '_', hex(48)),
  'crates.io token': join('cio', letters(32)),
  'Docker token': join('dckr', '_pat_', letters(27)),
  'AWS key ID': join('AKIA', upper(16)),
  'AWS temporary key ID': join('ASIA', upper(16)),
  'AWS Bedrock key': join('ABSK', letters(120)),
  'Google API key': join('AIza', letters(35)),
  'Google OAuth secret': join('GOCSPX', '-', letters(28)),
  'Google access token': join('ya29', '.a0', letters(100)),
  'Azure client secret': join(letters(3), '8Q~', letters(34)),
  'Alibaba key ID': join('LTAI', letters(20)),
  'Azure Cosmos DB key': join(letters(76), 'ACDb', letters(6), '=='),
  'Azure Batch key': join(letters(76), '+ABa', letters(6), '=='),
  'Azure Service Bus key': join(letters(33), '+ASb', letters(6), '='),
  'Azure IoT Hub key': join(letters(33), 'AIoT', letters(6), '='),
  'Azure Cache key': join(letters(33), 'AzCa', letters(6), '='),
  'Azure Search key': join(letters(42), 'AzSe', letters(6)),
  'Azure Container Registry key': join(letters(42), '+ACR', letters(6)),
  'Context7 key': join('ctx7sk', '-', UUID),
  'Ollama key': join(hex(32), '.', letters(24)),
  'LaunchDarkly SDK key': join('sdk', '-', UUID),
  'LaunchDarkly API key': join('api', '-', UUID),
  'Mailgun key of today': join(hex(32), '-', hex(8), '-', hex(8)),
  'Mollie key': join('live', '_', letters(30)),
  'GoCardless token': join('live', '_', letters(40)),
  'Trigger.dev token': join('tr', '_pat_', letters(40)),
  'Defined Networking key': join('dnkey', '-', letters(26), '-', letters(52)),
  'Svix test key': join('testsk', '_', letters(32)),
  'Dub key': join('dub', '_', letters(24)),
  'Lichess token': join('lip', '_', letters(20)),
  'Facebook page token': join('EAAG', letters(120)),
  'X bearer token': join('A'.repeat(22), letters(90)),
  'Make webhook': join('https://hook.eu1.make.com/', letters(32).toLowerCase()),
  'DigitalOcean token': join('dop', '_v1_', hex(64)),
  'Cloudflare origin key': join('v1.0', '-', hex(24), '-', hex(146)),
  'Databricks token': join('dapi', hex(32)),
  'Slack bot token': join('xoxb', '-1234567890123-1234567890123-', letters(24)),
  'Slack app token': join('xapp', '-1-A0123456789-1234567890123-', hex(64)),
  'Slack rotating token': join('xoxe', '.xoxp-1-', letters(120)),
  'Slack client token': join('xoxc', '-1234567890123-1234567890123-', hex(40)),
  'Discord bot token': join('M', letters(25), '.', 'G1x2Yz', '.', letters(38)),
  'Telegram bot token': join('1234567890', ':AA', letters(33)),
  'Stripe key': join('sk', '_live_', letters(24)),
  'Stripe restricted key': join('rk', '_live_', letters(24)),
  'Stripe webhook secret': join('whsec', '_', letters(32)),
  'Square token': join('sq0atp', '-', letters(22)),
  'Shopify token': join('shpat', '_', hex(32)),
  'Twilio key': join('SK', hex(32)),
  'SendGrid key': join('SG', '.', letters(22), '.', letters(43)),
  'Mailgun key': join('key', '-', hex(32)),
  'Mailchimp key': join(hex(32), '-us12'),
  'Postman key': join('PMAK', '-', hex(24), '-', hex(34)),
  'Notion token': join('ntn', '_12345678901', letters(35)),
  'Notion secret': join('secret', '_', letters(43)),
  'Linear key': join('lin_', 'api_', letters(40)),
  'Figma token': join('figd', '_', letters(40)),
  'Airtable token': join('pat', letters(14), '.', hex(64)),
  'Grafana token': join('glsa', '_', letters(32), '_', hex(8)),
  'Sentry token': join('sntryu', '_', hex(64)),
  'New Relic key': join('NRAK', '-', upper(27)),
  'PostHog key': join('phx', '_', letters(43)),
  'Vault token': join('hvs', '.', letters(95)),
  'Terraform token': join(letters(14), '.atlasv1.', letters(64)),
  'Doppler token': join('dp.', 'pt.', letters(43)),
  'Pulumi token': join('pul', '-', hex(40)),
  'PlanetScale password': join('pscale', '_pw_', letters(43)),
  'Supabase key': join('sbp', '_', hex(40)),
  'Supabase secret': join('sb', '_secret_', letters(31)),
  'Netlify token': join('nfp', '_', letters(36)),
  'Fly token': join('fm2', '_', letters(120)),
  'Tailscale key': join('tskey', '-auth-', letters(40)),
  'CircleCI token': join('CCIPAT', '_', letters(22), '_', hex(40)),
  'Buildkite token': join('bkua', '_', hex(40)),
  'Heroku key': join('HRKU', '-AA', letters(58)),
  'OpenShift token': join('sha256', '~', letters(43)),
  'age key': join('AGE-SECRET-KEY', '-1', upper(58)),
  'JSON Web Token': join('eyJhbGciOiJIUzI1NiJ9', '.', 'eyJzdWIiOiIxMjM0NTY3ODkwIn0', '.', letters(43)),
  'encrypted JSON Web Token': join('eyJhbGciOiJkaXIifQ', '..', letters(16), '.', letters(40), '.', letters(22)),
  'Typeform token': join('tfp', '_', letters(44), '_', letters(14)),
  'Sourcegraph token': join('sgp', '_', hex(16), '_', hex(40)),
  'AWS session token': join('IQoJb3JpZ2lu', 'X2Vj', letters(200)),
  'Doppler service token': join('dp.', 'st.prd.', letters(40)),
  'Axiom token': join('xaat', '-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed'),
  'Paddle key': join('pdl', '_live_apikey_01', hex(24), '_', letters(22), '_', letters(3)),
  'OneSignal key': join('os_v2', '_app_', letters(100)),
  'Azure storage key': join(letters(76), '+ASt', letters(6), '=='),
  'Azure DevOps token': join(letters(76), 'AZDO', letters(4)),
  'Azure AI key': join(letters(52), 'JQQJ99', letters(26)),
  'Salesforce session': join('00D', letters(12), '!AQ', letters(90)),
  'Firebase token': join(letters(22), ':APA91b', letters(134)),
  'Braintree token': join('access_token', '$production$', hex(16), '$', hex(32)),
  'Stripe client secret': join('pi_3', letters(23), '_secret', '_', letters(25)),
  'Dropbox token': join('sl.', 'u.', letters(130)),
  'Infisical token': join('st.', hex(24), '.', hex(32), '.', hex(32)),
  'Bitwarden token': join('0.1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed.', letters(30), ':', letters(22), '=='),
  'Trello token': join('ATTA', hex(72)),
  'Cloudflare tunnel': join('eyJhIjoi', letters(160)),
  'PostgreSQL hash': join('SCRAM-SHA-256$4096:', letters(22), '==$', letters(43), '=:', letters(43), '='),
  'Django hash': join('pbkdf2_sha256$600000$', letters(22), '$', letters(43), '='),
  'Infura address': join('https://mainnet.infura', '.io/v3/', hex(32)),
  'Lark webhook': join('https://open.feishu', '.cn/open-apis/bot/v2/hook/1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed'),
  'Slack webhook': join('https://hooks.slack', '.com/services/T0123ABCD/B0123ABCD/', letters(24)),
  'Discord webhook': join('https://discord', '.com/api/webhooks/123456789012345678/', letters(68)),
  'OpenPipe key': join('opk', '_', hex(42)),
  'GitHub App token of before 2021': join('v1', '.', hex(40)),
  'Adafruit key': join('aio', '_', letters(28)),
  'Chromatic token': join('chpt', '_', letters(20)),
  'Zuplo key': join('zpka', '_', hex(32), '_', hex(8)),
  'Anyscale key': join('esecret', '_', letters(26).toLowerCase()),
  'Hex token': join('hxtp', '_', hex(96)),
  'Depot token': join('depot', '_org_', hex(64)),
  'turbopuffer key': join('tpuf', '_', letters(32)),
  'Dashlane key': join('dls', '_', upper(16), '_', letters(40)),
  'Endor key': join('endr', '+', letters(16)),
  'Cashfree secret': join('cfsk_ma', '_prod_', hex(32), '_', hex(8)),
  'Zep key': join('z_1dWlk', 'Ijoi', letters(60), '.', letters(40)),
  '42 secret': join('s-s4t2', 'ud-', hex(64)),
  'HubSpot token': join('pat', '-ap1-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed'),
  'Mercado Pago token': join('APP', '_USR-1234567890123456-010126-', hex(32), '-123456789'),
  'Yandex token': join('t1', '.', letters(40), '.', letters(86)),
  'Authress key': join('sc', '_abcde12345.ab12.acc', '-abcdef123456.', letters(50)),
  'New Relic licence': join(hex(32), 'FFFF', 'NRAL'),
  'New Relic licence of Europe': join('eu01xx', hex(30), 'FFFF', 'NRAL'),
  'JetBrains token': join('perm', ':', letters(14), '.', letters(12), '.', letters(30)),
  'Builder.io key': join('bpk', '-', hex(32)),
  'Unleash token': join('default:', 'production.', hex(56)),
  'Convex key': join('prod:happy-animal-123', '|eyJ2MiI6', letters(40)),
  'Qdrant key': join('1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed', '|', letters(43)),
  'Arize key': join('ak', '-1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed-', letters(32)),
  'Mem0 key': join('m0', '-', letters(40)),
  'Chroma key': join('ck', '-', letters(44)),
  'Telnyx key': join('KEY', '0', hex(31).toUpperCase(), '_', letters(22)),
  'Scaleway key': join('SCW', upper(17)),
  'Adyen key': join('AQE', letters(90), '-', letters(43), '=-', letters(20)),
  'Metabase key': join('mb', '_', letters(43), '='),
  'Statsig key': join('secret', '-', letters(43)),
  'Lambda key': join('secret', '_work_', hex(32), '.', letters(32)),
  'Lob key': join('live', '_', hex(35)),
  'Figma token with signs': join('figd', '_', mixed(40)),
  'Square secret': join('sq0csp', '-', mixed(43)),
  'Square sandbox token': join('EAAA', 'E', mixed(59)),
  'Yandex key': join('AQVN', mixed(36)),
  'Yandex storage secret': join('YC', mixed(37), '7'),
  'Docker token with signs': join('dckr', '_pat_', mixed(27)),
  'Docker organization token': join('dckr', '_oat_', mixed(32)),
  'Atlassian token with signs': join('ATATT3', mixed(186)),
  'New Relic insert key': join('NRII', '-', mixed(32)),
  'NVIDIA key with signs': join('nvapi', '-', mixed(64)),
  'Together key': join('tgp', '_v1_', mixed(43)),
  'Contentful token': join('CFPAT', '-', mixed(43)),
  'AWS session token with signs': join(
    'IQoJb3JpZ2lu',
    'X2VjEPv',
    '/'.repeat(10),
    'wEaCXVzLWVhc3QtMSJH',
    mixed(200, '+/'),
  ),
  'AWS session token of before 2020': join('FwoGZXIvYXdz', 'EN', '/'.repeat(10), mixed(200, '+/')),
  'Aiven password': join('AVNS', '_', mixed(19)),
  'Svix secret': join('whsec', '_', mixed(32, '+/')),
  'dbt token': join('dbtc', '_', mixed(43)),
  'Sourcegraph local token': join('sgp', '_local_', hex(40)),
  'Logfire token': join('pylf', '_v1_us_', letters(43)),
  'NetBird token': join('nbp', '_', letters(36)),
  'Runway key': join('key', '_', hex(128)),
  'Retell key': join('key', '_', hex(28)),
  'Facebook app token': join('1234567890123456', '|', mixed(27)),
  'Facebook app token in an address': join('1234567890123456', '%7C', mixed(27)),
};

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
