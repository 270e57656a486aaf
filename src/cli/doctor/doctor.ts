/** `pawl doctor`: checks whether Pawl can work here, and explains how to fix each problem. */
import { randomUUID } from 'node:crypto';
import { access, constants, mkdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { loadSettings } from '../../main.ts';
import { checkBinding } from '../../producer/http/core/access.ts';
import type { Settings } from '../../shared/config/config.ts';
import {
  asksFor,
  hasWaitaof,
  PERSISTENCE_FIXES,
  PROMISES,
  persistenceText,
  type ServerFacts,
  type ServerFault,
  serverFaults,
  WAITAOF_PROMISE,
} from '../../shared/config/durability.ts';
import { type Environment, SECRET_VARIABLES, VARIABLES } from '../../shared/config/variables.ts';
import { PawlError, reasonOf } from '../../shared/errors/failure.ts';
import type { SandboxPolicy } from '../../shared/policy/sandbox-policy.ts';
import { inspectServer } from '../../shared/store/inspect-server.ts';
import { connectVerified, isClustered, type Redis, serversOf } from '../../shared/store/redis/connection.ts';
import { DataFolderInUseError } from '../../shared/store/redis/embedded/data-folder.ts';
import { type EmbeddedRedis, startEmbeddedRedis } from '../../shared/store/redis/embedded-redis.ts';
import { FleetKeys } from '../../shared/store/redis/keys.ts';
import { NoRedisServerError } from '../../shared/store/redis/redis-binary.ts';
import { checkRights, startError } from '../../shared/store/redis/start-check.ts';
import { didYouMean } from '../../shared/util/text/nearest.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { escapeLine, escapeLines } from '../../shared/util/text/visible-text.ts';
import { sandboxFault } from '../../workers/context/processes.ts';
import { baseTools } from '../../workers/tools/index.ts';
import { type CliContext, print, withoutPassword } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { prettyJson } from '../print.ts';
import { checkFleet } from './doctor-fleet.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import { checkPackages } from './optional-packages.ts';

const CONNECT_TIMEOUT_MS = 3_000;
const REQUEST_TIMEOUT_MS = 1_000;
/** More than the smallest block of a disk. */
const TRIAL_BYTES = 16_384;
const MIN_NODE = [22, 22] as const;
const MARKS: Readonly<Record<Finding['state'], string>> = { ok: 'ok  ', warn: 'note', fail: 'FAIL' };

export async function runDoctor(context: CliContext): Promise<number> {
  const findings: Finding[] = [];
  const add = (...newFindings: readonly Finding[]) => {
    findings.push(...newFindings);
    if (!context.json) for (const finding of newFindings) print(context, lineOf(finding));
  };
  add(checkNode(process.versions.node));
  const settings = await checkConfiguration(add);
  add(...checkVariables(context.environment));
  let outOfReach = false;
  if (settings !== undefined) {
    const dataFolder = await checkDataDir(settings, context.cwd);
    add(dataFolder);
    // The embedded Redis has its files there, and would fail for the same reason.
    if (dataFolder.state !== 'fail' || settings.redisUrl !== undefined)
      outOfReach = await checkRedis(context, settings, add);
    add(bindingFault(settings) ?? (await checkPort(HTTP_PORT, settings.httpHost, settings.httpPort)));
    const { metricsHost, metricsPort } = settings;
    if (metricsPort !== undefined) add(await checkPort(METRICS_PORT, metricsHost, metricsPort));
  }
  add(await checkSandbox(settings?.sandbox ?? 'preferred'), checkPackages(settings));
  const failed = findings.filter(({ state }) => state === 'fail');
  if (context.json) print(context, prettyJson({ usable: failed.length === 0, checks: findings }));
  else print(context, failed.length === 0 ? '\nPawl can work here.' : `\n${plural(failed.length, 'thing')} to mend.`);
  if (failed.length === 0) return EXIT_CODES.success.code;
  return outOfReach ? EXIT_CODES.redisOutOfReach.code : EXIT_CODES.usage.code;
}

function lineOf({ check, state, message, fix }: Finding): string {
  const fixes = fix?.split('\n').map((each) => `${''.padEnd(20)}→ ${escapeLine(each)}`) ?? [];
  return [`${MARKS[state]}  ${check.padEnd(13)} ${escapeLines(message)}`, ...fixes].join('\n');
}

export function checkNode(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const check = 'node';
  if (major > MIN_NODE[0] || (major === MIN_NODE[0] && minor >= MIN_NODE[1]))
    return ok(check, `Node ${version} (${process.execPath})`);
  const message = `Node ${version} is too old: Pawl needs ${MIN_NODE.join('.')} or later`;
  return fail(check, message, 'install a newer Node: https://nodejs.org');
}

async function checkConfiguration(add: (finding: Finding) => void): Promise<Settings | undefined> {
  const check = 'configuration';
  try {
    const settings = await loadSettings();
    add(ok(check, `keys begin with ${settings.prefix}:, data in ${settings.dataDir}`));
    if (!settings.reliability.enabled)
      add(
        warn(
          check,
          'TOOL_RELIABILITY_ENABLED is false: no deduplication, no retries, no circuits',
          'unset TOOL_RELIABILITY_ENABLED',
        ),
      );
    return settings;
  } catch (error) {
    add(fail(check, reasonOf(error), 'correct the variable or the entry of pawl.config that is named above'));
    return undefined;
  }
}

/** A misspelt variable has no effect, and other programs' variables are not Pawl's to refuse. */
function checkVariables(environment: Environment): readonly Finding[] {
  const known = [...VARIABLES.map(({ name }) => name), ...SECRET_VARIABLES.map((name) => `${name}_FILE`)];
  const isUnknown = (name: string) => /^(?:PAWL|TOOL_RELIAB)/i.test(name) && !known.includes(name);
  return Object.keys(environment)
    .filter(isUnknown)
    .map((name) => ({ name, hint: didYouMean(name, known) }))
    .filter(({ hint }) => hint !== '')
    .map(({ name, hint }) => warn('configuration', `${name} is set, and Pawl reads no variable of this name`, hint));
}

async function checkDataDir({ dataDir, redisUrl }: Settings, cwd: string): Promise<Finding> {
  const check = 'data folder';
  const path = resolve(cwd, dataDir);
  try {
    await mkdir(path, { recursive: true });
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK);
    await tryToWrite(path);
    // Without a Redis in it there are still the audit trail's files, the notes of used approvals, and memory.
    return ok(check, redisUrl === undefined ? path : `${path} (Redis is elsewhere: REDIS_URL)`);
  } catch (error) {
    const message = `${path} cannot be written to: ${reasonOf(error)}`;
    const isFull = /^(?:ENOSPC|EDQUOT)$/.test((error as NodeJS.ErrnoException).code ?? '');
    return fail(
      check,
      message,
      `${isFull ? 'make room on its disk, or ' : ''}set PAWL_DATA_DIR to a folder of your own`,
    );
  }
}

