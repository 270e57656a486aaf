/**
 * Hands what sub-agents are told to the program that holds their parent's session (C18): to one process that listens, once. A
 * message waits in the agent's mailbox until somebody listens.
 */
import type { AgentMessage, AgentOrder, AgentReply } from '../shared/agent.ts';
import { PawlError } from '../shared/failure.ts';
import type { Agents } from '../shared/store/agents.ts';
import type { Session } from './session.ts';

/** Of `session.events.on('agent', …)`. */
export interface AgentEvent extends AgentOrder, AgentMessage {
  /** The agent's own session, of the kind worker: its calls go through it. */
  readonly session: Session;
}

export interface AgentDeskParts {
  readonly agents: Pick<Agents, 'list' | 'take' | 'putBack' | 'reply'>;
  session(sessionKey: string): Promise<Session>;
  closeSession(sessionKey: string): Promise<void>;
  onError(error: Error): void;
}

export class AgentDesk {
  readonly #parts: AgentDeskParts;
  /** By session: who listens here. The first one is told. */
  readonly #listening = new Map<string, Set<Session>>();

  constructor(parts: AgentDeskParts) {
    this.#parts = parts;
  }

  listen(session: Session): void {
    const listeners = this.#listening.get(session.key) ?? new Set();
    this.#listening.set(session.key, listeners.add(session));
    this.#lookAt(session.key);
  }

  unlisten(session: Session): void {
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
    look().catch(this.#parts.onError);
  }

  async #hand(sessionKey: string, agentId: string): Promise<void> {
    for (;;) {
      if (!this.#listening.has(sessionKey)) return;
      // First: an order that is taken is told now, or to nobody.
      const session = await this.#parts.session(agentId);
      const order = await this.#parts.agents.take(agentId, sessionKey);
      if (order === undefined) return;
      // What it had begun is cancelled.
      if (order.type === 'closed') await this.#parts.closeSession(agentId);
      const [listener] = this.#listening.get(sessionKey) ?? [];
      // Whoever listened may have had enough with another order meanwhile.
      if (listener === undefined) await this.#parts.agents.putBack(order, sessionKey);
      else listener.events.emit('agent', { ...order, session });
    }
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
