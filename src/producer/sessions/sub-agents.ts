/**
 * Hands what sub-agents are told to the program that holds their parent's session (C18): to one process that listens, once. A
 * message waits in the agent's mailbox until somebody listens.
 */

import { PawlError } from '../../shared/errors/failure.ts';
import type { Agents } from '../../shared/store/sessions/sub-agents.ts';
import { type AgentOrder, type AgentReply, hasAnswered } from '../../shared/tools/sub-agent.ts';
import type { AgentEventOf } from './session-events.ts';

/** The side of a session object that hears of its sub-agents. */
export interface AgentListener<Own> {
  readonly key: string;
  emit(name: 'agent', event: AgentEventOf<Own>, onFailure: () => void): void;
}

export interface SubAgentServiceDeps<Own> {
  readonly agents: Pick<Agents, 'list' | 'take' | 'putBack' | 'read' | 'reply'>;
  session(sessionKey: string): Promise<Own>;
  closeSession(sessionKey: string): Promise<void>;
  onError(error: Error): void;
}

const BROKE_OFF = 'The program that runs this agent failed before it had an answer.';

export class SubAgentService<Own extends AgentListener<Own>> {
  readonly #parts: SubAgentServiceDeps<Own>;
  /** By session: who listens here. The first one is told. */
  readonly #listening = new Map<string, Set<Own>>();
  /** By agent: that it is closed, which was taken and not told, because its session could not be closed. */
  readonly #unclosed = new Map<string, AgentOrder>();
  /** By session: the newest look at what its agents were told before. */
  readonly #looks = new Map<string, Promise<void>>();

  constructor(parts: SubAgentServiceDeps<Own>) {
    this.#parts = parts;
  }

  listen(session: Own): void {
    const listeners = this.#listening.get(session.key) ?? new Set();
    this.#listening.set(session.key, listeners.add(session));
    this.#lookAt(session.key);
  }

  unlisten(session: Own): void {
    const listeners = this.#listening.get(session.key);
    listeners?.delete(session);
    if (listeners?.size === 0) this.#listening.delete(session.key);
  }

  /** Something became of an agent. */
  hear(sessionKey: string, agentId: string): void {
    if (this.#listening.has(sessionKey)) this.#hand(sessionKey, agentId).catch(this.#parts.onError);
  }

  /** News may have been missed. */
  catchUp(): void {
    for (const sessionKey of this.#listening.keys()) this.#lookAt(sessionKey);
  }

  #lookAt(sessionKey: string): void {
    const look = async () => {
      for (const agentId of await this.#parts.agents.list(sessionKey))
        await this.#hand(sessionKey, agentId).catch(this.#parts.onError);
    };
    const looking = look()
      .catch(this.#parts.onError)
      .finally(() => {
        if (this.#looks.get(sessionKey) === looking) this.#looks.delete(sessionKey);
      });
    this.#looks.set(sessionKey, looking);
  }

  /** Until whoever listens has been told what waited when they began to. */
  async looked(sessionKey: string): Promise<void> {
    await this.#looks.get(sessionKey);
  }

  async #hand(sessionKey: string, agentId: string): Promise<void> {
    for (;;) {
      if (!this.#listening.has(sessionKey)) return;
      // First: an order that is taken is told now, or to nobody.
      const session = await this.#parts.session(agentId);
      const order = await this.#next(agentId, sessionKey);
      if (order === undefined) return;
      if (order.type === 'closed') await this.#close(order);
      const [listener] = this.#listening.get(sessionKey) ?? [];
      // Whoever listened may have had enough with another order meanwhile.
      if (listener === undefined) await this.#parts.agents.putBack(order, sessionKey);
      else
        listener.emit('agent', { ...order, session }, () => {
          this.#failed(order, sessionKey).catch(this.#parts.onError);
        });
    }
  }

  /** What it had begun is cancelled; where that cannot be done now, the order waits here: Redis may be out of reach. */
  async #close(order: AgentOrder): Promise<void> {
    try {
      await this.#parts.closeSession(order.agentId);
    } catch (error) {
      if (error instanceof PawlError && error.code === 'UNKNOWN_SESSION') return;
      this.#unclosed.set(order.agentId, order);
      throw error;
    }
  }

  async #next(agentId: string, sessionKey: string): Promise<AgentOrder | undefined> {
    const unclosed = this.#unclosed.get(agentId);
    this.#unclosed.delete(agentId);
    return unclosed ?? this.#parts.agents.take(agentId, sessionKey);
  }

  /** The program broke off before it replied, and will not any more: whoever waits for the agent is told so. */
  async #failed(order: AgentOrder, parent: string): Promise<void> {
    const report = await this.#parts.agents.read(order.agentId, parent);
    if (report === undefined || hasAnswered(report.state)) return;
    await this.#parts.agents.reply(order, parent, { state: 'failed', output: BROKE_OFF });
  }

  /** False when the agent has got more to do meanwhile, or is closed. Throws `NOT_FOUND`. */
  async reply(parent: string, order: AgentOrder, reply: AgentReply): Promise<boolean> {
    const replied = await this.#parts.agents.reply(order, parent, reply);
    if (replied === 'unknown')
      throw new PawlError('NOT_FOUND', `The session has no agent ${JSON.stringify(order.agentId)}.`);
    return replied === 'replied';
  }

  close(): void {
    this.#listening.clear();
  }
}