/** On a full disk the folder has its rights, and new files stay empty. */
async function tryToWrite(folder: string): Promise<void> {
  const trial = join(folder, `trial-${randomUUID()}`);
  try {
    await writeFile(trial, 'x'.repeat(TRIAL_BYTES));
  } finally {
    await rm(trial, { force: true });
  }
}

/** Checks Redis. True when it is out of reach; a wrong address or an unsuitable server counts as wrong configuration. */
async function checkRedis(
  context: CliContext,
  settings: Settings,
  add: (...findings: readonly Finding[]) => void,
): Promise<boolean> {
  const check = 'redis';
  let embedded: EmbeddedRedis | undefined;
  let redis: Redis | undefined;
  const lines: string[] = [];
  try {
    if (settings.redisUrl === undefined)
      embedded = await startEmbeddedRedis({
        dataDir: resolve(context.cwd, settings.dataDir),
        log: (line) => lines.push(line),
      });
    const url = settings.redisUrl ?? embedded?.url ?? '';
    ({ redis } = await connectVerified(
      { url, name: `${settings.prefix}:doctor`, mode: 'fail-fast' },
      CONNECT_TIMEOUT_MS,
    ));
    const server = await inspectServer(redis, settings.prefix);
    await checkRights(redis, settings.prefix, {
      blocks: true,
      waits: asksFor('waitaof', settings) && hasWaitaof(server),
    });
    const source =
      embedded === undefined ? `REDIS_URL=${withoutPassword(url)}` : `embedded, ${lines[0] ?? 'running already'}`;
    const nodes = isClustered(redis) ? `, a cluster with ${plural(serversOf(redis).length, 'master')}` : '';
    add(ok(check, `version ${server.version} (${source}${nodes})`));
    const faults = serverFaults(server, baseTools, settings);
    add(evictionFinding(server, faults), persistenceFinding(server, faults, settings));
    add(...(await checkFleet(redis, settings)));
    // A reachable Redis may still refuse writes, when its memory or disk is full or its replicas are gone.
    await redis.set(new FleetKeys(settings.prefix).trial, '1', 'PX', 1_000);
    return false;
  } catch (error) {
    const translated = startError(error, settings.prefix);
    const message = reasonOf(translated);
    const url = settings.redisUrl;
    add({
      check,
      state: 'fail',
      message: url === undefined ? message : `${message} (REDIS_URL=${withoutPassword(url)})`,
      fix:
        url !== undefined
          ? fixOf(message, settings.prefix)
          : error instanceof NoRedisServerError
            ? 'install redis-server, or set REDIS_URL to a Redis 6.2 or later'
            : error instanceof DataFolderInUseError
              ? 'run this where the first one runs, or set PAWL_DATA_DIR to another folder'
              : `look into ${join(resolve(context.cwd, settings.dataDir), 'redis', 'redis.log')}: is the disk full, or a file damaged?`,
    });
    return !(error instanceof PawlError && error.code === 'CONFIGURATION');
  } finally {
    redis?.disconnect();
    await embedded?.stop();
  }
}

