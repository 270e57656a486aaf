/**
 * Settings: option, environment, file, default, in this order (R35). A wrong value is named with its path, what came and what
 * is allowed, and nothing starts.
 */
import { z } from 'zod';
import { DEFAULT_TTLS } from '../calls/call-state.ts';
import {
  type CircuitOverrides,
  type CircuitPolicy,
  circuitDefaultsSchema,
  circuitOverridesSchema,
  circuitPolicy,
} from '../circuits/circuit-policy.ts';
import { type Issue, PawlError } from '../errors/failure.ts';
import { budgetSettingsSchema } from '../limits/budget.ts';
import { limitSettingsSchema } from '../limits/concurrency-limit.ts';
import { tenantSettingsSchema } from '../limits/tenant.ts';
import { policySettingsSchema } from '../policy/policy-file.ts';
import { SANDBOX_POLICIES } from '../policy/sandbox-policy.ts';
import { shardCountSchema } from '../queues/shards.ts';
import type { Effects } from '../retries/effects.ts';
import { retryOverridesSchema } from '../retries/retry.ts';
import { sessionStateSchema } from '../sessions/session.ts';
import { TIERS, type Tier } from '../tools/tool.ts';
import { MAX_KEPT_MS, MAX_WAIT_MS } from '../util/time.ts';
import { MODES } from './switches.ts';

const bytes = z.number().int().positive();
/** What a process waits for. */
const waitMs = z.number().int().min(0).max(MAX_WAIT_MS);
/** What Redis keeps. */
const keptMs = z.number().int().positive().max(MAX_KEPT_MS);
/** An IPv6 address may stand in brackets, as in a URL; whoever listens takes it without them. */
const listeningHost = z
  .string()
  .min(1)
  .transform((host) => host.replace(/^\[(.*)\]$/, '$1'));
const onOff = z.enum(['on', 'off']);
/** See `durability.ts`. */
const durability = z.enum(['everysec', 'always', 'waitaof']);
const mode = z.enum(MODES);

/** Per-tool policy of the operator, under the tool's name or `namespace.name`. */
const toolPolicySchema = z.strictObject({
  enabled: z.boolean().optional(),
  /** Call it only while its session is in one of these states. */
  states: z.array(sessionStateSchema).optional(),
  timeoutMs: z.number().int().positive().max(MAX_WAIT_MS).optional(),
  maxResultBytes: bytes.optional(),
  /** What a model is shown of an output; the whole can be read by the call's ID. */
  maxOutputBytes: bytes.optional(),
  /** For the tool itself, as `ctx.config` (A8). */
  config: z.record(z.string(), z.unknown()).optional(),
  /** Name calls alike over all sessions; only for tools with effects `none` (R10). */
  scope: z.enum(['session', 'global']).optional(),
  /** What is not named is as `reliability.loopGuard` says. */
  loopGuard: z
    .strictObject({ warnAt: z.number().int().min(1), refuseAt: z.number().int().min(2), windowMs: keptMs })
    .partial()
    .optional(),
  /** What a reused key with other parameters means (TR-4). */
  onConflict: z.enum(['refuse', 'independent']).optional(),
  /** Accept `dedupeMode: "disabled"` above the read-only tier. */
  allowDisabledDedupe: z.boolean().optional(),
  ttl: z.strictObject({ doneMs: keptMs.optional(), failedMs: keptMs.optional() }).optional(),
  /** Of its calls in the whole fleet. */
  limits: limitSettingsSchema.optional(),
  /** Of a tool with effects `once`; default: the setting of this name. */
  durability: durability.optional(),
  retry: retryOverridesSchema
    .extend({
      /** Retries of all calls of the tool together, for each tenant: see `retry-budget.ts`. */
      budget: z
        .strictObject({
          ratio: z.number().min(0).max(1),
          floor: z.number().int().min(0),
          capacity: z.number().int().min(0),
          windowMs: keptMs,
        })
        .partial()
        .optional(),
    })
    .optional(),
  circuit: circuitOverridesSchema
    .extend({
      /** Refuse all calls of the tool for as long as this stands here (R25). */
      forcedOpen: z.boolean().optional(),
    })
    .optional(),
});
export type ToolPolicy = z.output<typeof toolPolicySchema>;

