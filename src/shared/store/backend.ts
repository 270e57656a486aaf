/**
 * One process's way to Redis: the connection, checked, and the records on it. Starts the embedded server when none is configured.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, linkSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AuditType, RecordAudit } from '../audit/audit-event.ts';
import type { Settings } from '../config/config.ts';
import {
  evicts,
  isAtLeast,
  type Persistence,
  PROMISES,
  type ServerFacts,
  WAITAOF_PROMISE,
  weakerOf,
} from '../config/durability.ts';
import { PawlError } from '../errors/failure.ts';
import { secretsOf } from '../errors/redaction.ts';
import { Signer, type SigningKey, UNSIGNED } from '../signing/signature.ts';
import { Signatures } from '../signing/signatures.ts';
import { EMBEDDED_REDIS_STEP } from '../telemetry/log.ts';
import { TIERS, type Tier } from '../tools/tool.ts';
import { FollowedClock } from '../util/time.ts';
import { Approvals } from './approvals/approvals.ts';
import { Questions } from './approvals/questions.ts';
import { StandingApprovals } from './approvals/standing-approvals.ts';
import { AuditTrail } from './audit/audit-trail.ts';
import { AuditWriter } from './audit/audit-writer.ts';
import { longestKeptMs } from './calls/call-index.ts';
import { Ledger } from './calls/ledger.ts';
import { RepeatedCalls } from './calls/repeated-calls.ts';
import { Breakers } from './circuits/circuits.ts';
import { SwitchRecords } from './config/switches.ts';
import { ClientCalls } from './connectors/client-calls.ts';
import { DeclaredToolRecords } from './connectors/declared-tools.ts';
import { JobDispatch } from './dispatch/fetch-jobs.ts';
import { Catalogue } from './fleet/catalogue.ts';
import { TerminalOwners } from './fleet/terminal-owners.ts';
import { WorkerMailbox } from './fleet/worker-mailbox.ts';
import { Limits } from './limits/concurrency-limits.ts';
import { ResourceLocks } from './limits/resource-locks.ts';
import { Shards } from './queues/shards.ts';
import { closeConnection, isClustered, type Redis, reach, serversOf } from './redis/connection.ts';
import { type EmbeddedRedis, startEmbeddedRedis } from './redis/embedded-redis.ts';
import { checkRights, startError } from './redis/start-check.ts';
import { Tasks } from './sessions/mcp-tasks.ts';
import { Messages } from './sessions/messages.ts';
import { Sessions } from './sessions/sessions.ts';
import { SkillRecords } from './sessions/skills.ts';
import { Agents } from './sessions/sub-agents.ts';
import { refusedEvent } from './signing/refused-records.ts';

/** A producer's user waits for it; a worker may be started together with its Redis. */
const READY_TIMEOUT_MS = { 'fail-fast': 3_000, patient: 15_000 } as const;
const OLDEST_VERSION = [6, 2] as const;

export interface Backend {
  readonly url: string;
  readonly prefix: string;
  readonly redis: Redis;
  /** Redis is a cluster: a step touches the keys of one hash tag, and what is published counts only who listens at that node. */
  readonly clustered: boolean;
  readonly ledger: Ledger;
  readonly dispatch: JobDispatch;
  readonly breakers: Breakers;
  readonly limits: Limits;
  readonly sessions: Sessions;
  /** Where calls are. */
  readonly shards: Shards;
  readonly approvals: Approvals;
  readonly standingApprovals: StandingApprovals;
  readonly agents: Agents;
  readonly repeatedCalls: RepeatedCalls;
  readonly messages: Messages;
  readonly questions: Questions;
  readonly signatures: Signatures;
  readonly audit: RecordAudit;
  readonly records: AuditWriter;
  readonly trail: AuditTrail;
  readonly catalogue: Catalogue;
  /** Tools that are declared while the system runs. */
  readonly specs: DeclaredToolRecords;
  readonly skills: SkillRecords;
  /** Calls that outside clients run. */
  readonly clientCalls: ClientCalls;
  readonly switches: SwitchRecords;
  /** Redis' clock, for every time that another process will compare. */
  readonly clock: FollowedClock;
  readonly server: ServerFacts;
  readonly tasks: Tasks;
  readonly terminals: TerminalOwners;
  /** The mail of one worker; nothing is opened before it is read. */
  mailboxOf(workerId: string): WorkerMailbox;
  readonly locks: ResourceLocks;
  close(): Promise<void>;
}