/** A server with too many clients closes the connection, and its error message may get lost. */
const CLOSED_CONNECTION_FIX =
  'if that Redis has as many clients as maxclients allows, raise it; if it speaks TLS alone, use rediss://';

/** The fix for an error message of Redis, or about it. */
function fixOf(message: string, prefix: string): string {
  const fixes = {
    'is too old': 'use a newer Redis, or unset REDIS_URL to use the embedded one',
    NOPERM: `give that user what it needs: ACL SETUSER NAME ~${prefix}:* &${prefix}:* +@all`,
    OOM: 'raise maxmemory, or shorten ttl in pawl.config.json',
    MISCONF: 'make room on the disk of Redis, and look into its log',
    READONLY: 'let REDIS_URL name the master',
    maxclients: CLOSED_CONNECTION_FIX,
    'protected mode': 'set requirepass in that Redis, and name the password in REDIS_URL: redis://:password@host:6379',
    'closes each connection': CLOSED_CONNECTION_FIX,
    ECONNRESET: CLOSED_CONNECTION_FIX,
    EPIPE: CLOSED_CONNECTION_FIX,
    NOAUTH: 'name the user and the password in REDIS_URL: redis://user:password@host:6379',
    WRONGPASS: 'correct the user and the password in REDIS_URL',
    NOREPLICAS: 'start the replicas of that Redis, or lower min-replicas-to-write',
  };
  const matchingFix = Object.entries(fixes).find(([word]) => message.includes(word));
  return matchingFix?.[1] ?? 'start that Redis, correct REDIS_URL, or unset it to use the embedded one';
}

function evictionFinding(server: ServerFacts, faults: readonly ServerFault[]): Finding {
  const check = 'eviction';
  const fault = faults.find(({ setting }) => setting === 'maxmemory-policy');
  if (fault !== undefined) return fail(check, fault.message, fault.fix);
  if (server.evictionPolicy !== undefined) return ok(check, 'Redis evicts no records (noeviction)');
  return {
    check,
    state: 'warn',
    message:
      'Redis does not say whether it evicts records when its memory is full: calls could be forgotten and run twice',
    fix: 'set maxmemory-policy to noeviction',
  };
}

