import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { circuitOverridesSchema } from '../../../src/shared/circuits/circuit-policy.ts';
import { settingsSchema } from '../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { toolPolicy } from '../../../src/shared/config/tool-settings.ts';
import { parseTiers, SECRET_VARIABLES, VARIABLES } from '../../../src/shared/config/variables.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { retryOverridesSchema } from '../../../src/shared/retries/retry.ts';

type Sources = Parameters<typeof resolveSettings>[0];

function refusal(sources: Sources): PawlError {
  try {
    resolveSettings(sources);
  } catch (error) {
    if (error instanceof PawlError) return error;
    throw error;
  }
  throw new Error('the settings were accepted');
}

/** The settings, or what is wrong with them. */
function outcome(sources: Sources): unknown {
  try {
    return resolveSettings(sources);
  } catch (error) {
    return (error as Error).message;
  }
}

describe('R35: where a setting comes from', () => {
  test('the defaults are those of the documents', () => {
    expect(resolveSettings({})).toMatchObject({
      dataDir: '.pawl',
      prefix: 'pawl',
      httpPort: 7_070,
      httpHost: '127.0.0.1',
      metricsPrefix: 'openclaw_tool',
      logLevel: 'info',
      lockDurationMs: 30_000,
      stalledIntervalMs: 30_000,
      reliability: {
        enabled: true,
        openMode: 'on',
        deriveKeys: 'on',
        derivedReplay: 'same-request',
        tiers: {},
        loopGuard: { warnAt: 10, refuseAt: 20, windowMs: 300_000 },
      },
      ttl: { doneMs: 86_400_000, failedMs: 300_000 },
      defaults: {},
      tools: {},
    });
  });

  test('option over environment over file over default, setting by setting', () => {
    const file = { httpPort: 1, httpHost: 'file', prefix: 'file', reliability: { openMode: 'off', deriveKeys: 'off' } };
    const environment = { PAWL_HTTP_PORT: '2', PAWL_HTTP_HOST: 'environment', TOOL_RELIABILITY_OPEN_MODE: 'shadow' };
    const settings = resolveSettings({ file, environment, options: { httpPort: 3 } });
    expect(settings).toMatchObject({ httpPort: 3, httpHost: 'environment', prefix: 'file', dataDir: '.pawl' });
    expect(settings.reliability).toMatchObject({ openMode: 'shadow', deriveKeys: 'off', enabled: true });
  });

  test('an empty variable and an undefined option are not set', () => {
    const file = { httpPort: 1 };
    expect(resolveSettings({ file, environment: { PAWL_HTTP_PORT: '' } }).httpPort).toBe(1);
    expect(resolveSettings({ file, options: { httpPort: undefined as never } }).httpPort).toBe(1);
  });

  test('white space around a variable, as files of variables bring it, counts nowhere', () => {
    for (const url of ['redis://one', 'REDIS://one,two', 'UNIX:///run/X', '/run/X'])
      expect(resolveSettings({ environment: { REDIS_URL: `\uFEFF ${url}\r\n` } }).redisUrl).toBe(
        url.replace(/^[A-Z]+/, (scheme) => scheme.toLowerCase()),
      );
    const texts = ['7', 'on', 'redis', 'k:sixteen-letters-x', 'read-only=k:sixteen-letters-x', 'info', '/data'];
    for (const { name } of VARIABLES) {
      for (const text of texts)
        expect(outcome({ environment: { [name]: ` ${text}\t\r` } }), name).toEqual(
          outcome({ environment: { [name]: text } }),
        );
      expect(outcome({ environment: { [name]: ' \r' } }), name).toEqual(outcome({}));
    }
  });

  test('a variable in quotes, which env files of Docker keep, is refused by its name and not shown', () => {
    for (const { name } of VARIABLES)
      for (const value of ['"hunter2"', "'hunter2'", '`hunter2`', '""']) {
        const { issues = [], message } = refusal({
          environment: { [name]: value, LOG_LEVEL: name === 'LOG_LEVEL' ? value : 'loud' },
        });
        expect(
          issues.filter(({ path }) => path.startsWith(`${name} (`)),
          name,
        ).toEqual([{ path: expect.any(String), message: expect.stringContaining('quotes') }]);
        if (name !== 'LOG_LEVEL') expect(message).toContain('LOG_LEVEL (logLevel): must be one of');
        expect(message).not.toContain('hunter2');
      }
  });

  test.each([
    ['true', true],
    ['1', true],
    ['ON', true],
    ['false', false],
    ['0', false],
    ['off', false],
  ])('R33: TOOL_RELIABILITY_ENABLED=%s', (text, enabled) => {
    expect(resolveSettings({ environment: { TOOL_RELIABILITY_ENABLED: text } }).reliability.enabled).toBe(enabled);
  });

  test('lists are separated by commas', () => {
    const environment = {
      PAWL_ALLOWED_HOSTS: 'crm.local:8080, billing ,[::1]:80,::1',
      PAWL_API_TOKENS: 'sesame-1:agent,sesame-2:admin:acme,sesame-3:agent:acme:eu',
      PAWL_SIGNING_KEYS: 'new:sixteen-letters-x,old:sixteen:letters:y',
      PAWL_WORKER_KEYS: 'system=new:sixteen=letters:x,read-only=ro:sixteen-letters-y,system=old:sixteen-letters-z',
    };
    expect(resolveSettings({ environment })).toMatchObject({
      allowedHosts: ['crm.local:8080', 'billing', '[::1]:80', '::1'],
      apiTokens: [
        { token: 'sesame-1', role: 'agent' },
        { token: 'sesame-2', role: 'admin', tenantId: 'acme' },
        { token: 'sesame-3', role: 'agent', tenantId: 'acme:eu' },
      ],
      signingKeys: [
        { kid: 'new', key: 'sixteen-letters-x' },
        { kid: 'old', key: 'sixteen:letters:y' },
      ],
      workerKeys: {
        system: [
          { kid: 'new', key: 'sixteen=letters:x' },
          { kid: 'old', key: 'sixteen-letters-z' },
        ],
        'read-only': [{ kid: 'ro', key: 'sixteen-letters-y' }],
      },
    });
  });
});