/** Long-term memory (A24). */
const memorySchema = z.strictObject({
  /** A folder, or an address that LanceDB knows, such as `s3://…`. Default: in the data folder. */
  uri: z.string().min(1).optional(),
  /** An endpoint that speaks OpenAI's `POST /embeddings`: records are then found by meaning too. */
  embedding: z
    .strictObject({
      url: z.url({ protocol: /^https?$/ }),
      model: z.string().min(1),
      apiKey: z.string().min(1).optional(),
    })
    .optional(),
  /** Of a record that does not say how long it is kept. Default: for ever. */
  ttlMs: keptMs.optional(),
  maxTextBytes: z.number().int().min(1).max(1_048_576).default(32_768),
  /** For each tenant. */
  maxRecords: z.number().int().min(1).default(100_000),
});

/** The trail of who asked for what and what became of it (I4; docs/audit.md). */
const auditSchema = z.strictObject({
  /** Calls of read-only tools, and their attempts, are recorded too. What changes something always is. */
  reads: onOff.default('on'),
  /** Sealed records that Redis keeps for `pawl audit ls`, and until they are in files. */
  keptRecords: z.number().int().min(100).default(50_000),
  /** A front door (`pawl up`, `pawl serve`) writes the whole trail to files. */
  files: onOff.default('on'),
  /** Default: `audit` in the data folder. */
  folder: z.string().min(1).optional(),
  /** After that many bytes another file begins. */
  maxFileBytes: z
    .number()
    .int()
    .min(1_024)
    .default(64 * 1_024 * 1_024),
});

export const API_ROLES = ['agent', 'approver', 'operator', 'admin'] as const;
export type ApiRole = (typeof API_ROLES)[number];
const apiTokenSchema = z.strictObject({
  token: z.string().min(8, 'must have at least 8 characters'),
  role: z.enum(API_ROLES),
  tenantId: z.string().min(1).optional(),
});
export type ApiToken = z.output<typeof apiTokenSchema>;

const signingKeySchema = z.strictObject({
  kid: z.string().min(1),
  key: z.string().min(16, 'must have at least 16 characters'),
});

