/** A process's connection to Redis, checked, and the stores that use it. Starts the embedded server when no Redis is configured. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { AuditType, RecordAudit } from '../audit/audit-event.ts';
import type { Settings } from '../config/config.ts';
import {
  asksFor,
  evicts,
  hasWaitaof,
  PERSISTENCE_FIXES,
  PROMISES,
  type ServerFacts,
  WAITAOF_PROMISE,
} from '../config/durability.ts';
import { PawlError, reasonOf } from '../errors/failure.ts';
import { secretsOf } from '../errors/redaction.ts';
import { Signer, UNSIGNED } from '../signing/signature.ts';
import { Signatures } from '../signing/signatures.ts';
import { EMBEDDED_REDIS_STEP, type Logger, REDIS_PROMISE } from '../telemetry/log.ts';
import { TIERS, type Tier } from '../tools/tool.ts';
import { liesIn } from '../util/file-path.ts';
import { defined } from '../util/json/omit-undefined.ts';
import type { SyncedClock } from '../util/time.ts';
import { Approvals } from './approvals/approvals.ts';
import { Questions } from './approvals/questions.ts';
import { StandingApprovals } from './approvals/standing-approvals.ts';
import { AuditTrail } from './audit/audit-trail.ts';
import { AuditWriter } from './audit/audit-writer.ts';
import { useConfiguredStore } from './blobs/configured-store.ts';
import { CallbackRecords } from './callbacks/callbacks.ts';
import { longestRetentionMs } from './calls/call-index.ts';
import { Ledger } from './calls/ledger.ts';
import { RepeatedCalls } from './calls/repeated-calls.ts';
import { Breakers } from './circuits/circuits.ts';
import { ClockFollower } from './clock-follower.ts';
import { Completions } from './completions/completions.ts';
import { SwitchRecords } from './config/switches.ts';
import { ClientCalls } from './connectors/client-calls.ts';
import { DeclaredToolRecords } from './connectors/declared-tools.ts';
import { DeadLetterIndex } from './dead-letters/dead-letter-index.ts';
import { JobDispatch } from './dispatch/job-dispatch.ts';
import { Catalogue } from './fleet/catalogue.ts';
import { TerminalOwners } from './fleet/terminal-owners.ts';
import { WorkerMailbox } from './fleet/worker-mailbox.ts';
import { GroupRecords } from './groups/groups.ts';
import { inspectServer } from './inspect-server.ts';
import { Limits } from './limits/concurrency-limits.ts';
import { ResourceLocks } from './limits/resource-locks.ts';
import { ownKey } from './own-key.ts';
import { Shards } from './queues/shards.ts';
import { answeredInTime, closeConnection, connectVerified, isClustered, type Redis } from './redis/connection.ts';
import { type EmbeddedRedis, startEmbeddedRedis } from './redis/embedded-redis.ts';
import type { HelperEnvironment } from './redis/redis-binary.ts';
import { checkRights, startError } from './redis/start-check.ts';
import { Redrives } from './redrives/redrives.ts';
import { ScheduleRecords } from './schedules/schedules.ts';
import { Tasks } from './sessions/mcp-tasks.ts';
import { Messages } from './sessions/messages.ts';
import { Sessions } from './sessions/sessions.ts';
import { SkillRecords } from './sessions/skills.ts';
import { SubAgentRecords } from './sessions/sub-agents.ts';
import { refusedEvent } from './signing/refused-records.ts';

/** Short for a producer, whose user waits; long for a worker, which may start together with its Redis. */
const READY_TIMEOUT_MS = { 'fail-fast': 3_000, patient: 15_000 } as const;
/** A batch or plan whose driver died continues after this time at most. */
const LONGEST_GROUP_LEASE_MS = 10_000;

type Stores = ReturnType<typeof openStores>;

export interface Backend extends Stores {
  readonly url: string;
  readonly prefix: string;
  readonly redis: Redis;
  /** Redis is a cluster: a script touches the keys of one hash tag, and PUBLISH counts only subscribers of its node. */
  readonly clustered: boolean;
  readonly shards: Shards;
  readonly signatures: Signatures;
  readonly audit: RecordAudit;
  readonly records: AuditWriter;
  /** Redis' clock, for every time that another process will compare. */
  readonly clock: SyncedClock;
  readonly server: ServerFacts;
  close(): Promise<void>;
}

interface BackendOptions {
  readonly settings: Settings;
  /** Shown by CLIENT LIST. */
  readonly name: string;
  readonly mode: 'fail-fast' | 'patient';
  readonly log: Logger;
  /** Called with every audit event, beside the log and the trail. */
  readonly audit?: RecordAudit | undefined;
  /** The tiers whose published tools a worker reads. Default: all. */
  readonly tiers?: readonly Tier[];
  readonly environment?: HelperEnvironment;
}

