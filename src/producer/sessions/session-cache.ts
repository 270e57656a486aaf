/**
 * The producer's sessions: a bounded copy of their records, which broadcasts keep up to date.
 */
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
/** A session that is used lives longer than this. */
const KEPT_ANYWAY_MS = 10 * 24 * 3_600_000;

export interface ProducerSessionsDeps {
  readonly sessions: Backend['sessions'];
  readonly clock: Clock;
  /** The workspace root of a session that a call opens by naming it. */
  workspaceRoot(tenantId: string | undefined): string;
  /** Redis' clock, milliseconds. */
  now(): Promise<number>;
}

/** The sessions whose calls this process submits. */
export class ProducerSessions extends SessionCache {
  readonly #deps: ProducerSessionsDeps;

  constructor(deps: ProducerSessionsDeps) {
    super(MAX_SESSIONS, deps.clock);
    this.#deps = deps;
  }

  /** The session that an envelope names, if it is known here and need not be read. Throws `SESSION_CLOSED` for one that was closed. */
  peekOf({ target }: ToolCallEnvelope): SessionRecord | undefined {
    const known = this.peek(target.sessionKey);
    return known === undefined ? undefined : requireUsable(known, target);
  }

  /**
   * The session that an envelope names. An unknown key opens a main session of that actor. A session that Redis has lost is written again
   * as it was `opened`, or as it is known here, with the taint it had by then. Throws `SESSION_CLOSED` for one that was closed.
   */
  async of(envelope: ToolCallEnvelope, opened?: SessionRecord): Promise<SessionRecord> {
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
    // The store assigns the shards again.
    const { shards: _, ...record } =
      lost === undefined
        ? await this.#mainSession(target)
        : withTaintsOf({ ...lost, state: known?.state ?? lost.state }, known);
    const opened = await this.#deps.sessions.create(record);
    if (opened === undefined) return this.#findOrOpen(envelope, before);
    this.remember(opened);
    return requireUsable(opened, target);
  }

  /** Keeps a session until a call of it starts, if that is further off than it lives anyway. */
  async keepUntil(session: SessionRecord, untilMs: number): Promise<void> {
    const { sessions, clock } = this.#deps;
    if (untilMs - clock.now() > KEPT_ANYWAY_MS) await sessions.keepUntil(session, untilMs);
  }

  async #mainSession({ sessionKey, actorId, agentId, tenantId }: ToolCallEnvelope['target']): Promise<SessionRecord> {
    return defined<SessionRecord>({
      sessionKey,
      kind: 'main',
      state: OPEN_STATE,
      actorId,
      agentId,
      tenantId,
      workspaceRoot: this.#deps.workspaceRoot(tenantId),
      createdAtMs: await this.#deps.now(),
    });
  }

  /** A session that Redis has lost is found as it was known here: opening its key as another session could allow more. */
  async find(sessionKey: string): Promise<SessionRecord | undefined> {
    const known = this.get(sessionKey);
    if (known === undefined) return (await this.#read(sessionKey)) ?? this.last(sessionKey);
    this.use(sessionKey);
    return known;
  }

  #read(sessionKey: string): Promise<SessionRecord | undefined> {
    return this.keep(sessionKey, () => this.#deps.sessions.read(sessionKey));
  }

  /**
   * Marks a session that has seen data from outside. Policy judges its next call by the mark, although the broadcast may still be on its
   * way.
   */
  async taint(sessionKey: string, source: string): Promise<void> {
    const { sessions, clock } = this.#deps;
    if (this.get(sessionKey)?.taint?.some((seen) => seen.source === source) === true) return;
    await this.keep(sessionKey, () => sessions.taint(sessionKey, [source], clock.now()));
  }
}
