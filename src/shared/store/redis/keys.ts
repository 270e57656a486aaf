/**
 * The name of every Redis key. All keys of one place (a tier, or one shard of it) share a hash tag, so that a script may
 * touch them together and places spread over a cluster.
 */
import type { Tier } from '../../tools/tool.ts';

export interface Partition {
  readonly tier: Tier;
  readonly shard: number;
}

/** The partition that holds what the shards of a tier share: their circuits and retry budgets. */
export function homePartition(tier: Tier): Partition {
  return { tier, shard: 0 };
}

/** The names of keys behind a partition's base. Scripts that touch many of its keys build them from these names (`PARTITION_LUA`). */
export const PARTITION_NAMES = {
  RECORDS: ':call:',
  INBOXES: ':inbox:',
  INFLIGHT: ':inflight',
  CALLS: ':calls',
  IN_DOUBT: ':in-doubt',
  /** Calls that an outside system completes, by when they expire. They are not in flight: nothing of the fleet works on them. */
  PENDING: ':pending',
  CIRCUITS: ':circuits',
  WINDOWS: ':window:',
  RETRIES: ':retries:',
  SIZES: ':sizes:',
  /** Slots in which calls with a derived key merge. */
  MERGES: ':merge:',
  /** How often a session made the same call. */
  LOOPS: ':loop:',
  SESSIONS: ':session:',
  APPROVALS: ':approval',
  LOST_WORKERS: ':lost-workers',
} as const;

/** The names of a partition's dead letters behind its base: the index by time, that of one tenant, and what is known of each. */
export const DEAD_LETTER_NAMES = {
  DEAD_LETTERS: ':dead-letters',
  DEAD_LETTERS_OF: ':dead-letters-of:',
  DEAD_LETTER_FACTS: ':dead-letter-facts',
} as const;

export class PartitionKeys {
  readonly partition: Partition;
  /** Prefix of all keys of the place, and BullMQ's prefix. */
  readonly base: string;
  /** BullMQ's queue name: `read-only`, or `read-only.1` for a further shard. */
  readonly queue: string;
  readonly records: string;
  readonly inboxes: string;
  readonly inflight: string;
  readonly calls: string;
  /** Calls whose outcome is unknown, by when they are forgotten. */
  readonly inDoubt: string;
  readonly pending: string;
  readonly circuits: string;
  /** How many calls of each tool there are, in parts of the retention. */
  readonly sizes: string;
  /** The base of the indices of each session's calls, by time. */
  readonly sessions: string;

  constructor(prefix: string, partition: Partition) {
    this.partition = partition;
    this.queue = partition.shard === 0 ? partition.tier : `${partition.tier}.${partition.shard}`;
    this.base = `${prefix}:{${this.queue}}`;
    this.records = `${this.base}${PARTITION_NAMES.RECORDS}`;
    this.inboxes = `${this.base}${PARTITION_NAMES.INBOXES}`;
    this.inflight = `${this.base}${PARTITION_NAMES.INFLIGHT}`;
    this.calls = `${this.base}${PARTITION_NAMES.CALLS}`;
    this.inDoubt = `${this.base}${PARTITION_NAMES.IN_DOUBT}`;
    this.pending = `${this.base}${PARTITION_NAMES.PENDING}`;
    this.circuits = `${this.base}${PARTITION_NAMES.CIRCUITS}`;
    this.sizes = `${this.base}${PARTITION_NAMES.SIZES}`;
    this.sessions = `${this.base}${PARTITION_NAMES.SESSIONS}`;
  }

  record(callId: string): string {
    return `${this.records}${callId}`;
  }

  inbox(id: string): string {
    return `${this.inboxes}${id}`;
  }

  /** Calls of one session, by time. */
  sessionCalls(sessionKey: string): string {
    return `${this.sessions}${sessionKey}`;
  }

  /** Delayed calls of a session, by their starts. */
  delayedSessionCalls(sessionKey: string): string {
    return `${this.calls}:delayed:${sessionKey}`;
  }

  /** Workers that were lost while they ran calls, by when that was seen. `:stopped:ID` names one that was stopped. */
  get lostWorkers(): string {
    return `${this.base}${PARTITION_NAMES.LOST_WORKERS}`;
  }

  stoppedWorker(workerId: string): string {
    return `${this.lostWorkers}:stopped:${workerId}`;
  }

  /** Prefix of what is kept of approvals: `:ID` for each, `s` for the index of all, `s:pending` for that of those to decide. */
  get approvals(): string {
    return `${this.base}${PARTITION_NAMES.APPROVALS}`;
  }