test('the audit trail is not written to a folder that cannot be made', () => {
  expect(refusal({ file: { audit: { folder: '/proc/audit' } } }).message).toMatch(/audit\.folder: .*\/proc/);
});

describe('a wrong value is named with its variable, its path, what came and what is allowed', () => {
  test.each([
    ['PAWL_HTTP_PORT', 'httpPort', '70000', '70000', '65535'],
    ['PAWL_HTTP_PORT', 'httpPort', 'seven', '"seven"', 'number'],
    ...['localhost:80', '[::1]:80', '[::1', 'http://[::1]', 'a b'].map((host) => [
      'PAWL_HTTP_HOST',
      'httpHost',
      host,
      JSON.stringify(host),
      'without a scheme or a port',
    ]),
    ['PAWL_PREFIX', 'prefix', 'a b', '"a b"', '1 to 64 letters'],
    ['PAWL_DATA_DIR', 'dataDir', '/tmp/../proc/data', '"/tmp/../proc/data"', '/proc'],
    ['PAWL_WORKSPACE_ROOT', 'workspaceRoot', '/tmp', '"/tmp"', '/tmp holds what belongs to others'],
    ['PAWL_WORKSPACE_ROOT', 'workspaceRoot', '/etc/pawl', '"/etc/pawl"', '/etc/pawl belongs to the system'],
    ['PAWL_BLOB_STORE', 'blobStore', 'file:/proc/blobs', '"file:/proc/blobs"', '/proc'],
    ['PAWL_BLOB_STORE', 'blobStore', 'file:/sys/../proc', '"file:/sys/../proc"', '/proc'],
    ['TOOL_RELIABILITY_ENABLED', 'reliability.enabled', 'maybe', '"maybe"', 'true or false'],
    ['TOOL_RELIABILITY_OPEN_MODE', 'reliability.openMode', 'half', '"half"', '"shadow"'],
    ['TOOL_RELIABLE_DERIVE_IDEMPOTENCY', 'reliability.deriveKeys', 'maybe', '"maybe"', '"off"'],
    ['PAWL_DERIVED_REPLAY', 'reliability.derivedReplay', 'never', '"never"', '"always"'],
    ['PAWL_METRICS_PREFIX', 'metricsPrefix', '9x', '"9x"', 'Prometheus'],
    ['LOG_LEVEL', 'logLevel', 'loud', '"loud"', '"debug"'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'otlpEndpoint', 'collector:4318', '"collector:4318"', 'http or https URL'],
    ...[
      'http://crm.local',
      'crm.local/api',
      'u@crm.local',
      '*.local',
      'crm local',
      'crm:port',
      'crm:',
      '[::1]:',
      'crm:70000',
    ].map((host) => ['PAWL_ALLOWED_HOSTS', 'allowedHosts.0', host, JSON.stringify(host), 'host or host:port']),
    ['PAWL_LOCK_DURATION_MS', 'lockDurationMs', '10', '10', '200'],
    ['PAWL_DRAIN_MS', 'drainMs', '-1', '-1', '0'],
  ])('%s (%s)', (variable, path, text, came, allowed) => {
    const { code, issues, message } = refusal({ environment: { [variable]: text } });
    expect(code).toBe('CONFIGURATION');
    expect(issues).toEqual([{ path: `${variable} (${path})`, message: expect.stringContaining(`got ${came}`) }]);
    expect(issues?.[0]?.message).toContain(allowed);
    expect(message).toContain(variable);
  });

  test.each([
    ['PAWL_SHARDS', 'shards', 'workspce=2', 'must begin with a tier and "=" (read-only, workspace', 'got "workspce"'],
    ['PAWL_SHARDS', 'shards.workspace', 'workspace=2,system=3,workspace=4', 'must be a number', 'got "2,4"'],
    ['PAWL_SHARDS', 'shards.workspace', 'workspace=2=3', 'must be a number', 'got "2=3"'],
    ['PAWL_WORKER_KEYS', 'workerKeys', 'kid:c2VjcmV0IGtleSBv==', 'must begin with a tier', 'a value that is not shown'],
    [
      'PAWL_WORKER_KEYS',
      'workerKeys',
      'system:sixteen-letters-x',
      'must begin with a tier',
      'a value that is not shown',
    ],
    ['PAWL_ALLOWED_HOSTS', 'allowedHosts.0', ' , ', 'host or host:port', 'got ","'],
    ['PAWL_API_TOKENS', 'apiTokens.0.token', ',', 'at least 8 characters', 'a value that is not shown'],
    ['PAWL_SIGNING_KEYS', 'signingKeys.0.key', ',,', 'at least 16 characters', 'a value that is not shown'],
    ['PAWL_CALLBACK_SECRETS', 'callbackSecrets.0', ',', 'at least 16 characters', 'a value that is not shown'],
  ])('%s (%s)=%j: a list that says less than it seems to', (variable, path, text, allowed, came) => {
    const { issues, message } = refusal({ environment: { [variable]: text } });
    const [said] = issues?.filter((issue) => issue.path === `${variable} (${path})`) ?? [];
    expect(said?.message).toContain(allowed);
    expect(said?.message).toContain(came);
    expect(message).not.toMatch(/c2Vj|sixteen-letters/);
  });

  test('all wrong values are reported together', () => {
    const { issues } = refusal({
      environment: { LOG_LEVEL: 'loud', PAWL_HTTP_PORT: 'x' },
      file: { tools: { read: { timeoutMs: -1 } } },
    });
    expect(issues?.map((issue) => issue.path).sort()).toEqual([
      'LOG_LEVEL (logLevel)',
      'PAWL_HTTP_PORT (httpPort)',
      'tools.read.timeoutMs',
    ]);
  });

  test('a token that stands there with two roles, without being shown', () => {
    const { issues, message } = refusal({ environment: { PAWL_API_TOKENS: 'sesame-1:agent,sesame-1:admin' } });
    expect(issues).toEqual([
      { path: 'PAWL_API_TOKENS (apiTokens)', message: 'names a token twice; got a value that is not shown' },
    ]);
    expect(message).not.toContain('sesame');
  });

  test('a wrong option is not blamed on the variable that it overrides', () => {
    const { issues } = refusal({ environment: { PAWL_HTTP_PORT: '80' }, options: { httpPort: -1 } });
    expect(issues?.map((issue) => issue.path)).toEqual(['httpPort']);
  });

  test('a setting whose name is written as a group is hinted at', () => {
    expect(outcome({ file: { http: { port: 7_072 } } })).toBe(
      'The configuration is not usable: http.port: is not a setting (did you mean httpPort?)',
    );
  });

  test('a setting that does not exist is named where it stands', () => {
    const { issues } = refusal({ file: { htpPort: 1, tools: { read: { circuit: { coolDown: 1 } } } } });
    expect(issues?.map((issue) => issue.path).sort()).toEqual(['htpPort', 'tools.read.circuit.coolDown']);
  });

  test.each([
    [{ policy: { global: { tools: { read: { perMinute: 0.5 } } } } }, 'policy.global.tools.read.perMinute', '0.5'],
    [{ policy: { global: { tools: { read: { perMinut: 5 } } } } }, 'policy.global.tools.read.perMinut', 'perMinute'],
    [{ policy: { agents: { ada: { tools: { read: 'alow' } } } } }, 'policy.agents.ada.tools.read', '"alow"'],
  ])('what is wrong inside an alternative is named where it stands: %j', (file, path, told) => {
    expect(refusal({ file }).issues).toEqual([{ path, message: expect.stringContaining(told) }]);
  });

  test('a promise of settings is refused, and not taken for none', () => {
    const { message } = refusal({ file: Promise.resolve({ httpPort: 1 }) });
    expect(message).toContain('not a promise: write export default await');
  });

  test.each([
    ['text', '"text"'],
    [[], '[]'],
    [null, 'null'],
    [7, '7'],
    [() => ({}), 'a function: export what it returns'],
  ])('the file must hold an object, not %j', (file, came) => {
    const { code, message } = refusal({ file });
    expect(code).toBe('CONFIGURATION');
    expect(message).toContain(`must hold an object of settings; got ${came}.`);
  });
});

