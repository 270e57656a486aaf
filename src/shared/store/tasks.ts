/**
 * The records of MCP tasks: a task is a call, or a chain of calls when the tool asks something on the way. Every member is written
 * once, so that two servers that go on with one task do the same.
 */
import { FleetKeys } from './keys.ts';
import type { Redis } from './redis.ts';

export interface TaskRecord {
  readonly taskId: string;
  /** Who may know of it. */
  readonly owner: string;
  readonly sessionKey: string;
  /** As tools are called by name. */
  readonly tool: string;
  /** The client's parameters (JSON). */
  readonly params: string;
  readonly createdAtMs: number;
  /** Of the task's calls, the newest last. */
  readonly callIds: readonly string[];
  /** Answers to the newest call's question (JSON), by name. */
  readonly answers: Readonly<Record<string, string>>;
  readonly cancelled: boolean;
}

export class Tasks {
  readonly #redis: Redis;
  readonly #keys: FleetKeys;
  readonly #ttlMs: number;

  constructor(redis: Redis, prefix: string, ttlMs: number) {
    this.#redis = redis;
    this.#keys = new FleetKeys(prefix);
    this.#ttlMs = ttlMs;
  }

  async create(
    task: Pick<TaskRecord, 'taskId' | 'owner' | 'sessionKey' | 'tool' | 'params' | 'createdAtMs'>,
    callId: string,
  ): Promise<void> {
    const { taskId, ...members } = task;
    const key = this.#keys.task(taskId);
    await this.#redis
      .multi()
      .hset(key, { ...members, 'call:0': callId })
      .pexpire(key, this.#ttlMs)
      .exec();
  }

  async read(taskId: string): Promise<TaskRecord | undefined> {
    const fields = await this.#redis.hgetall(this.#keys.task(taskId));
    if (fields['owner'] === undefined) return undefined;
    const callIds: string[] = [];
    for (let callId = fields['call:0']; callId !== undefined; callId = fields[`call:${callIds.length}`])
      callIds.push(callId);
    const prefix = `answer:${callIds.length - 1}:`;
    return {
      taskId,
      owner: fields['owner'],
      sessionKey: fields['sessionKey'] ?? '',
      tool: fields['tool'] ?? '',
      params: fields['params'] ?? '{}',
      createdAtMs: Number(fields['createdAtMs']),
      callIds,
      answers: Object.fromEntries(
        Object.entries(fields)
          .filter(([name]) => name.startsWith(prefix))
          .map(([name, answer]) => [name.slice(prefix.length), answer]),
      ),
      cancelled: fields['cancelled'] !== undefined,
    };
  }

  /** The first answer to each question stands. */
  async answer({ taskId, callIds }: TaskRecord, answers: Readonly<Record<string, unknown>>): Promise<void> {
    const key = this.#keys.task(taskId);
    for (const [name, answer] of Object.entries(answers))
      await this.#redis.hsetnx(key, `answer:${callIds.length - 1}:${name}`, JSON.stringify(answer));
  }

  async goOn({ taskId, callIds }: TaskRecord, callId: string): Promise<void> {
    await this.#redis.hsetnx(this.#keys.task(taskId), `call:${callIds.length}`, callId);
  }

  async cancel(taskId: string): Promise<void> {
    await this.#redis.hsetnx(this.#keys.task(taskId), 'cancelled', '1');
  }
}
