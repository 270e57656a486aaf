/** All settings with their defaults. Tools' own settings are in `tool-settings.ts`; `resolve-settings.ts` reads them. */
import { z } from 'zod';
import { callbackSecretSchema } from '../callbacks/callback.ts';
import { DEFAULT_TTLS, type LedgerTtls } from '../calls/call-state.ts';
import { circuitDefaultsSchema } from '../circuits/circuit-policy.ts';
import { budgetSettingsSchema } from '../limits/budget.ts';
import { tenantSettingsSchema } from '../limits/tenant.ts';
import { policySettingsSchema } from '../policy/policy-file.ts';
import { SANDBOX_POLICIES } from '../policy/sandbox-policy.ts';
import { shardCountSchema } from '../queues/shards.ts';
import { retryOverridesSchema } from '../retries/retry.ts';
import { TIERS } from '../tools/tool.ts';
import { hostInUrl } from '../util/hosts.ts';
import { defined } from '../util/json/omit-undefined.ts';
import {
  blobFolder,
  durability,
  folderPath,
  hostWithPort,
  isFolderPath,
  keptMs,
  mode,
  NO_FOLDER_PATH,
  onOff,
  waitMs,
  workspacePath,
} from './setting-types.ts';
import { loopGuardSchema, toolPolicySchema, ttlSchema } from './tool-settings.ts';

/** An IPv6 address may have brackets, as in a URL; `listen` takes it without them. */
const listeningHost = z
  .string()
  .min(1)
  .transform((host) => host.replace(/^\[(.*)\]$/, '$1'))
  .refine(
    (host) => /^(?:[\w.-]+|\[.*\])$/.test(hostInUrl(host.replace(/%\w+$/, ''))),
    'must be the name or the address of a host, without a scheme or a port',
  );
/** The scheme of an address is the same in any case. */
const redisAddress = z
  .string()
  .trim()
  .min(1)
  .transform((url) => url.replace(/^[a-z+]+:/i, (scheme) => scheme.toLowerCase()));
/** Long-term memory. */
const memorySchema = z.strictObject({
  /** Default: `sqlite`, or `lancedb` where `uri` is set. */
  store: z.enum(['sqlite', 'lancedb']).optional(),
  /** A folder, or an address that LanceDB knows, such as `s3://…`. Default: in the data folder. */
  uri: z.string().min(1).optional(),
  /** An endpoint for OpenAI's `POST /embeddings`, which adds search by meaning. */
  embedding: z
    .strictObject({
      url: z.url({ protocol: /^https?$/ }),
      model: z.string().min(1),
      apiKey: z.string().min(1).optional(),
    })
    .optional(),
  /** The lifetime of a record that sets none. Default: for ever. */
  ttlMs: keptMs.optional(),
  maxTextBytes: z.number().int().min(1).max(1_048_576).default(32_768),
  /** The most records of each tenant. */
  maxRecords: z.number().int().min(1).default(100_000),
});

const DEFAULT_AUDIT_FILE_BYTES = 64 * 1_024 * 1_024;

/** The audit trail (docs/audit.md). */
const auditSchema = z.strictObject({
  /** Whether to record calls of read-only tools, and their attempts. All other calls are always recorded. */
  reads: onOff.default('on'),
  /** The number of chained records that Redis keeps for `pawl audit ls`, and until they are in files. */
  keptRecords: z.number().int().min(100).default(50_000),
  /** Whether a front door (`pawl up`, `pawl serve`) writes the whole trail to files. */
  files: onOff.default('on'),
  /** Default: `audit` in the data folder. */
  folder: folderPath.optional(),
  /** The size at which the next file begins. */
  maxFileBytes: z.number().int().min(1_024).default(DEFAULT_AUDIT_FILE_BYTES),
});