  /** Calls of mutating tools that failed, by when they did; of one tenant when given. */
  deadLetters(tenantId?: string): string {
    return tenantId === undefined
      ? `${this.base}${DEAD_LETTER_NAMES.DEAD_LETTERS}`
      : `${this.base}${DEAD_LETTER_NAMES.DEAD_LETTERS_OF}${tenantId}`;
  }

  get deadLetterFacts(): string {
    return `${this.base}${DEAD_LETTER_NAMES.DEAD_LETTER_FACTS}`;
  }

  /** The history of circuits, the newest change first. */
  get circuitHistory(): string {
    return `${this.base}:circuit-history`;
  }

  window(circuit: string): string {
    return `${this.base}${PARTITION_NAMES.WINDOWS}${circuit}`;
  }

  /** The bucket of a retry budget. */
  retries(bucket: string): string {
    return `${this.base}${PARTITION_NAMES.RETRIES}${bucket}`;
  }

  /** An outcome too large for its record: one of those that attempts wrote for a call. */
  outcome(callId: string, textId: string): string {
    return `${this.base}:outcome:${callId}:${textId}`;
  }

  /** Parameters too large for their request: one of those that producers wrote for a call. */
  params(callId: string, textId: string): string {
    return `${this.base}:params:${callId}:${textId}`;
  }

  /** The newest reports of a call's progress. */
  progress(callId: string): string {
    return `${this.base}:progress:${callId}`;
  }

  job(jobId: string): string {
    return `${this.base}:${this.queue}:${jobId}`;
  }
}

export class FleetKeys {
  readonly workers: string;
  readonly workerLoads: string;
  readonly tools: string;
  /** The registry's records, by tool. */
  readonly specs: string;
  /** Records of skills, by name. */
  readonly skills: string;
  /** When each record of the registry changed last, as a number of `declaredToolSequence`. */
  readonly declaredToolChanges: string;
  readonly declaredToolSequence: string;
  /** All sessions, by when they were opened. */
  readonly sessions: string;
  readonly switches: string;
  /** Kind of the channel of sessions that name none. */
  readonly defaultChannel: string;
  /** How many shards each tier has, and how many it ever had. */
  readonly shards: string;
  /** Counts of what shadow mode would have done. */
  readonly shadows: string;
  /** Questions that wait for a person, by expiry. */
  readonly questions: string;
  /** Written to wait for the disk. */
  readonly disk: string;
  /** Written to test whether Redis accepts writes. */
  readonly trial: string;
  /** Prefix of what is kept of turns at resources, which calls of all tiers may share. */
  readonly locks: string;
  /** Prefix of what is kept of clients that run tools, and of their calls. */
  readonly clients: string;
  /** Records of schedules and their progress, by ID, and when each is due. */
  readonly schedules: string;
  readonly scheduleProgress: string;
  readonly schedulesDue: string;
  /** The totals of all processes' metrics. */
  readonly metrics: string;
  readonly prefix: string;

  constructor(prefix: string) {
    this.prefix = prefix;
    this.workers = `${prefix}:{fleet}:workers`;
    this.defaultChannel = `${prefix}:{fleet}:default-channel`;
    this.workerLoads = `${prefix}:{fleet}:worker-records`;
    this.tools = `${prefix}:{fleet}:tools`;
    this.specs = `${prefix}:{fleet}:specs`;
    this.skills = `${prefix}:{fleet}:skills`;
    this.declaredToolChanges = `${prefix}:{fleet}:spec-changes`;
    this.declaredToolSequence = `${prefix}:{fleet}:spec-sequence`;
    this.sessions = `${prefix}:{fleet}:sessions`;
    this.switches = `${prefix}:{fleet}:switches`;
    this.shards = `${prefix}:{fleet}:shards`;
    this.shadows = `${prefix}:{fleet}:shadows`;
    this.questions = `${prefix}:{fleet}:questions`;
    this.locks = `${prefix}:{turns}:`;
    this.clients = `${prefix}:{clients}:`;
    this.disk = `${prefix}:{fleet}:disk`;
    this.trial = `${prefix}:{fleet}:trial`;
    this.schedules = `${prefix}:{schedules}:records`;
    this.scheduleProgress = `${prefix}:{schedules}:progress`;
    this.schedulesDue = `${prefix}:{schedules}:due`;
    this.metrics = `${prefix}:{fleet}:metrics`;
  }

  session(sessionKey: string): string {
    return `${this.prefix}:{fleet}:session:${sessionKey}`;
  }

  /** Sessions of one tenant, by when they were opened. */
  sessionsOf(tenantId: string): string {
    return `${this.sessions}:${tenantId}`;
  }

