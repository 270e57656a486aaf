/** Messages of tools to the people of a session whose channel is Pawl's own: the newest ones, for a day. */
import type { ChannelMessage } from '../../tools/capabilities.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';

const addScript = new Script(new URL('./message-add.lua', import.meta.url), [], 'once');

const KEPT = 200;
const KEPT_MS = 24 * 3_600_000;

interface SessionMessage extends ChannelMessage {
  /** The session and call that said it. */
  readonly from: string;
  readonly callId: string;
  readonly sentAtMs: number;
}

export class Messages extends FleetRecords {
  async add(sessionKey: string, message: SessionMessage): Promise<void> {
    await addScript.run(this.redis, [this.keys.messages(sessionKey)], [JSON.stringify(message), KEPT, KEPT_MS]);
  }

  /** The oldest first. */
  async list(sessionKey: string): Promise<SessionMessage[]> {
    const stored = await this.redis.lrange(this.keys.messages(sessionKey), 0, -1);
    return stored.map(parseJson).filter(isObject) as unknown as SessionMessage[];
  }
}
