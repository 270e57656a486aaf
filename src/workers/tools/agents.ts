import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { AGENT_STATES, type AgentReport, hasAnswered } from '../../shared/tools/sub-agent.ts';

const DEFAULT_WAIT_MS = 30_000;
const MAX_WAIT_MS = 300_000;
/** The call also checks by itself at this interval, because the process that should resume it may have died. */
const POLL_MS = 10_000;
const MAX_MESSAGE = 65_536;

const agent = z.object({
  id: z.string().describe('Names the agent in the other tools.'),
  state: z
    .enum(AGENT_STATES)
    .describe('queued: no agent has taken the message yet; running; paused; completed; failed; closed.'),
  output: z.string().optional().describe('What it answered to the newest message.'),
});
const agentId = z.string().min(1).max(256).describe('The id that spawn_agent returned.');

const toOutput = ({ agentId: id, tainted: _, ...report }: AgentReport) => ({ id, ...report });
const result = (report: AgentReport) => ({
  output: toOutput(report),
  display: `${report.agentId}: ${report.state}`,
  tainted: report.tainted === true,
});
const common = {
  version: '1.0.0',
  tier: 'system',
  effects: 'idempotent',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  needs: ['agents'],
} as const;

export const spawnAgent = defineBaseTool({
  ...common,
  name: 'spawn_agent',
  description:
    'Starts a sub-agent on a task of its own and returns at once. It reads, searches and looks things up, and changes nothing. Use wait for its answer, and close_agent when it is no longer needed.',
  input: z.object({
    message: z
      .string()
      .min(1)
      .max(MAX_MESSAGE)
      .describe('The task, complete in itself: the agent knows nothing of this conversation.'),
    agent_type: z.string().min(1).max(256).optional().describe('Which kind of agent, where there are several kinds.'),
  }),
  output: agent,
  run: async ({ message, agent_type: agentType }, ctx) => result(await ctx.agents.spawn(message, agentType)),
});

export const sendInput = defineBaseTool({
  ...common,
  name: 'send_input',
  description:
    'Sends a message to a sub-agent: more to do, or an answer to what it asked. One that has finished starts again.',
  input: z.object({
    id: agentId,
    message: z.string().min(1).max(MAX_MESSAGE).describe('What it should know or do next.'),
    interrupt: z.boolean().default(false).describe('Whether it should drop what it is doing. Default: false.'),
  }),
  output: agent,
  run: async ({ id, message, interrupt }, ctx) => result(await ctx.agents.send(id, message, interrupt)),
});

export const resumeAgent = defineBaseTool({
  ...common,
  name: 'resume_agent',
  description: 'Lets a paused sub-agent, or one that has finished or failed, go on where it was.',
  input: z.object({ id: agentId }),
  output: agent,
  run: async ({ id }, ctx) => result(await ctx.agents.resume(id)),
});

export const wait = defineBaseTool({
  ...common,
  name: 'wait',
  description:
    'Waits until the first of some sub-agents has answered, failed, paused or been closed, and returns the state of all. When the time is over it returns as well: look at timed_out.',
  annotations: { ...common.annotations, readOnlyHint: true },
  input: z.object({
    ids: z.array(agentId).min(1).max(16).describe('The agents to wait for, by the id of each.'),
    timeout_ms: z
      .int()
      .min(0)
      .max(MAX_WAIT_MS)
      .default(DEFAULT_WAIT_MS)
      .describe(`How long to wait, in milliseconds, at most ${MAX_WAIT_MS}. Default ${DEFAULT_WAIT_MS}.`),
  }),
  output: z.object({ agents: z.array(agent), timed_out: z.boolean() }),
  // A waiting call holds no worker: the agents' answers resume it.
  async ready({ ids, timeout_ms: timeoutMs }, ctx, waitedMs) {
    const remainingMs = timeoutMs - waitedMs;
    if (remainingMs <= 0 || (await ctx.agents.haveAnswered(ids))) return { ready: true };
    return { ready: false, againInMs: Math.min(remainingMs, POLL_MS) };
  },
  async run({ ids }, ctx) {
    const reports = await ctx.agents.look(ids);
    return {
      output: { agents: reports.map(toOutput), timed_out: !reports.some(({ state }) => hasAnswered(state)) },
      display: reports.map((report) => `${report.agentId}: ${report.state}`).join(', '),
      tainted: reports.some((report) => report.tainted === true),
    };
  },
  isMutating: () => false,
});

export const closeAgent = defineBaseTool({
  ...common,
  name: 'close_agent',
  description: 'Ends a sub-agent for good, with whatever it is doing. Returns its state.',
  input: z.object({ id: agentId }),
  output: agent,
  run: async ({ id }, ctx) => result(await ctx.agents.close(id)),
});