describe('a secret is never shown', () => {
  const secrets = { token: 'open-sesame-1', key: 'a-very-secret-signing-key', password: 'hunter2hunter2' };
  test.each<[string, Sources]>([
    ['a token with a wrong role', { environment: { PAWL_API_TOKENS: `${secrets.token}:king` } }],
    ['a token and role the wrong way round', { environment: { PAWL_API_TOKENS: `agent:${secrets.token}` } }],
    ['a signing key without its name', { environment: { PAWL_SIGNING_KEYS: secrets.key } }],
    ['a short signing key', { environment: { PAWL_SIGNING_KEYS: `kid:${secrets.key.slice(0, 12)}` } }],
    ['an address that is no text', { options: { redisUrl: [`redis://u:${secrets.password}@host`] as never } }],
    [
      'something else that is wrong',
      {
        environment: {
          PAWL_API_TOKENS: `${secrets.token}:agent`,
          PAWL_SIGNING_KEYS: `kid:${secrets.key}`,
          REDIS_URL: `redis://u:${secrets.password}@host`,
        },
        file: { htpPort: 1, reliability: 7 },
      },
    ],
  ])('%s', (_what, sources) => {
    const { message, issues } = refusal(sources);
    const told = `${message} ${JSON.stringify(issues)}`;
    for (const secret of [secrets.token, secrets.key.slice(0, 12), secrets.password])
      expect(told).not.toContain(secret);
  });
});