export interface BackendOptions {
  readonly settings: Settings;
  /** Shown by CLIENT LIST. */
  readonly name: string;
  readonly mode: 'fail-fast' | 'patient';
  readonly log: (level: 'info' | 'warn', message: string, fields?: Record<string, unknown>) => void;
  /** Beside the log. */
  readonly audit?: RecordAudit;
  /** Of a worker: it reads published tools of these alone. Default: all. */
  readonly tiers?: readonly Tier[];
}

/** Connects and checks the server. Throws `BACKEND_UNAVAILABLE` or, for a server that cannot be used at all, `CONFIGURATION`. */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  const { settings, tiers } = options;
  let embedded: EmbeddedRedis | undefined;
  if (settings.redisUrl === undefined) embedded = await startEmbedded(options);
  const { url, redis } = await reach(
    {
      url: settings.redisUrl ?? embedded?.url ?? '',
      name: `${settings.prefix}:${options.name}`,
      mode: options.mode,
    },
    READY_TIMEOUT_MS[options.mode],
  ).catch(async (error: unknown) => {
    await embedded?.stop();
    throw startError(error, settings.prefix);
  });
  const following = new ClockFollower(redis);
  try {
    // The embedded server is ours to configure.
    if (embedded !== undefined && asksForAlways(settings)) await redis.config('SET', 'appendfsync', 'always');
    const [server] = await Promise.all([inspectServer(redis), following.read()]);
    await checkRights(redis, settings.prefix, options.mode === 'patient');
    report(server, options);
    const writer = new AuditWriter({
      redis,
      prefix: settings.prefix,
      clock: following.clock,
      reads: settings.audit.reads,
      secrets: secretsOf(settings, {}),
      onLost: (records) =>
        options.log('warn', 'records of the audit trail were lost while Redis was away', { records }),
    });
    const audit = auditOf(options, writer);
    const signatures = new Signatures(
      signerOf(options, embedded !== undefined),
      (refused) => void audit(refusedEvent(refused)),
      workerSignersOf(settings),
    );
    const shards = await knownShards(redis, settings);
    const ledger = new Ledger(redis, settings.prefix, longestKeptMs(settings), signatures, writer);
    return {
      url,
      prefix: settings.prefix,
      redis,
      clustered: isClustered(redis),
      ledger,
      dispatch: new JobDispatch(ledger.access),
      breakers: new Breakers(redis, settings.prefix, shards),
      limits: new Limits(redis, settings.prefix),
      sessions: new Sessions(redis, settings.prefix, signatures, shards),
      shards,
      approvals: new Approvals(redis, ledger, signatures, settings),
      standingApprovals: new StandingApprovals(redis, settings.prefix, signatures),
      repeatedCalls: new RepeatedCalls(redis, settings.prefix, settings.ttl.doneMs),
      agents: new Agents(redis, settings.prefix, signatures),
      messages: new Messages(redis, settings.prefix),
      questions: new Questions(redis, settings.prefix, signatures),
      signatures,
      audit,
      records: writer,
      trail: new AuditTrail(redis, settings.prefix, writer),
      catalogue: new Catalogue(redis, settings.prefix, { signatures, ...(tiers === undefined ? {} : { tiers }) }),
      specs: new DeclaredToolRecords(redis, settings.prefix, signatures),
      skills: new SkillRecords(redis, settings.prefix, signatures),
      clientCalls: new ClientCalls(redis, settings.prefix, signatures),
      switches: new SwitchRecords(redis, settings.prefix),
      clock: following.clock,
      server,
      tasks: new Tasks(redis, settings.prefix, settings.ttl.doneMs, signatures),
      terminals: new TerminalOwners(redis, settings.prefix, signatures),
      mailboxOf: (workerId) => new WorkerMailbox({ redis, url, prefix: settings.prefix, signatures, workerId }),
      locks: new ResourceLocks(redis, settings.prefix, settings.lockDurationMs),
      close: async () => {
        await writer.close();
        following.close();
        closeConnection(redis);
        await embedded?.stop();
      },
    };
  } catch (error) {
    following.close();
    closeConnection(redis);
    await embedded?.stop();
    throw startError(error, settings.prefix);
  }
}