export const settingsSchema = z.strictObject({
  redisUrl: z.string().min(1).optional(),
  dataDir: z.string().min(1).default('.pawl'),
  prefix: z
    .string()
    .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'must be 1 to 64 letters, digits, _, . or -')
    .default('pawl'),
  httpPort: z.number().int().min(0).max(65_535).default(7_070),
  httpHost: listeningHost.default('127.0.0.1'),
  http: z
    .strictObject({
      /** Of one token; unlimited when absent. */
      requestsPerSecond: z.number().positive().optional(),
      /** Of one token that are answered at a time, waiting and streaming ones included. */
      maxRequests: z.number().int().min(1).default(2_000),
      /** Calls that wait or run in the whole fleet; beyond it no more are taken. */
      maxBacklog: z.number().int().min(1).default(100_000),
    })
    .prefault({}),
  apiTokens: z
    .array(apiTokenSchema)
    // Which role it has would be the last one's, unseen.
    .refine((tokens) => new Set(tokens.map(({ token }) => token)).size === tokens.length, 'names a token twice')
    .default([]),
  signingKeys: z.array(signingKeySchema).default([]),
  /** Keys of the workers of a tier, which alone sign the tools that these publish. A front door has all of them, a worker its own. */
  workerKeys: z.partialRecord(z.enum(TIERS), z.array(signingKeySchema).min(1)).default({}),
  reliability: z
    .strictObject({
      enabled: z.boolean().default(true),
      openMode: z.enum(['on', 'off', 'shadow']).default('on'),
      deriveKeys: onOff.default('on'),
      derivedReplay: z.enum(['same-request', 'always']).default('same-request'),
      /** Staged enabling (R34): what works for the tools of a tier; what is not named is `on`. */
      tiers: z
        .partialRecord(
          z.enum(TIERS),
          z.strictObject({ dedupe: mode.optional(), retry: mode.optional(), circuits: mode.optional() }),
        )
        .default({}),
      /** R26: repetitions of the same call, without a key of the caller's own, in one session. */
      loopGuard: z
        .strictObject({
          warnAt: z.number().int().min(1).default(10),
          refuseAt: z.number().int().min(2).default(20),
          /** From the first of them; then the count starts anew. */
          windowMs: keptMs.default(300_000),
        })
        .prefault({}),
    })
    .prefault({}),
  /** How sure the begin of a `once` attempt is before its effect starts. */
  durability: durability.default('everysec'),
  metricsPrefix: z
    .string()
    .regex(/^[a-zA-Z_][a-zA-Z0-9_]*$/, 'must be a Prometheus name')
    .default('openclaw_tool'),
  metricsPort: z.number().int().min(0).max(65_535).optional(),
  metricsHost: listeningHost.default('127.0.0.1'),
  /** What Bull Board reads with, where it has a Redis user of its own. */
  boardRedisUrl: z.string().min(1).optional(),
  /** Where people look at traces: `{traceId}` stands for the trace’s ID. */
  traceUrl: z.url().includes('{traceId}').optional(),
  /** Where traces go, as OTLP over HTTP: the collector's address, without `/v1/traces`. */
  otlpEndpoint: z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).optional(),
  logLevel: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  lockDurationMs: waitMs.min(200).default(30_000),
  stalledIntervalMs: waitMs.min(100).default(30_000),
  /** How long a worker that is asked to stop waits for its running calls: a week at most, as long as a call may take. */
  drainMs: waitMs.default(25_000),
  /** How long a call whose tool, version or contract no living worker knows waits for one that does. */
  toolWaitMs: waitMs.default(5 * 60_000),
  workspaceRoot: z.string().min(1).optional(),
  /** Hosts (`host` or `host:port`) that `ctx.fetch` may reach although their address is private. */
  allowedHosts: z.array(z.string().min(1)).default([]),
  /** Folders with skills: `NAME/SKILL.md` below them, or a `SKILL.md` in them. */
  skillFolders: z.array(z.string().min(1)).default([]),
  /** Addresses of webhook channels that the API's agents may open sessions with; others may use any. */
  webhooks: z.array(z.url()).default([]),
  /** What declared HTTP connectors get from a worker. */
  connectors: z
    .strictObject({
      /** Where their secrets may come from. */
      secrets: z
        .strictObject({
          /** Names of variables; `*` stands for any text. Never Pawl's own secrets. */
          environment: z.array(z.string().min(1)).default(['PAWL_SECRET_*']),
          /** Folders of files. */
          folders: z.array(z.string().startsWith('/', 'must be an absolute path')).default([]),
          /** Absolute paths of programs that print one. */
          programs: z.array(z.string().startsWith('/', 'must be an absolute path')).default([]),
        })
        .prefault({}),
    })
    .prefault({}),
  memory: memorySchema.prefault({}),
  audit: auditSchema.prefault({}),
  /** What tenants may spend (I17; docs/budgets.md). */
  budgets: budgetSettingsSchema.prefault({}),
  tenants: tenantSettingsSchema.default({}),
  /** Of tiers of which nobody has said anything else (`pawl shards set`): among how many their new sessions are spread. */
  shards: z.partialRecord(z.enum(TIERS), shardCountSchema).default({}),
  admission: z
    .strictObject({
      /** Calls that wait or run in one tier: a critical call is taken below it, a normal one below 90 %, one in the background below half. */
      maxInflight: z.number().int().min(1).default(100_000),
    })
    .prefault({}),
  /** Whether programs must run in a sandbox, do so where it works, or run without one. */
  sandbox: z.enum(SANDBOX_POLICIES).default('preferred'),
  /** Whether programs in a sandbox may use the network. */
  sandboxNetwork: onOff.default('off'),
  /** What tools leave as it is in every workspace, because its owner runs it later (docs/security.md). `default`: the built-in list. */
  readOnlyPaths: z.array(z.string().min(1)).optional(),
  ttl: z
    .strictObject({
      doneMs: keptMs.default(DEFAULT_TTLS.doneMs),
      failedMs: keptMs.default(DEFAULT_TTLS.failedMs),
      cancelledMs: keptMs.default(DEFAULT_TTLS.cancelledMs),
    })
    .prefault({}),
  /** Of every tool, where neither it nor `tools` says anything else (R35). */
  defaults: z
    .strictObject({ retry: retryOverridesSchema.optional(), circuit: circuitDefaultsSchema.optional() })
    .prefault({}),
  tools: z.record(z.string(), toolPolicySchema).default({}),
  /** Who may call what, and when a person decides (docs/policy.md). */
  policy: policySettingsSchema.prefault({}),
});
export type Settings = z.output<typeof settingsSchema>;
export type SettingsInput = z.input<typeof settingsSchema>;