function persistenceFinding(
  { persistence }: ServerFacts,
  faults: readonly ServerFault[],
  { durability }: Settings,
): Finding {
  const check = 'persistence';
  const fault = faults.find(({ setting }) => setting !== 'maxmemory-policy');
  if (fault !== undefined) return fail(check, fault.message, fault.fix);
  const message = `${persistenceText(persistence)}: ${PROMISES[persistence]}${durability === 'waitaof' ? ` ${WAITAOF_PROMISE}` : ''}`;
  if (persistence === 'always' || persistence === 'everysec') return ok(check, message);
  return warn(check, message, PERSISTENCE_FIXES[persistence] ?? 'CONFIG SET appendfsync everysec, or always');
}

/** The reason for which `pawl serve` and `pawl up` would refuse to start, if any. */
function bindingFault(settings: Settings): Finding | undefined {
  try {
    checkBinding(settings.httpHost, settings);
    return undefined;
  } catch (error) {
    const message = reasonOf(error);
    return fail('port', message, 'set PAWL_API_TOKENS, or unset PAWL_HTTP_HOST and PAWL_SANDBOX_NETWORK');
  }
}

/** A port of the settings, and a page that shows whether a Pawl holds it. */
interface PortCheck {
  readonly check: string;
  readonly page: string;
  readonly own: RegExp;
  readonly fix: string;
}

const HTTP_PORT: PortCheck = {
  check: 'port',
  page: 'openapi.json',
  own: /"title":\s*"Pawl|"UNAUTHENTICATED"/i,
  fix: 'choose another with --port or PAWL_HTTP_PORT (or PAWL_HTTP_HOST)',
};
const METRICS_PORT: PortCheck = {
  check: 'metrics port',
  page: 'readyz',
  own: /^\{"status":"(?:not )?ready"/,
  fix: 'choose another with PAWL_METRICS_PORT (or PAWL_METRICS_HOST); 0 takes any free port',
};

/** Checks that the port is free, or that a running Pawl holds it. */
async function checkPort({ check, fix, ...own }: PortCheck, host: string, port: number): Promise<Finding> {
  if (port === 0) return ok(check, 'any free port will be taken');
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  const refusal = await new Promise<NodeJS.ErrnoException | undefined>((done) => {
    const server = createServer();
    server.once('error', done);
    server.listen({ host, port, exclusive: true }, () => server.close(() => done(undefined)));
  });
  if (refusal === undefined) return ok(check, `${address} is free`);
  if (refusal.code === 'EADDRINUSE' && (await isPawl(address, own)))
    return ok(check, `${address} is in use by a Pawl that runs already`);
  const message =
    refusal.code === 'EADDRINUSE'
      ? `${address} is in use by another program`
      : `${address} cannot be used: ${refusal.message}`;
  return fail(check, message, fix);
}

async function isPawl(address: string, { page, own }: Pick<PortCheck, 'page' | 'own'>): Promise<boolean> {
  try {
    const answer = await fetch(`http://${address}/${page}`, { signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
    return own.test(await answer.text());
  } catch {
    return false;
  }
}

const WITHOUT_SANDBOX: Readonly<Record<SandboxPolicy, string>> = {
  required: 'a worker here fails each call that runs a program (PAWL_SANDBOX=required)',
  preferred: 'in a worker here, each call that runs a program waits for a person',
  off: 'programs run without a sandbox here (PAWL_SANDBOX=off)',
};

async function checkSandbox(policy: SandboxPolicy): Promise<Finding> {
  const check = 'sandbox';
  if (policy === 'off') return warn(check, WITHOUT_SANDBOX.off, 'unset PAWL_SANDBOX where a sandbox works');
  const fault = await sandboxFault();
  if (fault === undefined) return ok(check, 'programs run in bubblewrap');
  return warn(
    check,
    `${WITHOUT_SANDBOX[policy]}. ${fault}`,
    'install bubblewrap, and allow user namespaces to this user; or set PAWL_SANDBOX=off to run programs without one. If your workers run elsewhere, run pawl doctor there',
  );
}
