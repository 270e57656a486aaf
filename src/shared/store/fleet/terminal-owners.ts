/** The worker that owns a terminal. The worker renews the record; when the record expires, the terminal counts as ended. */
import { FleetRecords } from '../redis/fleet-records.ts';
import { signedMessage, verifiedMessage } from '../signing/signed-text.ts';

export const OWNER_RENEWAL_MS = 5_000;
const OWNER_TTL_MS = 15_000;

interface TerminalOwner {
  readonly workerId: string;
  readonly sessionKey: string;
}

export class TerminalOwners extends FleetRecords {
  /** Writes the record, or renews it. */
  async save(terminalId: string, owner: TerminalOwner): Promise<void> {
    const signed = signedMessage(this.signatures, `terminal ${terminalId}`, owner);
    await this.redis.set(this.keys.terminal(terminalId), signed, 'PX', OWNER_TTL_MS);
  }

  async find(terminalId: string): Promise<TerminalOwner | undefined> {
    const stored = await this.redis.get(this.keys.terminal(terminalId));
    if (stored === null) return undefined;
    return verifiedMessage(this.signatures, `terminal ${terminalId}`, stored);
  }

  async remove(terminalId: string): Promise<void> {
    await this.redis.unlink(this.keys.terminal(terminalId));
  }
}
