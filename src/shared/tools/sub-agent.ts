/**
 * Sub-agents (C18): worker sessions that a session's calls start and talk to. Pawl keeps their records and brings messages; who
 * thinks is the program that holds the session.
 *
 * queued     a message waits until the program takes it
 * running    the program has taken it
 * paused     the program stopped on purpose: more input, or `resume_agent`, sets it going
 * completed  the turn is done      failed  it came to nothing; more input starts another one
 * closed     for good, its session with it
 */

export const AGENT_ENDINGS = ['completed', 'failed', 'paused'] as const;
export type AgentEnding = (typeof AGENT_ENDINGS)[number];
export const AGENT_STATES = ['queued', 'running', ...AGENT_ENDINGS, 'closed'] as const;
export type AgentState = (typeof AGENT_STATES)[number];

export const AGENT_MESSAGES = ['spawned', 'input', 'resumed', 'closed'] as const;

/** Not to be waited for any longer. */
export function hasAnswered(state: AgentState): boolean {
  return state !== 'queued' && state !== 'running';
}

export interface AgentReport {
  /** Also the key of its session. */
  readonly agentId: string;
  readonly state: AgentState;
  /** What the program replied to the newest message. */
  readonly output?: string;
  /** The agent has seen text from outside: so may have what it replies (I23). */
  readonly tainted?: boolean;
}

/** What a program is told to do with an agent. */
export interface AgentMessage {
  readonly type: (typeof AGENT_MESSAGES)[number];
  readonly message?: string;
  /** Which kind of agent was asked for; what kinds there are is the program's business. */
  readonly agentType?: string;
  /** Stop what it is doing, and attend to this first. */
  readonly interrupt?: boolean;
}

/** As it is handed to the program: once, to one process. */
export interface AgentOrder extends AgentMessage {
  readonly agentId: string;
  /** Counts the messages. A reply to one that is not the newest is late. */
  readonly turn: number;
}

export interface AgentReply {
  readonly state: AgentEnding;
  readonly output?: string;
}

/** The sub-agents of one session, as a tool sees them. Each throws `NOT_FOUND` for an agent that is not this session's, or closed. */
export interface Agents {
  /** The same call starts one agent, however often it is attempted. Throws `TOO_MANY_AGENTS`. */
  spawn(message: string, agentType?: string): Promise<AgentReport>;
  send(agentId: string, message: string, interrupt?: boolean): Promise<AgentReport>;
  resume(agentId: string): Promise<AgentReport>;
  look(agentIds: readonly string[]): Promise<readonly AgentReport[]>;
  /** Whether one of them has answered. While none has, the first that does wakes this call, should it have been put aside. */
  haveAnswered(agentIds: readonly string[]): Promise<boolean>;
  close(agentId: string): Promise<AgentReport>;
}