type Environment = Readonly<Record<string, string | undefined>>;

interface Variable {
  readonly name: string;
  readonly path: readonly string[];
  readonly read: (text: string) => unknown;
}

const asText = (text: string) => text;
/** Not a number stays text, so that the schema can say what came. */
const asNumber = (text: string) => (text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text);
const asBoolean = (text: string) =>
  ({ true: true, '1': true, on: true, false: false, '0': false, off: false })[text.toLowerCase()] ?? text;
const asList = (text: string) =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');

/** Without a name it is all key: the name is public, the key is not. */
const asSigningKey = (text: string) => {
  const colon = Math.max(0, text.indexOf(':'));
  return { kid: text.slice(0, colon), key: text.slice(colon + 1) };
};

/** Every environment variable that Pawl reads, and what it sets. */
export const VARIABLES: readonly Variable[] = [
  { name: 'REDIS_URL', path: ['redisUrl'], read: asText },
  { name: 'PAWL_DATA_DIR', path: ['dataDir'], read: asText },
  { name: 'PAWL_PREFIX', path: ['prefix'], read: asText },
  { name: 'PAWL_HTTP_PORT', path: ['httpPort'], read: asNumber },
  { name: 'PAWL_HTTP_HOST', path: ['httpHost'], read: asText },
  {
    name: 'PAWL_API_TOKENS',
    path: ['apiTokens'],
    read: (text) =>
      asList(text).map((entry) => {
        const [token, role, ...tenant] = entry.split(':');
        return { token, role, ...(tenant.length === 0 ? {} : { tenantId: tenant.join(':') }) };
      }),
  },
  {
    name: 'PAWL_SIGNING_KEYS',
    path: ['signingKeys'],
    read: (text) => asList(text).map(asSigningKey),
  },
  {
    name: 'PAWL_WORKER_KEYS',
    path: ['workerKeys'],
    read: (text) => {
      const keys: Record<string, unknown[]> = {};
      for (const entry of asList(text)) {
        const equals = Math.max(0, entry.indexOf('='));
        const tier = entry.slice(0, equals);
        keys[tier] = [...(keys[tier] ?? []), asSigningKey(entry.slice(equals + 1))];
      }
      return keys;
    },
  },
  { name: 'TOOL_RELIABILITY_ENABLED', path: ['reliability', 'enabled'], read: asBoolean },
  { name: 'TOOL_RELIABILITY_OPEN_MODE', path: ['reliability', 'openMode'], read: asText },
  { name: 'TOOL_RELIABLE_DERIVE_IDEMPOTENCY', path: ['reliability', 'deriveKeys'], read: asText },
  { name: 'PAWL_DERIVED_REPLAY', path: ['reliability', 'derivedReplay'], read: asText },
  { name: 'PAWL_METRICS_PREFIX', path: ['metricsPrefix'], read: asText },
  { name: 'PAWL_METRICS_PORT', path: ['metricsPort'], read: asNumber },
  { name: 'PAWL_METRICS_HOST', path: ['metricsHost'], read: asText },
  { name: 'PAWL_BOARD_REDIS_URL', path: ['boardRedisUrl'], read: asText },
  {
    name: 'PAWL_SHARDS',
    path: ['shards'],
    // A number for all tiers, or `read-only=4,workspace=2`.
    read: (text) =>
      text.includes('=')
        ? Object.fromEntries(
            asList(text)
              .map((part) => part.split('='))
              .map(([tier = '', n = '']) => [tier, asNumber(n)]),
          )
        : Object.fromEntries(TIERS.map((tier) => [tier, asNumber(text)])),
  },
  { name: 'PAWL_DURABILITY', path: ['durability'], read: asText },
  { name: 'LOG_LEVEL', path: ['logLevel'], read: asText },
  { name: 'OTEL_EXPORTER_OTLP_ENDPOINT', path: ['otlpEndpoint'], read: asText },
  { name: 'PAWL_LOCK_DURATION_MS', path: ['lockDurationMs'], read: asNumber },
  { name: 'PAWL_STALLED_INTERVAL_MS', path: ['stalledIntervalMs'], read: asNumber },
  { name: 'PAWL_DRAIN_MS', path: ['drainMs'], read: asNumber },
  { name: 'PAWL_WORKSPACE_ROOT', path: ['workspaceRoot'], read: asText },
  { name: 'PAWL_ALLOWED_HOSTS', path: ['allowedHosts'], read: asList },
  { name: 'PAWL_SKILL_FOLDERS', path: ['skillFolders'], read: asList },
  { name: 'PAWL_SANDBOX', path: ['sandbox'], read: asText },
  { name: 'PAWL_SANDBOX_NETWORK', path: ['sandboxNetwork'], read: asText },
  { name: 'PAWL_READ_ONLY_PATHS', path: ['readOnlyPaths'], read: asList },
];

