import { defined } from '../shared/defined.ts';
import type { ToolCallEnvelope } from '../shared/envelope.ts';
import { type SessionRecord, usable } from '../shared/session.ts';
import type { Backend } from '../shared/store/backend.ts';
import { SessionCache } from '../shared/store/session-cache.ts';
import type { Clock } from '../shared/time.ts';

const MAX_SESSIONS = 10_000;

export interface KnownSessionsParts {
  readonly sessions: Backend['sessions'];
  readonly clock: Clock;
  /** Of sessions that nobody opened. */
  workspaceRoot(): string;
  /** Redis' clock, milliseconds. */
  now(): Promise<number>;
}

/** The sessions whose calls are handed in here. */
export class KnownSessions extends SessionCache {
  readonly #parts: KnownSessionsParts;

  constructor(parts: KnownSessionsParts) {
    super(MAX_SESSIONS);
    this.#parts = parts;
  }

  /**
   * The session that an envelope names. One that nobody opened is opened as a main session of that actor, and one that was `opened`
   * before, or known here, and is lost, as it was.
   */
  of(envelope: ToolCallEnvelope, opened?: SessionRecord): SessionRecord | Promise<SessionRecord> {
    const known = this.get(envelope.target.sessionKey);
    return known === undefined ? this.#findOrOpen(envelope, opened) : usable(known, envelope.target);
  }

  async #findOrOpen(envelope: ToolCallEnvelope, before: SessionRecord | undefined): Promise<SessionRecord> {
    const { target } = envelope;
    const known = this.last(target.sessionKey);
    const stored = await this.#read(target.sessionKey);
    if (stored !== undefined) return usable(stored, target);
    // Where its calls are is found out again.
    const { shards: _, ...record } = before ?? (known?.state === 'open' ? known : await this.#mainSession(target));
    const opened = await this.#parts.sessions.create(record);
    if (opened === undefined) return this.#findOrOpen(envelope, before);
    this.remember(opened);
    return usable(opened, target);
  }

  async #mainSession({ sessionKey, actorId, agentId, tenantId }: ToolCallEnvelope['target']): Promise<SessionRecord> {
    return defined<SessionRecord>({
      sessionKey,
      kind: 'main',
      state: 'open',
      actorId,
      agentId,
      tenantId,
      workspaceRoot: this.#parts.workspaceRoot(),
      createdAtMs: await this.#parts.now(),
    });
  }

  async find(sessionKey: string): Promise<SessionRecord | undefined> {
    const known = this.get(sessionKey);
    if (known === undefined) return this.#read(sessionKey);
    this.remember(known);
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