/** What is configured holds for a tier of which nobody has said anything else. */
async function knownShards(redis: Redis, { prefix, shards: configured }: Settings): Promise<Shards> {
  const shards = new Shards(redis, prefix);
  await shards.learn();
  for (const tier of TIERS) {
    const count = configured[tier];
    if (count !== undefined && !shards.layout[tier].isSet) await shards.set(tier, count, true);
  }
  return shards;
}

function asksForAlways({ durability, tools }: Settings): boolean {
  return [durability, ...Object.values(tools).map((policy) => policy.durability)].includes('always');
}

/** Until a clock that was set, or a machine that slept, is noticed, time limits and leases of calls are taken for over. */
const READ_CLOCK_MS = 2_000;
/** Two clocks that nobody sets drift apart by less than this between two readings. */
const DRIFT_MS = 200;

/**
 * Keeps a clock in step with that of the server. After a reconnect it may be another server's; it may be set, and this machine may sleep,
 * which no monotonic clock counts.
 */
export class ClockFollower {
  readonly clock: FollowedClock;
  readonly #redis: Pick<Redis, 'time' | 'status' | 'on'>;
  readonly #timer: NodeJS.Timeout;
  #reading = false;

  constructor(redis: Pick<Redis, 'time' | 'status' | 'on'>, clock = new FollowedClock()) {
    this.#redis = redis;
    this.clock = clock;
    const read = (anew: boolean) => void this.read(anew).catch(() => {});
    this.#timer = setInterval(() => redis.status === 'ready' && !this.#reading && read(false), READ_CLOCK_MS);
    this.#timer.unref();
    redis.on('ready', () => read(true));
  }

