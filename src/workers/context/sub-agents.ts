/** The worker's side of the sub-agent tools: records and child sessions. The model runs where the session is held. */
import { PawlError, ToolError } from '../../shared/errors/failure.ts';
import { digest } from '../../shared/schema/canonical-json.ts';
import { newSession, parseOpenSession, type SessionRecord, sessionTaken } from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { followAbove } from '../../shared/store/sessions/sessions.ts';
import { type AgentMessage, type AgentReport, type Agents, hasAnswered } from '../../shared/tools/sub-agent.ts';

/** The most agents of one session, without closed ones. */
const MAX_AGENTS = 16;

interface AgentCaller {
  readonly callId: string;
  readonly generation: string;
  readonly session: SessionRecord;
}

export class WorkerAgents {
  readonly #backend: Pick<Backend, 'agents' | 'sessions' | 'ledger'>;

  constructor(backend: Pick<Backend, 'agents' | 'sessions' | 'ledger'>) {
    this.#backend = backend;
  }

  open(caller: AgentCaller): Agents {
    return {
      spawn: (message, agentType) =>
        this.#spawn(caller, { type: 'spawned', message, ...(agentType !== undefined && { agentType }) }),
      send: (agentId, message, interrupt = false) =>
        this.#send(caller, agentId, { type: 'input', message, ...(interrupt ? { interrupt } : {}) }),
      resume: (agentId) => this.#send(caller, agentId, { type: 'resumed' }),
      look: (agentIds) => this.#look(caller, agentIds),
      haveAnswered: async (agentIds) => {
        const job = { callId: caller.callId, generation: caller.generation };
        // Subscribe before reading, so that no answer is lost in between.
        await Promise.all(agentIds.map((agentId) => this.#backend.agents.await(agentId, job)));
        return (await this.#look(caller, agentIds)).some(({ state }) => hasAnswered(state));
      },
      close: async (agentId) => {
        const report = await this.#send(caller, agentId, { type: 'closed' });
        await this.#backend.sessions.close(agentId);
        return report;
      },
    };
  }

  async #spawn({ callId, session: cached }: AgentCaller, message: AgentMessage): Promise<AgentReport> {
    const { agents, sessions, ledger } = this.#backend;
    // The cached session may be older than its taint.
    const session = (await sessions.read(cached.sessionKey)) ?? cached;
    // A repeated attempt finds the agent that the previous one created.
    const agentId = `agent-${digest(callId).slice(0, 22)}`;
    const { sessionKey, workspaceRoot } = session;
    const options = parseOpenSession({ kind: 'worker', sessionKey: agentId, parent: sessionKey });
    const createdAtMs = await ledger.now();
    const child = newSession(options, session, { sessionKey: agentId, workspaceRoot, createdAtMs });
    const created = await sessions.create(child, 'fresh');
    if (created === undefined) await this.#requireOwnAgent(agentId, sessionKey);
    await followAbove(sessions, created ?? child, true);
    const spawned = await agents.spawn(agentId, sessionKey, message, MAX_AGENTS);
    if (spawned === 'full') {
      // A retry of the call may find free capacity.
      await sessions.takeBack(child);
      const open = await this.#openAgentIds(sessionKey);
      const message = `This session has ${MAX_AGENTS} agents already: ${open}. Close one of them first.`;
      throw new ToolError(message, { code: 'TOO_MANY_AGENTS', nothingHappened: true });
    }
    return this.#report(session, agentId);
  }

  /**
   * Throws `CONTRACT_INVALID` when the key belongs to another session. A session that knew the key beforehand would
   * receive everything that the agent calls.
   */
  async #requireOwnAgent(agentId: string, sessionKey: string): Promise<void> {
    const existing = await this.#backend.sessions.read(agentId);
    if (existing?.parent !== sessionKey || existing.kind !== 'worker') throw sessionTaken(agentId);
  }

  async #openAgentIds(sessionKey: string): Promise<string> {
    const { agents } = this.#backend;
    const agentIds = await agents.list(sessionKey);
    const reports = await Promise.all(agentIds.map((agentId) => agents.read(agentId, sessionKey)));
    const open = reports.filter((report) => report !== undefined && report.state !== 'closed');
    return open.map((report) => report?.agentId).join(', ');
  }

  async #send({ callId, session }: AgentCaller, agentId: string, message: AgentMessage): Promise<AgentReport> {
    if (message.message !== undefined) await this.#taint(session, agentId);
    const outcome = await this.#backend.agents.tell(agentId, session.sessionKey, callId, message);
    if (outcome === 'unknown') throw unknownAgent(agentId);
    if (outcome === 'closed' && message.type !== 'closed')
      throw new PawlError('NOT_FOUND', `The agent ${agentId} is closed. Spawn another one.`);
    return this.#report(session, agentId);
  }

  #look({ session }: AgentCaller, agentIds: readonly string[]): Promise<readonly AgentReport[]> {
    return Promise.all(agentIds.map((agentId) => this.#report(session, agentId)));
  }

  async #report({ sessionKey }: SessionRecord, agentId: string): Promise<AgentReport> {
    const { agents, sessions } = this.#backend;
    const report = await agents.read(agentId, sessionKey);
    if (report === undefined) throw unknownAgent(agentId);
    const agent = report.output === undefined ? undefined : await sessions.read(agentId);
    return agent?.taint === undefined ? report : { ...report, tainted: true };
  }

  /** The session may pass tainted text to its agent, so the agent's session inherits the taint. */
  async #taint({ sessionKey }: SessionRecord, agentId: string): Promise<void> {
    const { sessions, ledger } = this.#backend;
    const { parent } = (await sessions.read(agentId)) ?? {};
    const { taint } = (await sessions.read(sessionKey)) ?? {};
    if (parent !== sessionKey || taint === undefined) return;
    const sources = taint.map(({ source }) => source);
    await sessions.taint(agentId, sources, await ledger.now());
  }
}

function unknownAgent(agentId: string): PawlError {
  return new PawlError('NOT_FOUND', `This session has no agent ${JSON.stringify(agentId)}.`);
}
