/** The environment variables that Pawl reads, and how their texts become settings. */
import { PawlError } from '../errors/failure.ts';
import { TIERS } from '../tools/tool.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

interface Variable {
  readonly name: string;
  readonly path: readonly string[];
  readonly read: (text: string) => unknown;
}

const asText = (text: string) => text;

/** A text that is not a number stays text, so that the schema can report it. */
const asNumber = (text: string) => (text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : text);

const asBoolean = (text: string) =>
  ({ true: true, '1': true, on: true, false: false, '0': false, off: false })[text.toLowerCase()] ?? text;

/** Commas alone are kept for the schema to refuse: `${A},${B}` without both values asks for more than an empty list, such as no tokens. */
const asList = (text: string) => {
  const parts = text.split(',').map((part) => part.trim());
  return parts.some((part) => part !== '') ? parts.filter((part) => part !== '') : [text];
};

/** Splits at the first separator; the name is empty where there is none. */
const splitAt = (separator: string, text: string): readonly [name: string, rest: string] => {
  const index = text.indexOf(separator);
  return [text.slice(0, Math.max(0, index)), text.slice(index + 1)];
};

/** A key without a name: names are public, keys are not. */
const asSigningKey = (text: string) => {
  const [kid, key] = splitAt(':', text);
  return { kid, key };
};

/** The numbers of a tier that is named twice stay text, so that the schema can report them. */
function shardCounts(parts: readonly string[]): Readonly<Record<string, unknown>> {
  const texts = new Map<string, string>();
  for (const [tier, n] of parts.map((part) => splitAt('=', part)))
    texts.set(tier, texts.has(tier) ? `${texts.get(tier)},${n}` : n);
  return Object.fromEntries([...texts].map(([tier, text]) => [tier, asNumber(text)]));
}

/** Every environment variable that Pawl reads, and the setting that it sets. */
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
        const [tier, key] = splitAt('=', entry);
        keys[tier] = [...(keys[tier] ?? []), asSigningKey(key)];
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
  { name: 'PAWL_CALLBACK_SECRETS', path: ['callbackSecrets'], read: asList },
  { name: 'PAWL_BOARD_REDIS_URL', path: ['boardRedisUrl'], read: asText },
  { name: 'PAWL_BLOB_STORE', path: ['blobStore'], read: asText },
  { name: 'PAWL_SEGMENTS_AFTER_MS', path: ['segmentsAfterMs'], read: asNumber },
  { name: 'PAWL_BULL_EVENTS', path: ['bullEvents'], read: asText },
  {
    name: 'PAWL_SHARDS',
    path: ['shards'],
    // A number for all tiers, or `read-only=4,workspace=2`.
    read: (text) =>
      text.includes('=') ? shardCounts(asList(text)) : Object.fromEntries(TIERS.map((tier) => [tier, asNumber(text)])),
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

/** A variable's text without the white space that files of variables bring; undefined when nothing is left. */
export function variableText(environment: Environment, name: string): string | undefined {
  return environment[name]?.trim() || undefined;
}

/** Variables that hold secrets: `NAME_FILE` may name a file with the value instead. */
export const SECRET_VARIABLES = VARIABLES.filter(({ path }) => isSecret(path.join('.'))).map(({ name }) => name);

export function isSecret(path: string): boolean {
  return /^(apiTokens|callbackSecrets|signingKeys|workerKeys|redisUrl|boardRedisUrl)\b/.test(path);
}

/** The tiers in a list such as `read-only,workspace`, each once. Throws `CONFIGURATION` for anything else. */
export function parseTiers(text: string): (typeof TIERS)[number][] {
  return [...new Set(asList(text))].map((name) => {
    const tier = TIERS.find((candidate) => candidate === name);
    if (tier === undefined)
      throw new PawlError('CONFIGURATION', `There is no tier ${JSON.stringify(name)}; tiers are ${TIERS.join(', ')}.`);
    return tier;
  });
}
