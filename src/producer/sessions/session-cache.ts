/** The producer's session cache: a bounded number of records, which broadcasts keep up to date. */
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import {
  mergeTaint,
  OPEN_STATE,
  requireUsable,
  type SessionRecord,
  sessionClosed,
} from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { SessionCache } from '../../shared/store/sessions/session-cache.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { Clock } from '../../shared/util/time.ts';

const MAX_SESSIONS = 10_000;
/** The record of an active session expires later than this. */
const MIN_LIFETIME_MS = 10 * 24 * 3_600_000;

interface ProducerSessionsDeps {
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

  /** The envelope's session, if it is cached. Throws `SESSION_CLOSED` for a closed one. */
  peekOf({ target }: ToolCallEnvelope): SessionRecord | undefined {
    const cached = this.peek(target.sessionKey);
    return cached === undefined ? undefined : requireUsable(cached, target);
  }

  /**
   * The envelope's session. An unknown key opens a main session of that actor. A session that Redis has lost is written again as it was
   * `opened`, or from the cache, with its taint. Throws `SESSION_CLOSED` for a closed one.
   */
  async resolve(envelope: ToolCallEnvelope, opened?: SessionRecord): Promise<SessionRecord> {
    const cached = this.get(envelope.target.sessionKey);
    return cached === undefined ? this.#findOrOpen(envelope, opened) : requireUsable(cached, envelope.target);
  }

  async #findOrOpen(envelope: ToolCallEnvelope, original: SessionRecord | undefined): Promise<SessionRecord> {
    const { target } = envelope;
    const cached = this.last(target.sessionKey);
    const stored = await this.#read(target.sessionKey);
    if (stored !== undefined) return requireUsable(stored, target);
    if (cached?.state === 'closed' || original?.state === 'closed') throw sessionClosed(target.sessionKey);
    const lost = original ?? cached;
    // The store assigns the shards again.
    const { shards: _, ...record } =
      lost === undefined
        ? await this.#mainSession(target)
        : mergeTaint({ ...lost, state: cached?.state ?? lost.state }, cached);
    const opened = await this.#deps.sessions.create(record);
    if (opened === undefined) return this.#findOrOpen(envelope, original);
    this.remember(opened);
    return requireUsable(opened, target);
  }

  /** Retains a session until its delayed call starts, if that is after its usual expiry. */
  async keepUntil(session: SessionRecord, untilMs: number): Promise<void> {
    const { sessions, clock } = this.#deps;
    if (untilMs - clock.now() > MIN_LIFETIME_MS) await sessions.keepUntil(session, untilMs);
  }

  async #mainSession({ sessionKey, actorId, agentId, tenantId }: ToolCallEnvelope['target']): Promise<SessionRecord> {
    return defined({
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

  /** A session that Redis has lost is taken from the cache: opening its key as a new session could allow more. */
  async find(sessionKey: string): Promise<SessionRecord | undefined> {
    const cached = this.get(sessionKey);
    if (cached === undefined) return (await this.#read(sessionKey)) ?? this.last(sessionKey);
    this.use(sessionKey);
    return cached;
  }

  #read(sessionKey: string): Promise<SessionRecord | undefined> {
    return this.keep(sessionKey, () => this.#deps.sessions.read(sessionKey));
  }

  /** Records that a session has seen data from outside. Policy applies it to the next call here at once, before the broadcast arrives. */
  async taint(sessionKey: string, source: string): Promise<void> {
    const { sessions, clock } = this.#deps;
    if (this.get(sessionKey)?.taint?.some((mark) => mark.source === source) === true) return;
    await this.keep(sessionKey, () => sessions.taint(sessionKey, [source], clock.now()));
  }
}
