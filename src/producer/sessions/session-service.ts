/** `pawl.sessions`: opens and finds sessions, changes their state and closes them. */
import { resolve } from 'node:path';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { tenantRoot } from '../../shared/policy/workspace-root.ts';
import { loadAjv } from '../../shared/schema/schema.ts';
import {
  newSession,
  type OpenSession,
  parseOpenSession,
  parseSessionState,
  type SessionRecord,
  sessionClosed,
  sessionTaken,
} from '../../shared/sessions/session.ts';
import { skillRule } from '../../shared/sessions/skill-rule.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { followAbove } from '../../shared/store/sessions/sessions.ts';
import { type Clock, uuidv7 } from '../../shared/util/time.ts';
import type { RecordOverride } from '../calls/audit.ts';
import { closeSessions } from './close-sessions.ts';
import { Session, type SessionHost } from './session.ts';
import type { ProducerSessions } from './session-cache.ts';
import { checkRequired, type Skills } from './skills.ts';

type SessionHostDeps = Omit<SessionHost, 'openSession' | 'closeSession' | 'setSessionState' | 'cancel'>;

interface SessionServiceDeps {
  readonly backend: Pick<Backend, 'ledger' | 'sessions' | 'shards'>;
  readonly settings: Settings;
  readonly cache: ProducerSessions;
  readonly skills: Skills;
  readonly host: SessionHostDeps;
  readonly clock: Clock;
  readonly defaultWorkspaceRoot: string;
  readonly recordOverride: RecordOverride;
  cancel: (callId: string, by?: string) => ReturnType<SessionHost['cancel']>;
}

export class SessionService {
  readonly host: SessionHost;
  readonly #deps: SessionServiceDeps;

  constructor(deps: SessionServiceDeps) {
    this.#deps = deps;
    this.host = {
      ...deps.host,
      cancel: (callId) => deps.cancel(callId),
      openSession: (open) => this.open(open),
      closeSession: (sessionKey) => this.close(sessionKey),
      setSessionState: (sessionKey, state) => this.setState(sessionKey, state),
    };
  }

  /**
   * Opens a session. Throws `CONTRACT_INVALID` for an invalid request, `UNKNOWN_SESSION` for an unknown parent, and `SESSION_CLOSED` for a
   * closed one.
   */
  async open(request: OpenSession = {}): Promise<Session> {
    const { backend, cache } = this.#deps;
    const record = await this.#newRecord(parseOpenSession(request));
    const { sessionKey, state } = request;
    const opened = await backend.sessions.create(record, sessionKey === undefined ? 'fresh' : undefined);
    if (opened === undefined) throw sessionTaken(record.sessionKey);
    const current = await followAbove(backend.sessions, opened, state === undefined);
    cache.remember(current);
    setImmediate(loadAjv).unref();
    return this.#objectFor(current);
  }

  /** A session as `open` would open it. Nothing is written. */
  draft(request: OpenSession): Promise<SessionRecord> {
    return this.#newRecord(parseOpenSession(request));
  }

  async #newRecord(request: ReturnType<typeof parseOpenSession>): Promise<SessionRecord> {
    const { backend, skills, host } = this.#deps;
    const parent = request.parent === undefined ? undefined : (await this.find(request.parent)).record;
    const sessionSkills = await skills.named(request.skills ?? []);
    const channel = request.channel ?? (await this.#defaultChannel(request));
    const tenantId = request.tenantId ?? parent?.tenantId;
    // A tenant's session does not share the folder of a parent of another tenant, or of none.
    const hasOwnRoot = tenantId !== parent?.tenantId && request.workspaceRoot === undefined;
    const record = newSession(
      {
        ...request,
        ...(channel !== undefined && { channel }),
        ...(hasOwnRoot ? { workspaceRoot: this.workspaceRoot(tenantId) } : {}),
      },
      parent,
      {
        sessionKey: uuidv7(),
        workspaceRoot: this.workspaceRoot(tenantId),
        createdAtMs: await backend.ledger.now(),
      },
      skillRule(sessionSkills),
    );
    if (sessionSkills.some(({ requiredTools }) => requiredTools.length > 0))
      checkRequired(sessionSkills, await host.publishedFor(record));
    return record;
  }

