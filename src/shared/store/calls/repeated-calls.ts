/**
 * The newest name of a model's call whose ID came again in a later answer. A process that runs the same answer once more, after a crash,
 * finds the answer's own call by it.
 */

import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';

export class RepeatedCalls extends FleetRecords {
  /** Outcomes are kept this long: a name that leads to none is of no use. */
  readonly #keptMs: number;

  constructor(redis: Redis, prefix: string, keptMs: number) {
    super(redis, prefix);
    this.#keptMs = keptMs;
  }

  /** `call` is a digest of all that the repeated calls have in common. Undefined when none came again. */
  async latest(call: string): Promise<string | undefined> {
    return (await this.redis.get(this.keys.repeatedCall(call))) ?? undefined;
  }

  async remember(call: string, toolCallId: string): Promise<void> {
    await this.redis.set(this.keys.repeatedCall(call), toolCallId, 'PX', this.#keptMs);
  }
}
