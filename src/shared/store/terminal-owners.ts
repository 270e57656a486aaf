/** Which worker a terminal lives in. The worker renews the record: without it, or with a dead worker's, there is no terminal. */
import type { Seals } from '../seals.ts';
import { FleetKeys } from './keys.ts';
import type { Redis } from './redis.ts';

export const OWNER_RENEWAL_MS = 5_000;
const OWNER_TTL_MS = 15_000;

export interface TerminalOwner {
  readonly workerId: string;
  readonly sessionKey: string;
}

export class TerminalOwners {
  readonly #redis: Redis;
  readonly #keys: FleetKeys;
  readonly #seals: Seals;

  constructor(redis: Redis, prefix: string, seals: Seals) {
    this.#redis = redis;
    this.#keys = new FleetKeys(prefix);
    this.#seals = seals;
  }

  /** Writes the record, or renews it. */
  async hold(terminalId: string, owner: TerminalOwner): Promise<void> {
    const text = JSON.stringify(owner);
    const sealed = `${this.#seals.message(`terminal ${terminalId}`, text)} ${text}`;
    await this.#redis.set(this.#keys.terminal(terminalId), sealed, 'PX', OWNER_TTL_MS);
  }

  async find(terminalId: string): Promise<TerminalOwner | undefined> {
    const stored = await this.#redis.get(this.#keys.terminal(terminalId));
    if (stored === null) return undefined;
    const split = stored.indexOf(' {');
    const text = stored.slice(split + 1);
    return this.#seals.isMessage(`terminal ${terminalId}`, text, stored.slice(0, split))
      ? (JSON.parse(text) as TerminalOwner)
      : undefined;
  }

  async drop(terminalId: string): Promise<void> {
    await this.#redis.unlink(this.#keys.terminal(terminalId));
  }
}