/** Variables that hold secrets: `NAME_FILE` may name a file with the value instead. */
export const SECRET_VARIABLES = VARIABLES.filter(({ path }) => isSecret(path.join('.'))).map(({ name }) => name);

/** Settings from what was passed, the environment and a file. Throws `CONFIGURATION` with every fault. */
export function resolveSettings(sources: {
  readonly options?: Partial<SettingsInput>;
  readonly environment?: Environment;
  readonly file?: unknown;
}): Settings {
  const merged: Record<string, unknown> = {};
  const named = new Map<string, string>();
  if (sources.file !== undefined) {
    if (!isPlainObject(sources.file)) throw new PawlError('CONFIGURATION', 'pawl.config must hold an object.');
    // It would be taken for no settings at all: for no tokens, to begin with.
    if (sources.file instanceof Promise)
      throw new PawlError(
        'CONFIGURATION',
        'pawl.config must hold an object, not a promise: write export default await ….',
      );
    mergeInto(merged, sources.file);
  }
  for (const { name, path, read } of VARIABLES) {
    const text = sources.environment?.[name];
    if (text === undefined || text === '') continue;
    named.set(path.join('.'), name);
    mergeInto(
      merged,
      path.reduceRight<unknown>((value, key) => ({ [key]: value }), read(text)) as Record<string, unknown>,
    );
  }
  const options = Object.fromEntries(Object.entries(sources.options ?? {}).filter(([, value]) => value !== undefined));
  for (const { path } of VARIABLES) if (valueAt(options, path) !== undefined) named.delete(path.join('.'));
  mergeInto(merged, options);
  const parsed = settingsSchema.safeParse(merged);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.flatMap((issue): Issue[] => {
    if (issue.code === 'unrecognized_keys')
      return issue.keys.map((key) => ({
        path: [...issue.path, key].map(String).join('.'),
        message: 'is not a setting',
      }));
    const path = issue.path.map(String).join('.');
    const variable = [...named].find(([setting]) => path === setting || path.startsWith(`${setting}.`))?.[1];
    const shown = isSecret(path) ? 'a value that is not shown' : JSON.stringify(valueAt(merged, issue.path));
    return [
      {
        path: variable === undefined ? path : `${variable} (${path})`,
        message: `${issue.message}; got ${shown ?? 'nothing'}`,
      },
    ];
  });
  throw new PawlError(
    'CONFIGURATION',
    `The configuration is not usable: ${issues.map((issue) => `${issue.path}: ${issue.message}`).join('; ')}`,
    { issues },
  );
}

