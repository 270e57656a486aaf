import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import {
  OPEN_STATE,
  requireUsable,
  type SessionRecord,
  sessionClosed,
  withTaintsOf,
} from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { SessionCache } from '../../shared/store/sessions/session-cache.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { Clock } from '../../shared/util/time.ts';

const MAX_SESSIONS = 10_000;

export interface ProducerSessionsDeps {
  readonly sessions: Backend['sessions'];
  readonly clock: Clock;
  /** Of sessions that no caller opened. */
  workspaceRoot(tenantId: string | undefined): string;
  /** Redis' clock, milliseconds. */
  now(): Promise<number>;
}

/** The sessions whose calls are handed in here. */
export class ProducerSessions extends SessionCache {
  readonly #parts: ProducerSessionsDeps;

  constructor(parts: ProducerSessionsDeps) {
    super(MAX_SESSIONS, parts.clock);
    this.#parts = parts;
  }

  /**
   * The session that an envelope names. One that nobody opened is opened as a main session of that actor, and one that was `opened`
   * before, or known here, and is lost, as it was, with what it had seen by then. Throws `SESSION_CLOSED` for one that was closed.
   */
  of(envelope: ToolCallEnvelope, opened?: SessionRecord): SessionRecord | Promise<SessionRecord> {
    const known = this.get(envelope.target.sessionKey);
    return known === undefined ? this.#findOrOpen(envelope, opened) : requireUsable(known, envelope.target);
  }

  async #findOrOpen(envelope: ToolCallEnvelope, before: SessionRecord | undefined): Promise<SessionRecord> {
    const { target } = envelope;
    const known = this.last(target.sessionKey);
    const stored = await this.#read(target.sessionKey);
    if (stored !== undefined) return requireUsable(stored, target);
    if (known?.state === 'closed' || before?.state === 'closed') throw sessionClosed(target.sessionKey);
    const lost = before ?? known;
    // Where its calls are is found out again.
    const { shards: _, ...record } =
      lost === undefined
        ? await this.#mainSession(target)
        : withTaintsOf({ ...lost, state: known?.state ?? lost.state }, known);
    const opened = await this.#parts.sessions.create(record);
    if (opened === undefined) return this.#findOrOpen(envelope, before);
    this.remember(opened);
    return requireUsable(opened, target);
  }

  async #mainSession({ sessionKey, actorId, agentId, tenantId }: ToolCallEnvelope['target']): Promise<SessionRecord> {
    return defined<SessionRecord>({
      sessionKey,
      kind: 'main',
      state: OPEN_STATE,
      actorId,
      agentId,
      tenantId,
      workspaceRoot: this.#parts.workspaceRoot(tenantId),
      createdAtMs: await this.#parts.now(),
    });
  }

  /** One that Redis has lost is known here as it was: whoever opened its key as another one could do more with it. */
  async find(sessionKey: string): Promise<SessionRecord | undefined> {
    const known = this.get(sessionKey);
    if (known === undefined) return (await this.#read(sessionKey)) ?? this.last(sessionKey);
    this.use(sessionKey);
    return known;
  }

  #read(sessionKey: string): Promise<SessionRecord | undefined> {
    return this.keep(sessionKey, () => this.#parts.sessions.read(sessionKey));
  }

  /** The news of it may still be on their way: whoever has a result from outside is judged by it from then on. */
  async taint(sessionKey: string, source: string): Promise<void> {
    const { sessions, clock } = this.#parts;
    if (this.get(sessionKey)?.taint?.some((seen) => seen.source === source) === true) return;
    await this.keep(sessionKey, () => sessions.taint(sessionKey, [source], clock.now()));
  }
}