  async read(anew = false): Promise<void> {
    const { clock } = this;
    this.#reading = true;
    try {
      const askedAtMs = clock.monotonic();
      const [seconds, microseconds] = await this.#redis.time();
      const redisMs = Number(seconds) * 1_000 + Number(microseconds) / 1_000;
      const tookMs = clock.monotonic() - askedAtMs;
      // More than its way here explains: however slowly it came, it is better than what was known.
      const wasSet = Math.abs(redisMs - clock.now()) > tookMs + DRIFT_MS;
      clock.learn(redisMs, tookMs, anew || wasSet);
    } finally {
      this.#reading = false;
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

async function startEmbedded(options: BackendOptions): Promise<EmbeddedRedis> {
  try {
    return await startEmbeddedRedis({
      dataDir: options.settings.dataDir,
      log: (line) => options.log('info', line, { event: EMBEDDED_REDIS_STEP }),
    });
  } catch (error) {
    throw new PawlError('BACKEND_UNAVAILABLE', error instanceof Error ? error.message : String(error), {
      cause: error,
    });
  }
}

/** What must be found again goes to the trail, and what is rare to the log, too. */
function auditOf({ log, audit }: BackendOptions, writer: AuditWriter): RecordAudit {
  return (event) => {
    const { type, ...fields } = event;
    const sentence = AUDIT_SENTENCES[type];
    if (sentence !== undefined)
      log(type === 'refused' ? 'warn' : 'info', sentence, { event: `audit_${type}`, ...fields });
    const told = audit?.(event);
    const written = writer.record(event);
    return told === undefined ? written : Promise.all([told, written]).then(() => {});
  };
}

/** Of calls and their attempts, the log has lines of its own. */
const AUDIT_SENTENCES: Partial<Readonly<Record<AuditType, string>>> = {
  'approval-requested': 'a call waits for a decision',
  'approval-decided': 'an approval was decided',
  'approval-used': 'an approved call is about to run',
  'approval-forgotten': 'a remembered approval was taken back',
  'question-ended': 'a question to people has ended',
  override: 'somebody has put their word in place of the system’s',
  'registry-changed': 'the registry of tools was changed',
  refused: 'something that this fleet did not write was refused',
};

/** The configured keys; in embedded mode a key of the data folder's own. */
function signerOf({ settings, log }: BackendOptions, embedded: boolean): Signer | undefined {
  if (settings.signingKeys.length > 0) return new Signer(settings.signingKeys);
  if (embedded) return new Signer([ownKey(settings.dataDir)]);
  log('warn', `Without PAWL_SIGNING_KEYS nothing is signed: ${UNSIGNED}.`);
  return undefined;
}

function workerSignersOf({ workerKeys }: Settings): Readonly<Record<string, Signer>> {
  return Object.fromEntries(Object.entries(workerKeys).map(([tier, keys = []]) => [tier, new Signer(keys)]));
}

const SHORTEST_KEY = 16;

/** Made once: written aside and linked into place, so that nobody ever reads half a key, and one of several starters wins. */
function ownKey(dataDir: string): SigningKey {
  const file = join(dataDir, 'signing-key');
  if (!existsSync(file)) {
    const aside = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
    writeFileSync(aside, randomBytes(32).toString('base64url'), { mode: 0o600, flush: true });
    try {
      linkSync(aside, file);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    } finally {
      unlinkSync(aside);
    }
  }
  const key = readKey(file);
  // A power failure or a full disk can leave an empty file, and everybody knows the empty key.
  if (key.length < SHORTEST_KEY)
    throw new PawlError(
      'CONFIGURATION',
      `${file} holds no key. Remove it, and a new one is made; what was signed with the old one is refused then.`,
    );
  return { kid: 'embedded', key };
}

function readKey(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new PawlError(
      'CONFIGURATION',
      `The signing key ${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
}

/** Reads version, eviction and persistence, of a cluster what is worst among its masters. Throws `CONFIGURATION` for a server that is too old. */
export async function inspectServer(redis: Redis): Promise<ServerFacts> {
  const all = await Promise.all(serversOf(redis).map(inspectOne));
  return all.reduce(weakerOf);
}

async function inspectOne(redis: Redis): Promise<ServerFacts> {
  const configured = async (name: string): Promise<string | undefined> => {
    try {
      return ((await redis.config('GET', name)) as string[])[1];
    } catch {
      // Managed servers keep CONFIG to themselves; INFO tells less.
      return undefined;
    }
  };
  const [appendfsync, ...sections] = await Promise.all([
    configured('appendfsync'),
    ...['server', 'memory', 'persistence'].map((section) => redis.info(section)),
  ]);
  const info = sections.join('\n');
  const told = (name: string) => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1];
  const version = told('valkey_version') ?? told('redis_version') ?? 'unknown';
  if (!isAtLeast(version, OLDEST_VERSION))
    throw new PawlError(
      'CONFIGURATION',
      `Redis ${version} is too old: Pawl needs ${OLDEST_VERSION.join('.')} or later.`,
    );
  return {
    version,
    evictionPolicy: told('maxmemory_policy') ?? (await configured('maxmemory-policy')),
    persistence: told('aof_enabled') === '0' ? 'none' : ((appendfsync ?? 'unknown') as Persistence),
    ...(told('aof_last_write_status') === 'err' ? { writeFailed: true } : {}),
  };
}

function report(server: ServerFacts, { log, settings }: BackendOptions): void {
  const fields = { redisVersion: server.version, persistence: server.persistence, durability: settings.durability };
  if (evicts(server))
    log(
      'warn',
      `Redis may evict records (maxmemory-policy is ${server.evictionPolicy}): calls could be forgotten and run twice.`,
      fields,
    );
  if (settings.durability === 'waitaof') log('info', WAITAOF_PROMISE, fields);
  log(server.persistence === 'none' ? 'warn' : 'info', PROMISES[server.persistence], fields);
}
