/**
 * The records of MCP tasks: a task is a call, or a chain of calls when the tool asks for input on the way. Every member is written once, so
 * that two servers that continue a task do the same. Members are signed, because a server makes calls from them.
 */
import type { Signatures } from '../../signing/signatures.ts';
import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { signedMessage, verifiedMessage } from '../signing/signed-text.ts';

/** The fields of a task that never change. */
interface NewTask {
  readonly taskId: string;
  /** The owner, who alone may read the task. */
  readonly owner: string;
  readonly sessionKey: string;
  /** As tools are called by name. */
  readonly tool: string;
  /** The client's parameters (JSON). */
  readonly params: string;
  readonly createdAtMs: number;
}

export interface TaskRecord extends NewTask {
  /** IDs of the task's calls, the newest last. */
  readonly callIds: readonly string[];
  /** Answers to the newest call's question (JSON), by name. */
  readonly answers: Readonly<Record<string, string>>;
  readonly cancelled: boolean;
}

export class Tasks extends FleetRecords {
  readonly #ttlMs: number;

  constructor(redis: Redis, prefix: string, ttlMs: number, signatures: Signatures) {
    super(redis, prefix, signatures);
    this.#ttlMs = ttlMs;
  }

  async create(task: NewTask, callId: string): Promise<void> {
    const { taskId } = task;
    const key = this.keys.task(taskId);
    await this.redis
      .multi()
      .hset(key, { task: this.#signed(taskId, 'task', task), 'call:0': this.#signed(taskId, 'call:0', { callId }) })
      .pexpire(key, this.#ttlMs)
      .exec();
  }

  async read(taskId: string): Promise<TaskRecord | undefined> {
    const fields = await this.redis.hgetall(this.keys.task(taskId));
    const opened = <Value>(member: string): Value | undefined => {
      const stored = fields[member];
      return stored === undefined ? undefined : verifiedMessage(this.signatures, aboutOf(taskId, member), stored);
    };
    const task = opened<NewTask>('task');
    if (task === undefined) return undefined;
    const callIds: string[] = [];
    for (let call = opened<Call>('call:0'); call !== undefined; call = opened<Call>(`call:${callIds.length}`))
      callIds.push(call.callId);
    const prefix = `answer:${callIds.length - 1}:`;
    const answers = Object.keys(fields)
      .filter((member) => member.startsWith(prefix))
      .flatMap((member) => {
        const given = opened<Answer>(member);
        return given === undefined ? [] : [[member.slice(prefix.length), given.answer] as const];
      });
    return {
      ...task,
      callIds,
      answers: Object.fromEntries(answers),
      cancelled: fields['cancelled'] !== undefined,
    };
  }

  /** The first answer to each question stands. */
  async answer({ taskId, callIds }: TaskRecord, answers: Readonly<Record<string, unknown>>): Promise<void> {
    for (const [name, answer] of Object.entries(answers))
      await this.#write(taskId, `answer:${callIds.length - 1}:${name}`, { answer: JSON.stringify(answer) });
  }

  async goOn({ taskId, callIds }: TaskRecord, callId: string): Promise<void> {
    await this.#write(taskId, `call:${callIds.length}`, { callId });
  }

  async cancel(taskId: string): Promise<void> {
    await this.redis.hsetnx(this.keys.task(taskId), 'cancelled', '1');
  }

  async #write(taskId: string, member: string, value: Call | Answer): Promise<void> {
    await this.redis.hsetnx(this.keys.task(taskId), member, this.#signed(taskId, member, value));
  }

  #signed(taskId: string, member: string, value: NewTask | Call | Answer): string {
    return signedMessage(this.signatures, aboutOf(taskId, member), value);
  }
}

interface Call {
  readonly callId: string;
}

/** As JSON. */
interface Answer {
  readonly answer: string;
}

function aboutOf(taskId: string, member: string): string {
  return `task ${taskId} ${member}`;
}
