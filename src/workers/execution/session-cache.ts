import type { SessionRecord } from '../../shared/sessions/session.ts';
import { SessionCache } from '../../shared/store/sessions/session-cache.ts';
import type { Sessions } from '../../shared/store/sessions/sessions.ts';
import { Remembered } from '../../shared/util/remembered.ts';
import { type Clock, systemClock } from '../../shared/util/time.ts';

const MAX_SESSIONS = 5_000;
/** Every call of a tool that may use a channel asks for the offered one. */
const OFFERED_CHANNEL_FRESH_MS = 100;

/** The sessions of the calls that this worker runs. */
export class WorkerSessions extends SessionCache {
  readonly #records: Sessions;
  readonly #offeredChannel: Remembered<SessionRecord['channel']>;

  constructor(records: Sessions, clock: Pick<Clock, 'monotonic'> = systemClock) {
    super(MAX_SESSIONS, clock);
    this.#records = records;
    this.#offeredChannel = new Remembered(() => records.offeredChannel(), OFFERED_CHANNEL_FRESH_MS, clock);
  }

  async find(sessionKey: string): Promise<SessionRecord | undefined> {
    return this.get(sessionKey) ?? this.keep(sessionKey, () => this.#records.read(sessionKey));
  }

  /** The channel of a session that names none, as front doors offered it at most 100 ms ago. */
  defaultChannel(session: SessionRecord): Promise<SessionRecord['channel']> {
    return this.#records.defaultChannel(session, () => this.#offeredChannel.get());
  }

  /** Records that a session has seen text from outside. */
  async taint(sessionKey: string, source: string, atMs: number): Promise<void> {
    const session = await this.find(sessionKey);
    if (session === undefined || session.taint?.some((mark) => mark.source === source) === true) return;
    await this.#records.taint(sessionKey, [source], atMs);
    this.forget(sessionKey);
  }
}
