/**
 * New names for calls of a model that reused an earlier call's ID in a later answer. After a crash, a process that runs the same answer
 * again finds the answer's own call by this name.
 */
import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';

export class RepeatedCalls extends FleetRecords {
  /** As long as a call may wait for its approval and its outcome is kept: without an outcome, the name is useless. */
  readonly #keptMs: number;

  constructor(redis: Redis, prefix: string, keptMs: number) {
    super(redis, prefix);
    this.#keptMs = keptMs;
  }

  /** `call` is a digest of what the repeated calls have in common. Undefined when none was repeated. */
  async latest(call: string): Promise<string | undefined> {
    return (await this.redis.get(this.keys.repeatedCall(call))) ?? undefined;
  }

  async remember(call: string, toolCallId: string): Promise<void> {
    await this.redis.set(this.keys.repeatedCall(call), toolCallId, 'PX', this.#keptMs);
  }
}