/** Connects and checks the server. Throws `BACKEND_UNAVAILABLE` or, for a server that cannot be used at all, `CONFIGURATION`. */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  const { settings, tiers } = options;
  let embedded: EmbeddedRedis | undefined;
  if (settings.redisUrl === undefined) embedded = await startEmbedded(options);
  const { url, redis } = await connectVerified(
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
    const server = await answeredInTime(prepareServer(redis, options, following, embedded !== undefined), url);
    const writer = openAuditWriter(options, redis, following.clock);
    const audit = auditOf(options, writer);
    const signatures = new Signatures(
      signerOf(options, embedded !== undefined),
      (refused) => void audit(refusedEvent(refused)),
      workerSignersOf(settings),
    );
    const shards = await answeredInTime(loadShards(redis, settings), url);
    const stores = openStores({ url, redis, settings, tiers, signatures, writer, shards });
    stores.ledger.access.segments.onLost((lost) => options.log.warn({ event: 'segment_lost', ...lost }, LOST_SEGMENT));
    return {
      ...stores,
      url,
      prefix: settings.prefix,
      redis,
      clustered: isClustered(redis),
      shards,
      signatures,
      audit,
      records: writer,
      clock: following.clock,
      server,
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

/** Configures the embedded server, and checks that any server can be used. Throws `CONFIGURATION`. */
async function prepareServer(
  redis: Redis,
  options: BackendOptions,
  following: ClockFollower,
  isEmbedded: boolean,
): Promise<ServerFacts> {
  const { settings, mode } = options;
  if (isEmbedded && asksFor('always', settings)) await redis.config('SET', 'appendfsync', 'always');
  const [server] = await Promise.all([inspectServer(redis, settings.prefix), following.read()]);
  const blocks = mode === 'patient';
  await checkRights(redis, settings.prefix, {
    blocks,
    waits: blocks && asksFor('waitaof', settings) && hasWaitaof(server),
  });
  logServer(server, options);
  return server;
}

function openAuditWriter({ settings, log }: BackendOptions, redis: Redis, clock: SyncedClock): AuditWriter {
  return new AuditWriter({
    redis,
    prefix: settings.prefix,
    clock,
    reads: settings.audit.reads,
    secrets: secretsOf(settings, {}),
    onLost: (records) => log.warn({ records }, 'audit records were lost while Redis was unavailable'),
  });
}

/** The parts of a backend that its stores share. */
interface StoreDeps {
  readonly url: string;
  readonly redis: Redis;
  readonly settings: Settings;
  readonly tiers: readonly Tier[] | undefined;
  readonly signatures: Signatures;
  readonly writer: AuditWriter;
  readonly shards: Shards;
}

function openStores({ url, redis, settings, tiers, signatures, writer, shards }: StoreDeps) {
  const { prefix, ttl } = settings;
  const ledger = new Ledger(redis, prefix, longestRetentionMs(settings), signatures, writer);
  useConfiguredStore(ledger.access.blobs, settings);
  return {
    ledger,
    dispatch: new JobDispatch(ledger.access),
    /** Calls that wait for outside systems, and their tokens. */
    completions: new Completions(ledger.access),
    breakers: new Breakers(redis, prefix, signatures, shards),
    limits: new Limits(redis, prefix),
    sessions: new Sessions(redis, prefix, signatures, shards),
    approvals: new Approvals(redis, ledger, signatures, settings),
    deadLetters: new DeadLetterIndex(redis, (partition) => ledger.keys(partition)),
    redrives: new Redrives(redis, prefix, signatures, settings.lockDurationMs),
    standingApprovals: new StandingApprovals(redis, prefix, signatures),
    repeatedCalls: new RepeatedCalls(redis, prefix, longestRetentionMs(settings) + settings.policy.approvalLimitMs),
    agents: new SubAgentRecords(redis, prefix, signatures),
    messages: new Messages(redis, prefix),
    questions: new Questions(redis, prefix, signatures),
    trail: new AuditTrail(redis, prefix, writer),
    catalogue: new Catalogue(redis, prefix, { signatures, ...(tiers !== undefined && { tiers }) }),
    /** Tools that are declared at run time. */
    specs: new DeclaredToolRecords(redis, prefix, signatures),
    skills: new SkillRecords(redis, prefix, signatures),
    schedules: new ScheduleRecords(redis, prefix, signatures),
    clientCalls: new ClientCalls(redis, prefix, signatures),
    callbacks: new CallbackRecords(redis, prefix, signatures),
    switches: new SwitchRecords(redis, prefix, signatures),
    groups: new GroupRecords(redis, prefix, signatures, Math.min(settings.lockDurationMs, LONGEST_GROUP_LEASE_MS)),
    tasks: new Tasks(redis, prefix, ttl.doneMs, signatures),
    terminals: new TerminalOwners(redis, prefix, signatures),
    /** The mailbox of one worker; its connection is opened by the first read. */
    mailboxOf: (workerId: string) => new WorkerMailbox({ redis, url, prefix, signatures, workerId }),
    locks: new ResourceLocks(redis, prefix, settings.lockDurationMs),
  };
}

/** The shards of each tier. The configured count sets a tier that no operator has set. */
async function loadShards(redis: Redis, { prefix, shards: configured }: Settings): Promise<Shards> {
  const shards = new Shards(redis, prefix);
  await shards.reload();
  for (const tier of TIERS) {
    const count = configured[tier];
    if (count !== undefined && !shards.layout[tier].isSet) await shards.set(tier, count, true);
  }
  return shards;
}

async function startEmbedded(options: BackendOptions): Promise<EmbeddedRedis> {
  const { dataDir } = options.settings;
  const newDataDir = existsSync(dataDir) ? undefined : resolve(dataDir);
  try {
    return await startEmbeddedRedis({
      dataDir,
      environment: options.environment,
      log: (line) => options.log.info(defined({ event: EMBEDDED_REDIS_STEP, newDataDir }), line),
    });
  } catch (error) {
    throw folderError(error, dataDir) ?? new PawlError('BACKEND_UNAVAILABLE', reasonOf(error), { cause: error });
  }
}

/** The operating system's errors about a path that can be no folder of this user, whatever the time. */
const UNUSABLE_PATH: ReadonlySet<string | undefined> = new Set([
  'ENOTDIR',
  'EEXIST',
  'EACCES',
  'EPERM',
  'EROFS',
  'ELOOP',
  'ENAMETOOLONG',
]);

/** The error for a data folder that cannot be made or written to; undefined for other errors. */
function folderError(error: unknown, dataDir: string): PawlError | undefined {
  const { code, path } = error as NodeJS.ErrnoException;
  const folder = resolve(dataDir);
  // A folder above it that cannot be made is named in its place.
  if (!UNUSABLE_PATH.has(code) || path === undefined || !(liesIn(folder, path) || liesIn(path, folder)))
    return undefined;
  const message = `PAWL_DATA_DIR (dataDir) must be a folder that this user may make and write to: ${reasonOf(error)}.`;
  return new PawlError('CONFIGURATION', message, { cause: error });
}

/** Writes every event to the audit trail, and rare ones to the log, too. */
function auditOf({ log, audit }: BackendOptions, writer: AuditWriter): RecordAudit {
  return (event) => {
    const sentence = AUDIT_SENTENCES[event.type];
    if (sentence !== undefined) {
      const { type, ...fields } = event;
      log[type === 'refused' ? 'warn' : 'info']({ event: `audit_${type}`, ...fields }, sentence);
    }
    const recorded = audit?.(event);
    const written = writer.record(event);
    return recorded === undefined ? written : Promise.all([recorded, written]).then(() => {});
  };
}

const LOST_SEGMENT =
  'a segment of moved calls cannot be read here: their results are lost, and none of them runs again';

/** Log messages of rare events. Calls and their attempts have log lines of their own. */
const AUDIT_SENTENCES: Partial<Readonly<Record<AuditType, string>>> = {
  'approval-requested': 'a call waits for a decision',
  'approval-decided': 'an approval was decided',
  'approval-used': 'an approved call is about to run',
  'approval-forgotten': 'a standing approval was revoked',
  'question-ended': 'a question to people has ended',
  override: 'a caller or an operator has intervened',
  'registry-changed': 'the registry of tools was changed',
  'schedule-changed': 'a schedule was changed',
  'group-changed': 'a batch or a plan has begun, was cancelled or is over',
  refused: 'a record that this fleet did not sign was refused',
};

/** The signer with the configured keys, or with the data folder's own key in embedded mode. */
function signerOf({ settings, log }: BackendOptions, embedded: boolean): Signer | undefined {
  if (settings.signingKeys.length > 0) return new Signer(settings.signingKeys);
  if (embedded) return new Signer([ownKey(settings.dataDir)]);
  log.warn({}, `Without PAWL_SIGNING_KEYS nothing is signed: ${UNSIGNED}.`);
  return undefined;
}

function workerSignersOf({ workerKeys }: Settings): Readonly<Record<string, Signer>> {
  return Object.fromEntries(Object.entries(workerKeys).map(([tier, keys = []]) => [tier, new Signer(keys)]));
}

function logServer(server: ServerFacts, { log, settings }: BackendOptions): void {
  const fields = {
    event: REDIS_PROMISE,
    redisVersion: server.version,
    persistence: server.persistence,
    durability: settings.durability,
  };
  if (evicts(server))
    log.warn(
      fields,
      `Redis may evict records (maxmemory-policy is ${server.evictionPolicy}): calls could be forgotten and run twice.`,
    );
  if (settings.durability === 'waitaof') log.info(fields, WAITAOF_PROMISE);
  log[server.persistence in PERSISTENCE_FIXES ? 'warn' : 'info'](fields, PROMISES[server.persistence]);
}
