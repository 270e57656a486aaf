/**
 * Sub-agents: worker sessions that a session's calls start and talk to. Pawl keeps their records and delivers messages; the program
 * that holds the session does the thinking.
 *
 * queued     a message waits until the program takes it
 * running    the program has taken it
 * paused     the program stopped on purpose; more input, or `resume_agent`, continues it
 * completed  the turn is done      failed  the turn gave no result; more input starts another one
 * closed     for good, its session with it
 */

export const AGENT_ENDINGS = ['completed', 'failed', 'paused'] as const;
type AgentEnding = (typeof AGENT_ENDINGS)[number];
export const AGENT_STATES = ['queued', 'running', ...AGENT_ENDINGS, 'closed'] as const;
export type AgentState = (typeof AGENT_STATES)[number];

export const AGENT_MESSAGES = ['spawned', 'input', 'resumed', 'closed'] as const;

/** Whether an agent in this state has answered, so that a wait for it ends. */
export function hasAnswered(state: AgentState): boolean {
  return state !== 'queued' && state !== 'running';
}

export interface AgentReport {
  /** The agent's ID, which is also the key of its session. */
  readonly agentId: string;
  readonly state: AgentState;
  /** The program's reply to the newest message. */
  readonly output?: string;
  /** True when the agent has seen text from outside, which its reply may repeat. */
  readonly tainted?: boolean;
}

/** A message to the program that holds an agent. */
export interface AgentMessage {
  readonly type: (typeof AGENT_MESSAGES)[number];
  readonly message?: string;
  /** The requested kind of agent. The program defines the kinds. */
  readonly agentType?: string;
  /** True asks the agent to stop its present work and to attend to this message first. */
  readonly interrupt?: boolean;
}

/** A message in the form that one process of the program receives, once. */
export interface AgentOrder extends AgentMessage {
  readonly agentId: string;
  /** The number of the message. A reply to an older message is late. */
  readonly turn: number;
}

export interface AgentReply {
  readonly state: AgentEnding;
  readonly output?: string;
}

/** The sub-agents of one session, as a tool sees them. Each throws `NOT_FOUND` for an agent that is not this session's, or closed. */
export interface Agents {
  /** Starts an agent: one for each call, however often the call is attempted. Throws `TOO_MANY_AGENTS`. */
  spawn(message: string, agentType?: string): Promise<AgentReport>;
  send(agentId: string, message: string, interrupt?: boolean): Promise<AgentReport>;
  resume(agentId: string): Promise<AgentReport>;
  look(agentIds: readonly string[]): Promise<readonly AgentReport[]>;
  /** Whether one of them has answered. While none has, the first answer promotes this call if it is parked. */
  haveAnswered(agentIds: readonly string[]): Promise<boolean>;
  close(agentId: string): Promise<AgentReport>;
}
