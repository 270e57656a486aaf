/**
 * Delivers the tasks and messages of sub-agents to the program that holds their parent's session: to one listening process, once. A message
 * waits in the agent's mailbox until a session listens.
 */

import { PawlError } from '../../shared/errors/failure.ts';
import type { SubAgentRecords } from '../../shared/store/sessions/sub-agents.ts';
import { type AgentOrder, type AgentReply, hasAnswered } from '../../shared/tools/sub-agent.ts';
import type { AgentEventOf } from './session-events.ts';

/** A session object that receives its sub-agents' events. */
export interface AgentListener<Own> {
  readonly key: string;
  emit(name: 'agent', event: AgentEventOf<Own>, onFailure: () => void): void;
}

export interface SubAgentServiceDeps<Own> {
  readonly agents: Pick<SubAgentRecords, 'list' | 'take' | 'putBack' | 'read' | 'reply'>;
  session(sessionKey: string): Promise<Own>;
  closeSession(sessionKey: string): Promise<void>;
  onError(error: Error): void;
}

const BROKE_OFF = 'The program that runs this agent failed before it had an answer.';

export class SubAgentService<Own extends AgentListener<Own>> {
  readonly #deps: SubAgentServiceDeps<Own>;
  /** The listening session objects, by session key. The first one receives the events. */
  readonly #listening = new Map<string, Set<Own>>();
  /** Taken `closed` orders that were not delivered, because the agent's session could not be closed; by agent. */
  readonly #unclosed = new Map<string, AgentOrder>();
  /** The latest mailbox check of each session, by session key. */
  readonly #looks = new Map<string, Promise<void>>();

  constructor(deps: SubAgentServiceDeps<Own>) {
    this.#deps = deps;
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

  /** An agent has a new order. */
  hear(sessionKey: string, agentId: string): void {
    if (this.#listening.has(sessionKey)) this.#hand(sessionKey, agentId).catch(this.#deps.onError);
  }

  /** Checks all mailboxes again: broadcasts may have been missed. */
  catchUp(): void {
    for (const sessionKey of this.#listening.keys()) this.#lookAt(sessionKey);
  }

  #lookAt(sessionKey: string): void {
    const look = async () => {
      for (const agentId of await this.#deps.agents.list(sessionKey))
        await this.#hand(sessionKey, agentId).catch(this.#deps.onError);
    };
    const looking = look()
      .catch(this.#deps.onError)
      .finally(() => {
        if (this.#looks.get(sessionKey) === looking) this.#looks.delete(sessionKey);
      });
    this.#looks.set(sessionKey, looking);
  }

  /** Resolves when a new listener has received what waited in the mailboxes. */
  async looked(sessionKey: string): Promise<void> {
    await this.#looks.get(sessionKey);
  }

  async #hand(sessionKey: string, agentId: string): Promise<void> {
    for (;;) {
      if (!this.#listening.has(sessionKey)) return;
      // The session is read first: a taken order must be delivered.
      const session = await this.#deps.session(agentId);
      const order = await this.#next(agentId, sessionKey);
      if (order === undefined) return;
      if (order.type === 'closed') await this.#close(order);
      const [listener] = this.#listening.get(sessionKey) ?? [];
      // The listener may have been removed while an earlier order was delivered.
      if (listener === undefined) await this.#deps.agents.putBack(order, sessionKey);
      else
        listener.emit('agent', { ...order, session }, () => {
          this.#failed(order, sessionKey).catch(this.#deps.onError);
        });
    }
  }

  /** Cancels the agent's calls. If Redis is unavailable, the order waits here. */
  async #close(order: AgentOrder): Promise<void> {
    try {
      await this.#deps.closeSession(order.agentId);
    } catch (error) {
      if (error instanceof PawlError && error.code === 'UNKNOWN_SESSION') return;
      this.#unclosed.set(order.agentId, order);
      throw error;
    }
  }

  async #next(agentId: string, sessionKey: string): Promise<AgentOrder | undefined> {
    const unclosed = this.#unclosed.get(agentId);
    this.#unclosed.delete(agentId);
    return unclosed ?? this.#deps.agents.take(agentId, sessionKey);
  }

  /** The program failed before it replied. The caller that waits for the agent gets an error. */
  async #failed(order: AgentOrder, parent: string): Promise<void> {
    const report = await this.#deps.agents.read(order.agentId, parent);
    if (report === undefined || hasAnswered(report.state)) return;
    await this.#deps.agents.reply(order, parent, { state: 'failed', output: BROKE_OFF });
  }

  /** False when the agent has got more to do meanwhile, or is closed. Throws `NOT_FOUND`. */
  async reply(parent: string, order: AgentOrder, reply: AgentReply): Promise<boolean> {
    const replied = await this.#deps.agents.reply(order, parent, reply);
    if (replied === 'unknown')
      throw new PawlError('NOT_FOUND', `The session has no agent ${JSON.stringify(order.agentId)}.`);
    return replied === 'replied';
  }

  close(): void {
    this.#listening.clear();
  }
}