describe('the documented list of variables', () => {
  const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
  const page = read('docs/settings.md');
  const names = [...VARIABLES.map(({ name }) => name), ...SECRET_VARIABLES.map((name) => `${name}_FILE`)];

  test('every variable of the interface is read', () => {
    const promised = [
      'REDIS_URL',
      'PAWL_DATA_DIR',
      'PAWL_PREFIX',
      'PAWL_HTTP_PORT',
      'PAWL_HTTP_HOST',
      'PAWL_API_TOKENS',
      'PAWL_SIGNING_KEYS',
      'TOOL_RELIABILITY_ENABLED',
      'TOOL_RELIABILITY_OPEN_MODE',
      'TOOL_RELIABLE_DERIVE_IDEMPOTENCY',
      'PAWL_METRICS_PREFIX',
      'LOG_LEVEL',
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      'PAWL_LOCK_DURATION_MS',
      'PAWL_STALLED_INTERVAL_MS',
      'PAWL_METRICS_PORT',
      'PAWL_DERIVED_REPLAY',
    ];
    expect(promised.filter((name) => !names.includes(name))).toEqual([]);
  });

  test('every variable is on the page of settings', () => {
    expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
  });

  test('every variable that the page and the README name is read', () => {
    const named = [
      ...`${page}\n${read('README.md')}`.matchAll(/`((?:PAWL|TOOL_RELIAB|REDIS|LOG|OTEL)[A-Z0-9]*_[A-Z0-9_]+)`/g),
    ].map((match) => match[1] ?? '');
    expect([...new Set(named)].filter((name) => !names.includes(name))).toEqual([]);
  });

  test.each([
    ['retry', retryOverridesSchema.shape],
    ['circuit', circuitOverridesSchema.shape],
  ])('every field of `%s` is in a table of its page', (_setting, shape) => {
    const rows = read('docs/call-lifecycle.md').matchAll(/^\| `(\w+)` \|/gm);
    const described = [...rows].map(([, field]) => field);
    expect(Object.keys(shape).filter((field) => !described.includes(field))).toEqual([]);
  });

  test('every variable sets a setting that exists', () => {
    for (const { path } of VARIABLES) expect(Object.keys(settingsSchema.shape), path.join('.')).toContain(path[0]);
  });
});

test('the policy under a tool’s qualified name counts more than the one under its name', () => {
  const { tools } = resolveSettings({
    file: { tools: { read: { timeoutMs: 1, enabled: false }, 'files.read': { timeoutMs: 2 } } },
  });
  expect(toolPolicy({ tools }, { namespace: 'files', name: 'read' })).toEqual({ timeoutMs: 2, enabled: false });
  expect(toolPolicy({ tools }, { namespace: 'other', name: 'read' })).toEqual({ timeoutMs: 1, enabled: false });
  expect(toolPolicy({ tools }, { namespace: 'other', name: 'write' })).toEqual({});
});

test('tiers are read from a list, and a wrong one is named with those that exist', () => {
  expect(parseTiers('read-only, system')).toEqual(['read-only', 'system']);
  expect(parseTiers('system,read-only,system')).toEqual(['system', 'read-only']);
  expect(() => parseTiers('read-only,root')).toThrow('There is no tier "root"; tiers are read-only, workspace');
});
