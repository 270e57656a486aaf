/** The sessions of local runs, in memory. */
import type { ToolCallEnvelope } from '../shared/calls/envelope.ts';
import { PawlError } from '../shared/errors/failure.ts';
import {
  newSession,
  type OpenSession,
  parseOpenSession,
  parseSessionState,
  requireUsable,
  type SessionRecord,
  sessionClosed,
  sessionTaken,
  withTaint,
} from '../shared/sessions/session.ts';
import { quoteValue } from '../shared/util/text/quote-value.ts';
import { type Clock, uuidv7 } from '../shared/util/time.ts';

export class LocalSessions {
  readonly #clock: Clock;
  readonly #workspaceRoot: string;
  readonly #records = new Map<string, SessionRecord>();

  constructor(clock: Clock, workspaceRoot: string) {
    this.#clock = clock;
    this.#workspaceRoot = workspaceRoot;
  }

  peek(sessionKey: string): SessionRecord | undefined {
    return this.#records.get(sessionKey);
  }

  /** Throws `UNKNOWN_SESSION`. */
  get(sessionKey: string): SessionRecord {
    const record = this.#records.get(sessionKey);
    if (record === undefined) throw new PawlError('UNKNOWN_SESSION', `There is no session ${quoteValue(sessionKey)}.`);
    return record;
  }

  /** The session of a new call. Throws if the session may not make calls. */
  ofCall({ target }: ToolCallEnvelope): SessionRecord {
    return requireUsable(this.get(target.sessionKey), target);
  }

  /** Throws `CONTRACT_INVALID` for an invalid request, and `UNKNOWN_SESSION` for an unknown parent. */
  open(open: OpenSession): SessionRecord {
    const request = parseOpenSession(open);
    const record = newSession(request, request.parent === undefined ? undefined : this.get(request.parent), {
      sessionKey: uuidv7(this.#clock),
      workspaceRoot: this.#workspaceRoot,
      createdAtMs: this.#clock.now(),
    });
    if (this.#records.has(record.sessionKey)) throw sessionTaken(record.sessionKey);
    this.#records.set(record.sessionKey, record);
    return record;
  }

  /** Sets the state of a session and its descendants. Throws `SESSION_CLOSED`, and `CONTRACT_INVALID` for an invalid state. */
  setState(sessionKey: string, state: string): SessionRecord {
    const record = this.get(sessionKey);
    if (record.state === 'closed') throw sessionClosed(sessionKey);
    const changed = { ...record, state: parseSessionState(state) };
    this.#records.set(sessionKey, changed);
    for (const child of this.#openChildren(sessionKey)) this.setState(child, state);
    return changed;
  }

  /** Closes a session and its descendants. Returns their keys. */
  close(sessionKey: string): readonly string[] {
    this.#records.set(sessionKey, { ...this.get(sessionKey), state: 'closed' });
    return [...this.#openChildren(sessionKey).flatMap((child) => this.close(child)), sessionKey];
  }

  taint(sessionKey: string, source: string, atMs: number): void {
    const record = this.#records.get(sessionKey);
    if (record !== undefined) this.#records.set(sessionKey, withTaint(record, [source], atMs));
  }

  #openChildren(sessionKey: string): readonly string[] {
    return [...this.#records.values()]
      .filter(({ parent, state }) => parent === sessionKey && state !== 'closed')
      .map((child) => child.sessionKey);
  }
}