function isSecret(path: string): boolean {
  return /^(apiTokens|signingKeys|workerKeys|redisUrl|boardRedisUrl)\b/.test(path);
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (at, key) => (typeof at === 'object' && at !== null ? (at as Record<PropertyKey, unknown>)[key] : undefined),
    value,
  );
}

/** Deep for objects; lists and values are replaced. */
function mergeInto(target: Record<string, unknown>, source: Readonly<Record<string, unknown>>): void {
  for (const [key, value] of Object.entries(source)) {
    const present = target[key];
    if (isPlainObject(value) && isPlainObject(present)) {
      const merged = { ...present };
      mergeInto(merged, value);
      target[key] = merged;
    } else target[key] = value;
  }
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const NO_POLICY: ToolPolicy = {};

/** The operator's policy for one tool: the qualified name's entry over the plain name's. */
export function toolPolicy(
  settings: Pick<Settings, 'tools'>,
  tool: { readonly namespace: string; readonly name: string },
): ToolPolicy {
  // Most have none at all, and every call asks several times.
  if (isEmpty(settings.tools)) return NO_POLICY;
  const plain = settings.tools[tool.name];
  const qualified = settings.tools[`${tool.namespace}.${tool.name}`];
  return plain === undefined && qualified === undefined ? NO_POLICY : { ...plain, ...qualified };
}

/** The policy of a tool's circuit: what the operator says of the tool, the tool itself, the operator of its class and of all. */
export function circuitPolicyOf(
  settings: Pick<Settings, 'tools' | 'defaults'>,
  tool: {
    readonly namespace: string;
    readonly name: string;
    readonly tier: Tier;
    readonly circuit: CircuitOverrides;
  },
): CircuitPolicy {
  const { circuit } = toolPolicy(settings, tool);
  return circuitPolicy(tool.tier === 'read-only', tool.circuit, circuit, settings.defaults.circuit);
}

/** Whether calls of a tool are named over all sessions or within one (R10): only what changes nothing can be shared. */
export function scopeOf(
  settings: Pick<Settings, 'tools'>,
  tool: { readonly namespace: string; readonly name: string; readonly effects?: Effects },
): 'session' | 'global' {
  return toolPolicy(settings, tool).scope === 'global' && tool.effects === 'none' ? 'global' : 'session';
}

function isEmpty(record: object): boolean {
  for (const _name in record) return false;
  return true;
}

/** Tiers in a list such as `read-only,workspace`; throws `CONFIGURATION` for anything else. */
export function parseTiers(text: string): (typeof TIERS)[number][] {
  return asList(text).map((name) => {
    const tier = TIERS.find((candidate) => candidate === name);
    if (tier === undefined)
      throw new PawlError('CONFIGURATION', `There is no tier ${JSON.stringify(name)}; tiers are ${TIERS.join(', ')}.`);
    return tier;
  });
}
