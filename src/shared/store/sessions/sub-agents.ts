/** The records of sub-agents, each with a mailbox. Messages are signed, and every change is broadcast. */

import type { AgentMessage, AgentOrder, AgentReply, AgentReport, AgentState } from '../../tools/sub-agent.ts';
import { asText } from '../../util/text/quote-value.ts';
import { wellFormed } from '../../util/text/text-cut.ts';
import { uuidv7 } from '../../util/time.ts';
import { type CallJob, jobIdOf } from '../queues/jobs.ts';
import { promote } from '../queues/promote.ts';
import type { Broadcast } from '../redis/broadcasts.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { signedMessage, verifiedMessage } from '../signing/signed-text.ts';

const spawnScript = new Script(new URL('./agent-spawn.lua', import.meta.url), [], 'once');
const tellScript = new Script(new URL('./agent-tell.lua', import.meta.url), [], 'once');
const takeScript = new Script(new URL('./agent-take.lua', import.meta.url));
const putBackScript = new Script(new URL('./agent-put-back.lua', import.meta.url), [], 'once');
const replyScript = new Script(new URL('./agent-reply.lua', import.meta.url), [], 'once');

/** After the last message or reply. */
const KEPT_MS = 7 * 24 * 3_600_000;
/** A call that waits says so again, more often than that. */
const AWAITED_MS = 600_000;

export class SubAgentRecords extends FleetRecords {
  /** By agent: what was asked for here last, and was not answered. It may have been taken. */
  readonly #unanswered = new Map<string, string>();

  async spawn(
    agentId: string,
    parent: string,
    message: AgentMessage,
    limit: number,
  ): Promise<'spawned' | 'exists' | 'full'> {
    const keys = this.#partitions(agentId, parent);
    const signed = this.#signed(agentId, message);
    const broadcast = this.#broadcast(agentId, parent);
    const args = [agentId, parent, limit, signed, KEPT_MS, ...broadcast, this.keys.agent('')];
    const [code] = await spawnScript.run(this.redis, keys, args);
    return code as 'spawned' | 'exists' | 'full';
  }

  /** Sends a message to the agent. `messageId`: a message that is sent twice arrives once. */
  async tell(
    agentId: string,
    parent: string,
    messageId: string,
    message: AgentMessage,
  ): Promise<'sent' | 'again' | 'unknown' | 'closed'> {
    const keys = [...this.#partitions(agentId, parent), this.keys.agentAwaited(agentId)];
    const signed = this.#signed(agentId, message);
    const args = [parent, messageId, message.type, signed, KEPT_MS, ...this.#broadcast(agentId, parent)];
    const [code, ...awaiting] = await tellScript.run(this.redis, keys, args);
    await this.#promote(awaiting as string[]);
    return code as 'sent' | 'again' | 'unknown' | 'closed';
  }

  /** Takes the oldest message; one caller gets it. */
  async take(agentId: string, parent: string): Promise<AgentOrder | undefined> {
    for (;;) {
      const entry = await this.#takeEntry(agentId, parent);
      if (typeof entry !== 'string') return undefined;
      const space = entry.indexOf(' ');
      const message = this.#opened(agentId, entry.slice(space + 1)) as AgentMessage | undefined;
      if (message !== undefined) return { ...message, agentId, turn: Number(entry.slice(0, space)) };
    }
  }

  async #takeEntry(agentId: string, parent: string): Promise<unknown> {
    const token = this.#unanswered.get(agentId) ?? uuidv7();
    // A concurrent caller uses a token of its own.
    this.#unanswered.delete(agentId);
    try {
      const [entry] = await takeScript.run(this.redis, this.#partitions(agentId, parent), [agentId, token]);
      return entry;
    } catch (error) {
      this.#unanswered.set(agentId, token);
      throw error;
    }
  }

  /** Returns a message that was taken and not delivered: it waits again, before all others. */
  async putBack({ agentId, turn, ...message }: AgentOrder, parent: string): Promise<void> {
    const args = [agentId, `${turn} ${this.#signed(agentId, message)}`, KEPT_MS, ...this.#broadcast(agentId, parent)];
    await putBackScript.run(this.redis, this.#partitions(agentId, parent), args);
  }

  async reply(
    { agentId, turn }: AgentOrder,
    parent: string,
    reply: AgentReply,
  ): Promise<'replied' | 'late' | 'unknown'> {
    const signed = this.#signed(agentId, { ...reply, turn });
    const args = [parent, turn, reply.state, signed, KEPT_MS, ...this.#broadcast(agentId, parent)];
    const keys = [this.keys.agent(agentId), this.keys.agentAwaited(agentId)];
    const [code, ...awaiting] = await replyScript.run(this.redis, keys, args);
    await this.#promote(awaiting as string[]);
    return code as 'replied' | 'late' | 'unknown';
  }

  /** Promotes the call's job when the agent replies or is closed. Must be called before reading the agent. */
  async await(agentId: string, job: Pick<CallJob, 'callId' | 'generation'>): Promise<void> {
    const key = this.keys.agentAwaited(agentId);
    await this.redis.multi().sadd(key, jobIdOf(job.callId, job.generation)).pexpire(key, AWAITED_MS).exec();
  }

  /** Undefined when there is none, or it is another session's. */
  async read(agentId: string, parent: string): Promise<AgentReport | undefined> {
    const fields = await this.redis.hmget(this.keys.agent(agentId), 'parent', 'state', 'turn', 'reply');
    const [owner, state, turn, signed] = fields;
    if (owner !== parent || typeof state !== 'string') return undefined;
    if (typeof signed !== 'string') return { agentId, state: state as AgentState };
    const reply = this.#opened(agentId, signed) as (AgentReply & { readonly turn: number }) | undefined;
    // A reply that no key of this fleet signed does not count.
    if (reply === undefined || asText(reply.turn) !== turn) return { agentId, state: 'running' };
    return { agentId, state: reply.state, ...(reply.output !== undefined && { output: reply.output }) };
  }

  /** Agents of a session that are not closed, or whose end was not read yet. */
  list(parent: string): Promise<string[]> {
    return this.redis.smembers(this.keys.agentsOf(parent));
  }

  async #promote(jobIds: readonly string[]): Promise<void> {
    for (const jobId of jobIds) await promote(this.redis, this.keys.prefix, jobId);
  }

  #partitions(agentId: string, parent: string): string[] {
    return [this.keys.agent(agentId), this.keys.agentMail(agentId), this.keys.agentsOf(parent)];
  }

  #broadcast(agentId: string, sessionKey: string): [string, string] {
    const broadcast: Broadcast = { type: 'agent', agentId, sessionKey };
    return [this.channel, JSON.stringify(broadcast)];
  }

  #signed(agentId: string, message: object): string {
    // Models read what agents send each other.
    return signedMessage(this.signatures, `agent ${agentId}`, wellFormed(message));
  }

  #opened(agentId: string, signed: string): unknown {
    return verifiedMessage(this.signatures, `agent ${agentId}`, signed);
  }
}