  /** Keys of the sessions directly below one. */
  sessionChildren(sessionKey: string): string {
    return `${this.prefix}:{fleet}:session-children:${sessionKey}`;
  }

  /** The channel on which a producer hears of its calls. `shared.lua` derives it from an inbox's key. */
  inbox(id: string): string {
    return `${this.prefix}:inbox:${id}`;
  }

  /** Messages of tools to the people of a session. */
  messages(sessionKey: string): string {
    return `${this.prefix}:{fleet}:messages:${sessionKey}`;
  }

  /** The newest revisions of a tool's record. */
  declaredToolHistory(tool: string): string {
    return `${this.prefix}:{fleet}:spec-history:${tool}`;
  }

  /** The holders of a concurrency limit, the newest starts, and the jobs that wait for either. */
  limit(name: string) {
    const base = `${this.prefix}:{limit:${name}}`;
    return {
      holders: `${base}:holders`,
      waiters: `${base}:waiters`,
      starts: `${base}:starts`,
      asking: `${base}:asking`,
      partitions: `${base}:places`,
      promotedPartitions: `${base}:woken`,
    };
  }

  /** The standing approvals of a session. */
  standingApprovals(sessionKey: string): string {
    return `${this.prefix}:{fleet}:grants:${sessionKey}`;
  }

  /** A tool's question to people. */
  question(id: string): string {
    return `${this.prefix}:{fleet}:question:${id}`;
  }

  turn(callId: string): string {
    return `${this.locks}call:${callId}`;
  }

  /** The newest name of a model's call whose ID came again. */
  repeatedCall(call: string): string {
    return `${this.prefix}:{fleet}:repeated-call:${call}`;
  }

  /** A sub-agent, and the messages that it receives. */
  agent(agentId: string): string {
    return `${this.prefix}:{fleet}:agent:${agentId}`;
  }

  agentMail(agentId: string): string {
    return `${this.agent(agentId)}:mail`;
  }

  /** Jobs of calls that wait for an agent's answer. */
  agentAwaited(agentId: string): string {
    return `${this.agent(agentId)}:awaited`;
  }

  /** The sub-agents of a session. */
  agentsOf(sessionKey: string): string {
    return `${this.prefix}:{fleet}:agents:${sessionKey}`;
  }

  /** The messages of other workers to one. */
  mail(workerId: string): string {
    return `${this.prefix}:{fleet}:mail:${workerId}`;
  }

  /** The worker that has a terminal. */
  terminal(terminalId: string): string {
    return `${this.prefix}:{fleet}:terminal:${terminalId}`;
  }

  /** The metrics that one process has published. */
  metricsOf(processId: string): string {
    return `${this.prefix}:{fleet}:metrics:${processId}`;
  }

  /** The spent part of a budget. */
  budget(name: string): string {
    return `${this.prefix}:{budget}:${name}`;
  }

  task(taskId: string): string {
    return `${this.prefix}:{fleet}:task:${taskId}`;
  }
}

/** The keys of the audit trail. They share one hash tag: chaining touches waiting records and the trail in one step. */
export class AuditKeys {
  /** Records that are not chained yet. */
  readonly pending: string;
  /** The head of the trail. */
  readonly head: string;
  /** The lease of the process that chains records. */
  readonly writer: string;
  /** The position of each sink. */
  readonly sinks: string;
  readonly #base: string;

  constructor(prefix: string) {
    this.#base = `${prefix}:{audit}`;
    this.pending = `${this.#base}:pending`;
    this.head = `${this.#base}:head`;
    this.writer = `${this.#base}:writer`;
    this.sinks = `${this.#base}:sinks`;
  }

  /** The chained records of a trail, under their numbers. */
  chain(trail: string): string {
    return `${this.#base}:chain:${trail}`;
  }

  sinkLease(name: string): string {
    return `${this.#base}:sink:${name}`;
  }
}

/** The keys of batches and plans. They share one hash tag: a step writes a group's record and the index of open ones together. */
export class GroupKeys {
  /** Groups that are not over, by the end of their driver's lease. */
  readonly open: string;
  readonly #base: string;

  constructor(prefix: string) {
    this.#base = `${prefix}:{groups}`;
    this.open = `${this.#base}:open`;
  }

  group(id: string): string {
    return `${this.#base}:group:${id}`;
  }

  /** All groups of a kind, or those of one tenant, by when they were made. */
  all(kind: string, tenantId?: string): string {
    return tenantId === undefined ? `${this.#base}:${kind}` : `${this.#base}:${kind}:tenant:${tenantId}`;
  }
}
