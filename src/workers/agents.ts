/** What the tools for sub-agents do on a worker: records and child sessions. The thinking happens where the session is held. */
import { type AgentMessage, type AgentReport, type Agents, hasAnswered } from '../shared/agent.ts';
import { PawlError, ToolError } from '../shared/failure.ts';
import { digest } from '../shared/fingerprint.ts';
import { newSession, parseOpenSession, type SessionRecord } from '../shared/session.ts';
import type { Backend } from '../shared/store/backend.ts';

/** Of one session, closed ones not counted. */
const MAX_AGENTS = 16;
/** News may be lost: whoever waits looks by itself now and then. */
const LOOK_MS = 2_000;

export interface AgentCaller {
  readonly callId: string;
  readonly session: SessionRecord;
  readonly signal: AbortSignal;
}

export class WorkerAgents {
  readonly #backend: Pick<Backend, 'agents' | 'sessions' | 'ledger'>;
  readonly #waiting = new Map<string, Set<() => void>>();

  constructor(backend: Pick<Backend, 'agents' | 'sessions' | 'ledger'>) {
    this.#backend = backend;
  }

  /** Something became of an agent. */
  heard(agentId: string): void {
    for (const wake of this.#waiting.get(agentId) ?? []) wake();
  }

  open(caller: AgentCaller): Agents {
    return {
      spawn: (message, agentType) =>
        this.#spawn(caller, { type: 'spawned', message, ...(agentType === undefined ? {} : { agentType }) }),
      send: (agentId, message, interrupt = false) =>
        this.#tell(caller, agentId, { type: 'input', message, ...(interrupt ? { interrupt } : {}) }),
      resume: (agentId) => this.#tell(caller, agentId, { type: 'resumed' }),
      wait: (agentIds, timeoutMs) => this.#wait(caller, agentIds, timeoutMs),
      close: async (agentId) => {
        const report = await this.#tell(caller, agentId, { type: 'closed' });
        await this.#backend.sessions.close(agentId);
        return report;
      },
    };
  }

  async #spawn({ callId, session: known }: AgentCaller, message: AgentMessage): Promise<AgentReport> {
    const { agents, sessions, ledger } = this.#backend;
    // What this worker remembers of the session may be from before it saw text from outside.
    const session = (await sessions.read(known.sessionKey)) ?? known;
    // An attempt that runs again finds what the one before made.
    const agentId = `agent-${digest(callId).slice(0, 22)}`;
    const { sessionKey, workspaceRoot } = session;
    const asked = parseOpenSession({ kind: 'worker', sessionKey: agentId, parent: sessionKey });
    const createdAtMs = await ledger.now();
    await sessions.create(newSession(asked, session, { sessionKey: agentId, workspaceRoot, createdAtMs }));
    const spawned = await agents.spawn(agentId, sessionKey, message, MAX_AGENTS);
    if (spawned === 'full') {
      await sessions.close(agentId);
      const open = (await agents.list(sessionKey)).join(', ');
      throw new ToolError(`This session has ${MAX_AGENTS} agents already: ${open}. Close one of them first.`, {
        code: 'TOO_MANY_AGENTS',
        nothingHappened: true,
      });
    }
    return this.#report(session, agentId);
  }

  async #tell({ callId, session }: AgentCaller, agentId: string, message: AgentMessage): Promise<AgentReport> {
    if (message.message !== undefined) await this.#taint(session, agentId);
    const told = await this.#backend.agents.tell(agentId, session.sessionKey, callId, message);
    if (told === 'unknown') throw noAgent(agentId);
    if (told === 'closed' && message.type !== 'closed')
      throw new PawlError('NOT_FOUND', `The agent ${agentId} is closed. Spawn another one.`);
    return this.#report(session, agentId);
  }

  async #report({ sessionKey }: SessionRecord, agentId: string): Promise<AgentReport> {
    const { agents, sessions } = this.#backend;
    const report = await agents.read(agentId, sessionKey);
    if (report === undefined) throw noAgent(agentId);
    const agent = report.output === undefined ? undefined : await sessions.read(agentId);
    return agent?.taint === undefined ? report : { ...report, tainted: true };
  }

  /** What the session has seen may stand in what it tells its agent. */
  async #taint({ sessionKey }: SessionRecord, agentId: string): Promise<void> {
    const { sessions, ledger } = this.#backend;
    const { parent } = (await sessions.read(agentId)) ?? {};
    const { taint } = (await sessions.read(sessionKey)) ?? {};
    if (parent !== sessionKey || taint === undefined) return;
    const sources = taint.map(({ source }) => source);
    await sessions.taint(agentId, sources, await ledger.now());
  }

  async #wait(
    { session, signal }: AgentCaller,
    agentIds: readonly string[],
    timeoutMs: number,
  ): Promise<readonly AgentReport[]> {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      // Listening begins before looking, so that nothing falls between the two.
      const news = this.#listen(agentIds, signal);
      try {
        const reports = await Promise.all(agentIds.map((agentId) => this.#report(session, agentId)));
        const leftMs = deadlineMs - performance.now();
        if (leftMs <= 0 || reports.some(({ state }) => hasAnswered(state))) return reports;
        await news.within(Math.min(leftMs, LOOK_MS));
      } finally {
        news.stop();
      }
    }
  }

  #listen(agentIds: readonly string[], signal: AbortSignal) {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onAbort = () => reject(signal.reason);
    let timer: NodeJS.Timeout | undefined;
    promise.catch(() => undefined);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    for (const agentId of agentIds) {
      const listeners = this.#waiting.get(agentId) ?? new Set();
      this.#waiting.set(agentId, listeners.add(resolve));
    }
    return {
      within: (limitMs: number): Promise<void> => {
        timer = setTimeout(resolve, limitMs);
        return promise;
      },
      stop: (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        for (const agentId of agentIds) {
          const listeners = this.#waiting.get(agentId);
          listeners?.delete(resolve);
          if (listeners?.size === 0) this.#waiting.delete(agentId);
        }
      },
    };
  }
}

function noAgent(agentId: string): PawlError {
  return new PawlError('NOT_FOUND', `This session has no agent ${JSON.stringify(agentId)}.`);
}