  /** A child session reaches people through its parent's channel; a worker session reaches none. */
  async #defaultChannel({ parent, kind }: ReturnType<typeof parseOpenSession>): Promise<SessionRecord['channel']> {
    return parent === undefined ? this.#deps.backend.sessions.defaultChannel({ kind }) : undefined;
  }

  #objectFor(record: SessionRecord): Session {
    return new Session(this.host, record, this.#deps.clock);
  }

  /** A session by its key. Throws `UNKNOWN_SESSION`. */
  async find(sessionKey: string): Promise<Session> {
    const record = await this.#deps.cache.find(sessionKey);
    if (record === undefined) throw unknownSession(sessionKey);
    return this.#objectFor(record);
  }

  /** The session of this key, opened when there is none. Throws `CONTRACT_INVALID` for an invalid request. */
  async findOrOpen(request: OpenSession & { readonly sessionKey: string }): Promise<Session> {
    const { sessionKey } = request;
    const known = await this.#deps.cache.find(sessionKey);
    if (known !== undefined) return this.#objectFor(known);
    return this.open(request).catch(async (error: unknown) => {
      if (!(error instanceof PawlError && error.code === 'CONTRACT_INVALID')) throw error;
      // Either another process opened it in between, or the request is invalid.
      const opened = await this.#deps.cache.find(sessionKey);
      if (opened === undefined) throw error;
      return this.#objectFor(opened);
    });
  }

  /** The records of all sessions, or of one tenant's, the newest first. */
  list(limit = 100, tenantId?: string): Promise<SessionRecord[]> {
    return this.#deps.backend.sessions.list(limit, tenantId);
  }

  /**
   * Changes the state of a session and of all sessions below it; policy may bind tools to states. Accepted calls go on. Throws
   * `UNKNOWN_SESSION`, `SESSION_CLOSED`, and `CONTRACT_INVALID` for a state that a session cannot have.
   */
  async setState(sessionKey: string, text: string, by?: string): Promise<SessionRecord> {
    const { sessions } = this.#deps.backend;
    const state = parseSessionState(text);
    const changed = await sessions.setState(sessionKey, state);
    if (changed === undefined) throw unknownSession(sessionKey);
    if (changed.state !== state) throw sessionClosed(sessionKey);
    await this.#changed(changed, 'session-state', state, by);
    await this.#changeBelow(changed, by);
    return changed;
  }

  /** Gives the state of a session to all below it. */
  async #changeBelow(changed: SessionRecord, by: string | undefined): Promise<void> {
    const { sessions } = this.#deps.backend;
    const { sessionKey, state } = changed;
    const changedKeys = new Set([sessionKey]);
    // The loop ends when there is no new descendant: a session that is opened meanwhile gets the state of its parent.
    for (
      let descendants = await sessions.tree(sessionKey);
      descendants.length > changedKeys.size;
      descendants = await sessions.tree(sessionKey)
    )
      for (const key of descendants.filter((each) => !changedKeys.has(each))) {
        changedKeys.add(key);
        const descendant = await sessions.setState(key, state);
        if (descendant?.state === state) await this.#changed(descendant, 'session-state', state, by);
      }
    // Another process may have changed the session meanwhile: the last one to finish gives its state to all.
    const current = await sessions.read(sessionKey);
    const isOther = current !== undefined && current.state !== state && current.state !== 'closed';
    if (isOther) await this.#changeBelow(current, by);
  }

  /** Closes a session and those below it: new calls are refused, and running ones cancelled. Throws `UNKNOWN_SESSION`. */
  async close(sessionKey: string, by?: string): Promise<void> {
    const { backend, settings, cancel } = this.#deps;
    if ((await backend.sessions.read(sessionKey)) === undefined) throw unknownSession(sessionKey);
    const closing = {
      backend,
      outcomeTtlMs: settings.ttl.doneMs,
      cancel: (callId: string) => cancel(callId, by),
      onClosed: (closed: SessionRecord) => this.#changed(closed, 'session-closed', 'close', by),
    };
    await closeSessions(closing, sessionKey);
  }

  async #changed(
    record: SessionRecord,
    what: 'session-state' | 'session-closed',
    action: string,
    by: string | undefined,
  ): Promise<void> {
    const { cache, recordOverride } = this.#deps;
    cache.remember(record);
    const { sessionKey, tenantId } = record;
    await recordOverride({ what, action, by, sessionKey, tenantId });
  }

  /** The default workspace of sessions. Each tenant has its own folder. */
  workspaceRoot(tenantId: string | undefined): string {
    return workspaceRootOf(this.#deps, tenantId);
  }
}

export function workspaceRootOf(
  { settings, defaultWorkspaceRoot }: Pick<SessionServiceDeps, 'settings' | 'defaultWorkspaceRoot'>,
  tenantId: string | undefined,
): string {
  return tenantId === undefined
    ? resolve(settings.workspaceRoot ?? defaultWorkspaceRoot)
    : tenantRoot(settings, tenantId);
}

function unknownSession(sessionKey: string): PawlError {
  return new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
}