const API_ROLES = ['agent', 'approver', 'operator', 'admin'] as const;
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
  redisUrl: redisAddress.optional(),
  dataDir: folderPath.default('.pawl'),
  prefix: z
    .string()
    .regex(/^[A-Za-z0-9_.-]{1,64}$/, 'must be 1 to 64 letters, digits, _, . or -')
    .default('pawl'),
  httpPort: z.number().int().min(0).max(65_535).default(7_070),
  httpHost: listeningHost.default('127.0.0.1'),
  http: z
    .strictObject({
      /** The requests of one token; unlimited when absent. */
      requestsPerSecond: z.number().positive().optional(),
      /** The requests of one token that are in progress at a time, waiting and streaming ones included. */
      maxRequests: z.number().int().min(1).default(2_000),
      /** The calls that wait or run in the whole fleet; beyond it, new ones are refused. */
      maxBacklog: z.number().int().min(1).default(100_000),
    })
    .prefault({}),
  apiTokens: z
    .array(apiTokenSchema)
    // The last role would silently win.
    .refine((tokens) => new Set(tokens.map(({ token }) => token)).size === tokens.length, 'names a token twice')
    .default([]),
  signingKeys: z.array(signingKeySchema).default([]),
  /** The keys of the workers of a tier, which alone sign the tools that these publish. A front door has all of them, a worker its own. */
  workerKeys: z.partialRecord(z.enum(TIERS), z.array(signingKeySchema).min(1)).default({}),
  reliability: z
    .strictObject({
      enabled: z.boolean().default(true),
      openMode: z.enum(['on', 'off', 'shadow']).default('on'),
      deriveKeys: onOff.default('on'),
      derivedReplay: z.enum(['same-request', 'always']).default('same-request'),
      /** Staged enabling by tier: a mode that is not named is `on`. */
      tiers: z
        .partialRecord(
          z.enum(TIERS),
          z.strictObject({ dedupe: mode.optional(), retry: mode.optional(), circuits: mode.optional() }),
        )
        .default({}),
      loopGuard: loopGuardSchema
        .transform((guard) => ({ warnAt: 10, refuseAt: 20, windowMs: 300_000, ...defined(guard) }))
        .prefault({}),
    })
    .prefault({}),
  /** How safe the start of a `once` attempt is before its effect begins. */
  durability: durability.default('everysec'),
  metricsPrefix: z
    .string()
    .regex(/^[a-zA-Z_][a-zA-Z0-9_]*$/, 'must be a Prometheus name')
    .default('openclaw_tool'),
  metricsPort: z.number().int().min(0).max(65_535).optional(),
  metricsHost: listeningHost.default('127.0.0.1'),
  /** The address with which Bull Board reads, where it has a Redis user of its own. */
  boardRedisUrl: redisAddress.optional(),
  /** The place of values above 64 KiB (`store/blobs/configured-store.ts`). The same in all processes. */
  blobStore: z
    .string()
    .regex(/^(redis|file(:.+)?)$/, 'must be redis, file or file:FOLDER')
    .refine((store) => isFolderPath(blobFolder(store) ?? '.'), NO_FOLDER_PATH)
    .default('redis'),
  /** The age at which the records of calls that succeeded leave Redis for segments in the blob store. Default: they stay until they end. */
  segmentsAfterMs: keptMs.min(1_000).optional(),
  /** Whether listeners of BullMQ's (`QueueEvents`) are notified of ordinary calls: three writes to Redis for each. Pawl itself needs none. */
  bullEvents: onOff.default('off'),
  /** The page that shows a trace: `{traceId}` stands for the trace’s ID. */
  traceUrl: z.url().includes('{traceId}').optional(),
  /** The collector that takes traces as OTLP over HTTP: its address, without `/v1/traces`. */
  otlpEndpoint: z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).optional(),
  logLevel: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  lockDurationMs: waitMs.min(200).default(30_000),
  stalledIntervalMs: waitMs.min(100).default(30_000),
  /** The time that a stopping worker waits for its running calls: a week at most, as long as a call may take. */
  drainMs: waitMs.default(25_000),
  /** The time that a call waits for a worker that knows its tool, version and contract. */
  toolWaitMs: waitMs.default(5 * 60_000),
  workspaceRoot: workspacePath.optional(),
  /** Hosts (`host` or `host:port`) that `ctx.fetch` may reach although their address is private. */
  allowedHosts: z.array(hostWithPort).default([]),
  /** Folders with skills: `NAME/SKILL.md` below them, or a `SKILL.md` in them. */
  skillFolders: z.array(z.string().min(1)).default([]),
  /** The webhook addresses with which the API's agents may open sessions. Other roles may use any. */
  webhooks: z.array(z.url()).default([]),
  /** Secrets that sign callbacks: each makes a signature. Default: one that follows from the signing keys. */
  callbackSecrets: z.array(callbackSecretSchema).default([]),
  /** The access of declared HTTP connectors in a worker. */
  connectors: z
    .strictObject({
      /** The sources that secrets may come from. */
      secrets: z
        .strictObject({
          /** Names of variables; `*` stands for any text. Pawl's own secrets are never included. */
          environment: z.array(z.string().min(1)).default(['PAWL_SECRET_*']),
          /** Folders of files. */
          folders: z.array(z.string().startsWith('/', 'must be an absolute path')).default([]),
          /** Absolute paths of programs that print a secret. */
          programs: z.array(z.string().startsWith('/', 'must be an absolute path')).default([]),
        })
        .prefault({}),
    })
    .prefault({}),
  memory: memorySchema.prefault({}),
  audit: auditSchema.prefault({}),
  /** The budgets of tenants (docs/budgets.md). */
  budgets: budgetSettingsSchema.prefault({}),
  tenants: tenantSettingsSchema.default({}),
  /** The number of shards among which a tier's new sessions are spread, until `pawl shards set` changes it. */
  shards: z.partialRecord(z.enum(TIERS), shardCountSchema).default({}),
  admission: z
    .strictObject({
      /**
       * The calls that may wait or run in one tier: critical calls are admitted below it, normal ones below 90 %, background ones below
       * half.
       */
      maxInflight: z.number().int().min(1).default(100_000),
    })
    .prefault({}),
  /** Whether programs must run in a sandbox, run in one where it works, or run without one. */
  sandbox: z.enum(SANDBOX_POLICIES).default('preferred'),
  /** Whether programs in a sandbox may use the network. */
  sandboxNetwork: onOff.default('off'),
  /**
   * Paths in every workspace that tools leave unchanged, because its owner runs them later (docs/security.md). `default` stands for the
   * built-in list.
   */
  readOnlyPaths: z.array(z.string().min(1)).optional(),
  ttl: ttlSchema.transform((ttl): LedgerTtls => ({ ...DEFAULT_TTLS, ...defined(ttl) })).prefault({}),
  /** The defaults for every tool, unless the tool or `tools` sets something else. */
  defaults: z
    .strictObject({ retry: retryOverridesSchema.optional(), circuit: circuitDefaultsSchema.optional() })
    .prefault({}),
  tools: z.record(z.string(), toolPolicySchema).default({}),
  /** The policy: who may call what, and when a person decides (docs/policy.md). */
  policy: policySettingsSchema.prefault({}),
});
export type Settings = z.output<typeof settingsSchema>;
export type SettingsInput = z.input<typeof settingsSchema>;
