/**
 * Composition root of the library: reads the environment and the configuration file, and starts producers and workers with them.
 * Each side is loaded when it is started: a process that is one of them starts sooner without the other.
 */
import { existsSync, lstatSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { pathToFileURL } from 'node:url';
import type { Pawl } from './producer/client.ts';
import type { PawlOptions } from './producer/compose.ts';
import { removeWorkspaceFolders } from './search-path.ts';
import { checkHooks, type Hook } from './shared/calls/define-hook.ts';
import { type Settings, type SettingsInput, settingsSchema } from './shared/config/config.ts';
import { CONFIG_JSON, CONFIG_MODULES } from './shared/config/config-files.ts';
import { resolveSettings } from './shared/config/resolve-settings.ts';
import { SECRET_VARIABLES, variableText } from './shared/config/variables.ts';
import { PawlError, reasonOf } from './shared/errors/failure.ts';
import { redactLine, secretsOf } from './shared/errors/redaction.ts';
import { PAWL_VERSION } from './shared/store/redis/own-files.ts';
import type { WorkerEvent } from './shared/telemetry/call-events.ts';
import { guardedLogger } from './shared/telemetry/listeners.ts';
import type { Logger } from './shared/telemetry/log.ts';
import { readableLogLine } from './shared/telemetry/readable-log.ts';
import { openTracing } from './shared/telemetry/tracing.ts';
import { type AnyTool, isTool, MAX_CONCURRENCY, TIERS, type Tier } from './shared/tools/tool.ts';
import { resolveToolsets, type Toolset } from './shared/tools/toolset.ts';
import { isObject } from './shared/util/json/json-types.ts';
import { defined } from './shared/util/json/omit-undefined.ts';
import { didYouMean } from './shared/util/text/nearest.ts';
import { quoteValue } from './shared/util/text/quote-value.ts';
import { escapeJson } from './shared/util/text/visible-text.ts';
import type { ToolWorker } from './workers/worker.ts';
import { boundYoungGeneration } from './young-generation.ts';

export const DEFAULT_CONCURRENCY = 32;

/** Settings of this process. Throws `CONFIGURATION`. */
export async function loadSettings(options: Partial<SettingsInput> = {}): Promise<Settings> {
  return (await readSettings(options)).settings;
}

async function readSettings(
  options: Partial<SettingsInput>,
): Promise<{ readonly settings: Settings; readonly ownLogLevel: Settings['logLevel'] }> {
  const environment = withSecretFiles(process.env);
  const file = await configFile(process.cwd());
  const settings = resolveSettings({ options, environment, file });
  checkWorkspaceRoot(settings);
  // A library logs warnings only, unless a setting names a level.
  const isAsked =
    options.logLevel !== undefined ||
    variableText(environment, 'LOG_LEVEL') !== undefined ||
    (file as Partial<SettingsInput> | undefined)?.logLevel !== undefined;
  return { settings, ownLogLevel: isAsked ? settings.logLevel : 'warn' };
}

/** The folder may come into being later. */
function checkWorkspaceRoot({ workspaceRoot }: Settings): void {
  if (workspaceRoot === undefined) return;
  let there = resolve(workspaceRoot);
  while (!existsSync(there) && dirname(there) !== there) there = dirname(there);
  if (statSync(there, { throwIfNoEntry: false })?.isDirectory() !== false) return;
  const fault = `must be a folder, and ${there} is none; got ${quoteValue(workspaceRoot)}`;
  throw new PawlError('CONFIGURATION', `PAWL_WORKSPACE_ROOT (workspaceRoot): ${fault}.`);
}

/** The environment of the programs that this process starts for itself and for tools. */
function environmentOfPrograms({ workspaceRoot }: Settings): NodeJS.ProcessEnv {
  const environment = { ...process.env };
  removeWorkspaceFolders(environment, process.cwd(), workspaceRoot);
  return environment;
}

/** The environment, with what files hold whose names stand in `REDIS_URL_FILE` and its like. */
function withSecretFiles(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const read = { ...environment };
  for (const name of SECRET_VARIABLES) {
    const file = variableText(environment, `${name}_FILE`);
    if (file === undefined || variableText(environment, name) !== undefined) continue;
    try {
      read[name] = readFileSync(file, 'utf8').trim();
    } catch (error) {
      const message = `${name}_FILE: ${JSON.stringify(file)} cannot be read: ${reasonOf(error)}`;
      throw new PawlError('CONFIGURATION', message, { cause: error });
    }
    // An empty value would mean no key, no token, or another Redis: less than what was asked for.
    if (read[name] === '')
      throw new PawlError('CONFIGURATION', `${name}_FILE: ${JSON.stringify(file)} is empty; it should hold the value.`);
  }
  return read;
}

/** File names that people try, and that would be ignored silently. */
const UNREADABLE = ['yaml', 'yml', 'toml', 'jsonc', 'json5'].map((extension) => `pawl.config.${extension}`);

async function configFile(folder: string): Promise<unknown> {
  const json = join(folder, CONFIG_JSON);
  if (isThere(json)) {
    try {
      // Some editors put a byte order mark in front.
      return JSON.parse(readFileSync(json, 'utf8').replace(/^\uFEFF/, ''));
    } catch (error) {
      throw new PawlError('CONFIGURATION', `${json} is not JSON: ${reasonOf(error)}`);
    }
  }
  for (const name of CONFIG_MODULES) {
    const file = join(folder, name);
    if (isThere(file)) return configModule(file, folder);
  }
  const unread = UNREADABLE.map((name) => join(folder, name)).find(isThere);
  if (unread !== undefined)
    throw new PawlError(
      'CONFIGURATION',
      `${unread} is not read: write ${[CONFIG_JSON, ...CONFIG_MODULES].join(' or ')}.`,
    );
  return undefined;
}

/**
 * While a program runs in the sandbox, an empty folder stands where it could make a configuration. What else cannot be read is refused:
 * without its configuration, a process would ask for no token.
 */
function isThere(file: string): boolean {
  const stats = statSync(file, { throwIfNoEntry: false });
  if (stats?.isDirectory() || lstatSync(file, { throwIfNoEntry: false }) === undefined) return false;
  if (stats?.isFile()) return true;
  const kind = stats === undefined ? 'is a symbolic link to a file that does not exist' : 'is no regular file';
  throw new PawlError('CONFIGURATION', `${file} cannot be used: it ${kind}.`);
}

async function configModule(path: string, cwd: string): Promise<unknown> {
  const { importUserFile, moduleFault } = await import('./import-user-file.ts');
  let settings: unknown;
  try {
    settings = await (await importUserFile(path))['default'];
    // The copy reads what getters return, within the explanation of what they throw.
    if (isObject(settings)) settings = { ...settings };
  } catch (error) {
    const loaded = [pathToFileURL(path).href];
    const message = await moduleFault(error, path, { path, file: basename(path), cwd, loaded });
    throw new PawlError('CONFIGURATION', message, { cause: error });
  }
  // Node takes a file without a word of modules for CommonJS, where an empty object is exported.
  if (settings === undefined || !/\bexports?\b/.test(readFileSync(path, 'utf8')))
    throw new PawlError('CONFIGURATION', `${path} has no default export: write export default { … }.`);
  return settings;
}

type Pino = typeof import('pino').pino;

/** Pino is loaded with the first line: a program may bring its own logger, and most processes log nothing when they start. */
const require = createRequire(import.meta.url);

/** The levels that Pawl logs at, from the lowest. */
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
/** From the lowest, as pino has them. */
const ALL_LEVELS: readonly Settings['logLevel'][] = ['trace', ...LEVELS, 'fatal', 'silent'];

/**
 * A logger that writes lines without secrets to standard error, so that standard output stays free for results: JSON, and for people
 * where standard error is a terminal.
 */
export function createLogger(settings: Pick<Settings, 'logLevel'> & Partial<Settings>): Logger {
  let opened: Logger | undefined;
  const open = () => {
    opened ??= openLogger(settings);
    return opened;
  };
  const lowest = ALL_LEVELS.indexOf(settings.logLevel);
  const methods = LEVELS.map((level) => {
    const isLogged = ALL_LEVELS.indexOf(level) >= lowest;
    return [level, isLogged ? (fields: object, message: string) => open()[level](fields, message) : () => {}] as const;
  });
  return Object.fromEntries(methods) as unknown as Logger;
}

function openLogger(settings: Pick<Settings, 'logLevel'> & Partial<Settings>): Logger {
  const known = secretsOf(settings, process.env);
  const { pino } = require('pino') as typeof import('pino');
  const show = isatty(2) ? readableLogLine : escapeJson;
  return pino(
    {
      level: settings.logLevel,
      base: { pid: process.pid },
      hooks: { streamWrite: (line) => show(redactLine(line, known)) },
    },
    standardError(pino),
  );
}

/** Lines that cannot be written wait for a full disk to have room again, up to so many bytes; later ones are dropped. */
const MAX_WAITING_BYTES = 16 * 1_024 * 1_024;

/** A log that cannot be written (a full disk, a closed terminal) stops no work. */
function standardError(pino: Pino): ReturnType<Pino['destination']> {
  const destination = pino.destination({ dest: 2, sync: false, maxLength: MAX_WAITING_BYTES });
  let fails = false;
  // Without a listener the error would end the process.
  destination.on('error', () => {
    fails = true;
  });
  destination.on('write', () => {
    fails = false;
  });
  // Called when the process ends: sonic-boom tries until it succeeds, and the process would never be gone.
  const { flush, flushSync } = destination;
  destination.flush = (done) => (fails ? done?.() : flush.call(destination, done));
  destination.flushSync = () => (fails ? undefined : flushSync.call(destination));
  return destination;
}

export interface ConnectOptions
  extends Partial<SettingsInput>,
    Pick<PawlOptions, 'hooks' | 'toolsets' | 'onEvent' | 'operator' | 'schedules'> {
  readonly log?: Logger;
}

/** A producer: `REDIS_URL`, or the embedded Redis that processes with the same data folder share. */
export async function connect(given: ConnectOptions = {}): Promise<Pawl> {
  checkOptions('connect', given);
  const { log, hooks, toolsets, onEvent, operator, schedules, ...options } = given;
  const [{ Pawl }, { settings, ownLogLevel }] = await Promise.all([
    import('./producer/client.ts'),
    readSettings(options),
  ]);
  const tracing = await openTracing(process.env, settings.otlpEndpoint, PAWL_VERSION, async (tracer) => {
    const { CallTraces } = await import('./producer/calls/traces.ts');
    return new CallTraces(tracer);
  });
  return Pawl.open({
    settings,
    ...(tracing !== undefined && { tracing }),
    log: log === undefined ? createLogger({ ...settings, logLevel: ownLogLevel }) : guardedLogger(log),
    environment: environmentOfPrograms(settings),
    defaultWorkspaceRoot: process.cwd(),
    ...defined({ hooks, toolsets, onEvent, operator, schedules }),
  });
}

export interface StartWorkerOptions extends Partial<Omit<SettingsInput, 'tools'>> {
  /** Tools, and toolsets, which are resolved once, now. */
  readonly tools: readonly (AnyTool | Toolset<AnyTool>)[];
  /** The `tools` part of a configuration: limits, retries, circuits and the rest, by the name of a tool. */
  readonly toolSettings?: SettingsInput['tools'];
  /** Default: the tiers of the tools. */
  readonly tiers?: readonly Tier[];
  readonly concurrency?: number;
  readonly log?: Logger;
  /** Hooks of the kinds beforeAttempt, afterAttempt and onRetry. */
  readonly hooks?: readonly Hook[];
  /** Receives the events of the attempts in this process. */
  readonly onEvent?: (event: WorkerEvent) => void;
  /** An operator asks this worker to finish what it runs, and end. Default: it closes itself. */
  readonly onDrainAsked?: () => void;
}

/** A worker in this process. Does not end the process: call `close()` to drain it. Throws `CONFIGURATION` for what cannot be run. */
export async function startWorker(given: StartWorkerOptions): Promise<ToolWorker> {
  const fault = faultOf(given);
  if (fault !== undefined) throw new PawlError('CONFIGURATION', fault);
  checkOptions('startWorker', given);
  const { tools: entries, toolSettings, tiers, concurrency, log, hooks, onEvent, onDrainAsked, ...options } = given;
  const sets = entries.filter((entry) => !isTool(entry)) as readonly Toolset<AnyTool>[];
  const tools = [...entries.filter(isTool), ...(await resolveToolsets(sets, { published: [] }))];
  const { settings, ownLogLevel } = await readSettings({
    ...options,
    ...(toolSettings !== undefined && { tools: toolSettings }),
  });
  const served = tiers ?? TIERS.filter((tier) => tools.some((tool) => tool.tier === tier));
  if (served.length === 0) throw new PawlError('CONFIGURATION', 'A worker needs at least one tool or tier.');
  const tracing = await openTracing(process.env, settings.otlpEndpoint, PAWL_VERSION, async (tracer) => {
    const { AttemptTraces } = await import('./workers/attempt/traces.ts');
    return new AttemptTraces(tracer);
  });
  const [{ ToolWorker }, { openMemory }, { protectProcess }, { shareCode }] = await Promise.all([
    import('./workers/worker.ts'),
    import('./workers/context/memory.ts'),
    import('./trust-boundary.ts'),
    import('./workers/workspace/protected-paths.ts'),
  ]);
  boundYoungGeneration(process.env);
  protectProcess(settings, process.cwd(), process.env);
  shareCode(settings.dataDir);
  return ToolWorker.start({
    settings,
    ...(tracing !== undefined && { tracing }),
    tools,
    tiers: served,
    concurrency: concurrency ?? DEFAULT_CONCURRENCY,
    log: log === undefined ? createLogger({ ...settings, logLevel: ownLogLevel }) : guardedLogger(log),
    environment: environmentOfPrograms(settings),
    memory: openMemory(settings),
    ...defined({ hooks, onEvent, onDrainAsked }),
  });
}

/** The options of these functions that are no settings. */
const OPTIONS: Readonly<Record<'connect' | 'startWorker', readonly string[]>> = {
  connect: ['log', 'hooks', 'toolsets', 'onEvent', 'operator', 'schedules'],
  startWorker: ['tools', 'toolSettings', 'tiers', 'concurrency', 'log', 'hooks', 'onEvent', 'onDrainAsked'],
};

const isFunction = (value: unknown): boolean => typeof value === 'function';

/** The forms of options. Without a check, some would have no effect, and others fail at the first call. */
const FORMS: Readonly<Record<string, { readonly fits: (value: unknown) => boolean; readonly form: string }>> = {
  onEvent: { fits: isFunction, form: 'a function' },
  onDrainAsked: { fits: isFunction, form: 'a function' },
  operator: { fits: (value) => typeof value === 'string' && value !== '', form: 'a text that is not empty' },
  schedules: { fits: (value) => typeof value === 'boolean', form: 'true or false' },
  toolSettings: { fits: isObject, form: 'an object with settings by the names of tools' },
  toolsets: {
    fits: (value) => Array.isArray(value) && value.every((set) => typeof set?.tools === 'function'),
    form: 'a list of what toolset() returns',
  },
};

/** Callers without types may give anything. Throws `CONFIGURATION`. */
function checkOptions(
  name: keyof typeof OPTIONS,
  given: { readonly log?: Logger; readonly hooks?: readonly Hook[] } | null,
): void {
  if (typeof given !== 'object' || given === null)
    throw new PawlError(
      'CONFIGURATION',
      `${name} takes an object of settings, such as { redisUrl: 'redis://localhost:6379' }; got ${given === null ? 'null' : `a ${typeof given}`}.`,
    );
  const unknown = Object.keys(given).find(
    (option) => !OPTIONS[name].includes(option) && !Object.hasOwn(settingsSchema.shape, option),
  );
  const hint = unknown === undefined ? '' : didYouMean(unknown, OPTIONS[name]);
  if (hint !== '') throw new PawlError('CONFIGURATION', `${name} has no option ${unknown}; ${hint}`);
  for (const [option, value] of Object.entries(given)) {
    const { fits, form } = (OPTIONS[name].includes(option) && FORMS[option]) || {};
    if (value !== undefined && fits?.(value) === false)
      throw new PawlError('CONFIGURATION', `\`${option}\` must be ${form}; got ${quoteValue(value)}.`);
  }
  const { log, hooks = [] } = given;
  checkHooks(hooks);
  if (log !== undefined && LEVELS.some((level) => typeof log?.[level] !== 'function'))
    throw new PawlError(
      'CONFIGURATION',
      '`log` must have the methods debug, info, warn and error, as a logger of pino has.',
    );
}

/** The reason why no worker can run with these options, which callers without types may pass. */
function faultOf(given: Partial<StartWorkerOptions> | undefined): string | undefined {
  const { tools, tiers = [], concurrency = DEFAULT_CONCURRENCY } = given ?? {};
  if (!Array.isArray(tools))
    return 'startWorker needs `tools`: a list of what defineTool returns, and of toolsets of such tools.';
  if (!tools.every((entry) => isTool(entry) || typeof entry?.tools === 'function'))
    return 'Every entry of `tools` must come from defineTool, or be a toolset of such tools.';
  if (!Number.isSafeInteger(concurrency) || concurrency < 1 || concurrency > MAX_CONCURRENCY)
    return `\`concurrency\` must be a whole number from 1 to ${MAX_CONCURRENCY}; got ${quoteValue(concurrency)}.`;
  if (!Array.isArray(tiers)) return `\`tiers\` must be a list of tiers; got ${quoteValue(tiers)}.`;
  const unknown = tiers.find((tier) => !TIERS.includes(tier));
  return unknown === undefined ? undefined : `There is no tier ${quoteValue(unknown)}; tiers are ${TIERS.join(', ')}.`;
}
