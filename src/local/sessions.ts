/** The sessions of runs without a fleet: they live in this process. */

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
    if (record === undefined)
      throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
    return record;
  }

  /** The session of a new call. Throws for one that may not call. */
  ofCall({ target }: ToolCallEnvelope): SessionRecord {
    return requireUsable(this.get(target.sessionKey), target);
  }

  /** Throws `CONTRACT_INVALID` for what cannot be a session, and `UNKNOWN_SESSION` for an unknown parent. */
  open(open: OpenSession): SessionRecord {
    const asked = parseOpenSession(open);
    const record = newSession(asked, asked.parent === undefined ? undefined : this.get(asked.parent), {
      sessionKey: uuidv7(this.#clock),
      workspaceRoot: this.#workspaceRoot,
      createdAtMs: this.#clock.now(),
    });
    if (this.#records.has(record.sessionKey)) throw sessionTaken(record.sessionKey);
    this.#records.set(record.sessionKey, record);
    return record;
  }

  /** Sets the state of a session and of those below it. Throws `SESSION_CLOSED`, and `CONTRACT_INVALID` for an unfit state. */
  setState(sessionKey: string, state: string): SessionRecord {
    const record = this.get(sessionKey);
    if (record.state === 'closed') throw sessionClosed(sessionKey);
    const changed = { ...record, state: parseSessionState(state) };
    this.#records.set(sessionKey, changed);
    for (const below of this.#openBelow(sessionKey)) this.setState(below, state);
    return changed;
  }

  /** Closes a session and those below it. The answer is their keys. */
  close(sessionKey: string): readonly string[] {
    this.#records.set(sessionKey, { ...this.get(sessionKey), state: 'closed' });
    return [...this.#openBelow(sessionKey).flatMap((below) => this.close(below)), sessionKey];
  }

  taint(sessionKey: string, source: string, atMs: number): void {
    const record = this.#records.get(sessionKey);
    if (record !== undefined) this.#records.set(sessionKey, withTaint(record, [source], atMs));
  }

  #openBelow(sessionKey: string): readonly string[] {
    return [...this.#records.values()]
      .filter(({ parent, state }) => parent === sessionKey && state !== 'closed')
      .map((below) => below.sessionKey);
  }
}
