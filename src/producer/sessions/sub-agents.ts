/**
 * Delivers the tasks and messages of sub-agents to the program with their parent's session: to one listening process, once. A message
 * stays in the agent's mailbox until a session listens.
 */
import { PawlError } from '../../shared/errors/failure.ts';
import type { SubAgentRecords } from '../../shared/store/sessions/sub-agents.ts';
import { type AgentOrder, type AgentReply, hasAnswered } from '../../shared/tools/sub-agent.ts';
import type { AgentEventOf } from './session-events.ts';

/** A session object that receives its sub-agents' events. */
interface AgentListener<Own> {
  readonly key: string;
  emit(name: 'agent', event: AgentEventOf<Own>, onFailure: () => void): void;
}

interface SubAgentServiceDeps<Own> {
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
  /** Received `closed` orders that were not delivered, because the agent's session could not be closed; by agent. */
  readonly #unclosed = new Map<string, AgentOrder>();
  /** The latest mailbox check of each session, by session key. */
  readonly #checks = new Map<string, Promise<void>>();

  constructor(deps: SubAgentServiceDeps<Own>) {
    this.#deps = deps;
  }

  listen(session: Own): void {
    const listeners = this.#listening.get(session.key) ?? new Set();
    this.#listening.set(session.key, listeners.add(session));
    this.#checkMailboxes(session.key);
  }

  unlisten(session: Own): void {
    const listeners = this.#listening.get(session.key);
    listeners?.delete(session);
    if (listeners?.size === 0) this.#listening.delete(session.key);
  }

  /** An agent has a new order. */
  onOrder(sessionKey: string, agentId: string): void {
    if (this.#listening.has(sessionKey)) this.#deliver(sessionKey, agentId).catch(this.#deps.onError);
  }

  /** Checks all mailboxes again, because broadcasts may have been missed. */
  catchUp(): void {
    for (const sessionKey of this.#listening.keys()) this.#checkMailboxes(sessionKey);
  }

  #checkMailboxes(sessionKey: string): void {
    const deliverAll = async () => {
      for (const agentId of await this.#deps.agents.list(sessionKey))
        await this.#deliver(sessionKey, agentId).catch(this.#deps.onError);
    };
    const check = deliverAll()
      .catch(this.#deps.onError)
      .finally(() => {
        if (this.#checks.get(sessionKey) === check) this.#checks.delete(sessionKey);
      });
    this.#checks.set(sessionKey, check);
  }

  /** Resolves when a new listener has received the waiting messages. */
  async checked(sessionKey: string): Promise<void> {
    await this.#checks.get(sessionKey);
  }

  async #deliver(sessionKey: string, agentId: string): Promise<void> {
    for (;;) {
      if (!this.#listening.has(sessionKey)) return;
      // The session is read first: an order that was taken from the mailbox must be delivered.
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

  /** Closes the agent's session, which cancels its calls. If Redis is unavailable, the order is retried later. */
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

  /** False when the agent has received another order meanwhile, or is closed. Throws `NOT_FOUND`. */
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
