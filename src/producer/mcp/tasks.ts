/**
 * The Tasks extension (`io.modelcontextprotocol/tasks`): a task is a name for a call that goes on. The call and the task are in Redis
 * before the client learns of the task, so that the end of a server or of a worker loses neither.
 */
import { randomBytes } from 'node:crypto';
import { ProtocolError, ProtocolErrorCode, type Result } from '@modelcontextprotocol/server';
import { isInputRequired } from '../../shared/calls/elicitation.ts';
import { envelopeOf } from '../../shared/calls/outcome.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { TaskRecord } from '../../shared/store/sessions/mcp-tasks.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/core/access.ts';
import { invalidParams } from './errors.ts';
import type { McpClient } from './request.ts';
import { callToolResult } from './results.ts';
import { submitCall } from './submit.ts';
import { publishedToolFor } from './tools.ts';

const POLL_INTERVAL_MS = 500;

/** Makes a task for a call that is in the ledger already. */
export async function createTask(
  pawl: Pawl,
  client: McpClient,
  { tool, params, callId }: { readonly tool: string; readonly params: object; readonly callId: string },
): Promise<Result> {
  const { ledger, tasks } = pawl.backend;
  const task = {
    taskId: randomBytes(24).toString('base64url'),
    owner: ownerOf(client.caller),
    sessionKey: client.sessionKey,
    tool,
    params: JSON.stringify(params),
    createdAtMs: await ledger.now(),
  };
  await tasks.create(task, callId);
  return { ...taskView(pawl, { ...task, lastUpdatedAtMs: task.createdAtMs }, 'working'), resultType: 'task' };
}

export async function getTask(pawl: Pawl, client: McpClient, taskId: string): Promise<Result> {
  const task = await requireTask(pawl, client.caller, taskId);
  const record = await newestCall(pawl, task);
  const view = (status: string, extraFields: object = {}): Result => ({
    // The call is older than its task.
    ...taskView(pawl, { ...task, lastUpdatedAtMs: Math.max(task.createdAtMs, record.updatedAtMs) }, status),
    ...extraFields,
    resultType: 'complete',
  });
  if (record.state === 'cancelled') return view('cancelled');
  if (record.state === 'inflight' || record.outcome === undefined) return view('working', waitStatus(record));
  const output = record.outcome.output?.content;
  if (isInputRequired(output)) {
    if (task.cancelled) return view('cancelled');
    const unanswered = Object.entries(output.inputRequests ?? {}).filter(
      ([name]) => !Object.hasOwn(task.answers, name),
    );
    if (unanswered.length > 0) return view('input_required', { inputRequests: Object.fromEntries(unanswered) });
    await continueTask(pawl, client, task, output.requestState);
    return view('working');
  }
  const { requestId, toolName } = record.request.envelope;
  const envelope = await pawl.calls.withHooks(
    envelopeOf(record.outcome, { requestId, toolName, callId: record.callId }),
  );
  // The tool may have left the fleet by now.
  const tool = await publishedToolFor(pawl, task.sessionKey, task.tool).catch(() => undefined);
  try {
    const result = await callToolResult(pawl, envelope, tool);
    return view('completed', { result: { ...result, resultType: 'complete' } });
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const { code, message, data } = error;
    return view('failed', { error: defined({ code, message, data }) });
  }
}

function waitStatus({ phase }: CallRecord): object {
  if (phase === 'awaiting-approval') return { statusMessage: 'waits for a person’s approval' };
  return phase === 'pending' ? { statusMessage: 'waits for an outside system' } : {};
}

export async function updateTask(
  pawl: Pawl,
  client: McpClient,
  { taskId, inputResponses }: { readonly taskId: string; readonly inputResponses: Readonly<Record<string, unknown>> },
): Promise<Result> {
  const task = await requireTask(pawl, client.caller, taskId);
  const output = (await newestCall(pawl, task)).outcome?.output?.content;
  if (isInputRequired(output) && !task.cancelled) {
    const inputRequests = output.inputRequests ?? {};
    const answers = Object.fromEntries(
      Object.entries(inputResponses).filter(([name]) => Object.hasOwn(inputRequests, name)),
    );
    await pawl.backend.tasks.answer(task, answers);
    const updatedTask = await requireTask(pawl, client.caller, taskId);
    const isComplete = Object.keys(inputRequests).every((name) => Object.hasOwn(updatedTask.answers, name));
    if (isComplete && updatedTask.callIds.length === task.callIds.length)
      await continueTask(pawl, client, updatedTask, output.requestState);
  }
  return { resultType: 'complete' };
}

/** Requests the cancellation and does not wait for it. The task shows how the call ended. */
export async function cancelTask(pawl: Pawl, client: McpClient, taskId: string): Promise<Result> {
  const task = await requireTask(pawl, client.caller, taskId);
  await pawl.backend.tasks.cancel(taskId);
  const record = await newestCall(pawl, task);
  if (record.state === 'inflight') await pawl.calls.requestCancel(record.callId);
  return { resultType: 'complete' };
}

/** Calls the tool again with the answers. The key names the task and the round, so two servers that do this make one call. */
async function continueTask(pawl: Pawl, client: McpClient, task: TaskRecord, state: unknown): Promise<void> {
  const taskClient = { ...client, sessionKey: task.sessionKey };
  const tool = await publishedToolFor(pawl, task.sessionKey, task.tool);
  const responses = Object.fromEntries(
    Object.entries(task.answers).map(([name, text]) => [name, JSON.parse(text) as unknown]),
  );
  const params = JSON.parse(task.params) as Record<string, unknown>;
  const key = `task:${task.taskId}:${task.callIds.length}`;
  const submission = await submitCall(pawl, taskClient, tool, { params, responses, state, key });
  const { callId } = submission;
  if (callId === undefined)
    throw new ProtocolError(ProtocolErrorCode.InternalError, 'The task cannot go on.', { code: 'TOOL_UNAVAILABLE' });
  await pawl.backend.tasks.goOn(task, callId);
}

/** Throws -32602, also for another owner's task, so that an ID reveals nothing. */
async function requireTask(pawl: Pawl, caller: Caller, taskId: string): Promise<TaskRecord> {
  const task = await pawl.backend.tasks.read(taskId);
  if (task === undefined || task.owner !== ownerOf(caller))
    throw invalidParams('There is no such task, or it has expired.');
  return task;
}

async function newestCall(pawl: Pawl, { callIds }: TaskRecord): Promise<CallRecord> {
  const record = await pawl.read(callIds.at(-1) ?? '');
  if (record === undefined) throw invalidParams('The task has expired.');
  return record;
}

function ownerOf({ id, tenantId }: Caller): string {
  return tenantId === undefined ? `token:${id}` : `tenant:${tenantId}`;
}

function taskView(
  pawl: Pawl,
  {
    taskId,
    createdAtMs,
    lastUpdatedAtMs,
  }: Pick<TaskRecord, 'taskId' | 'createdAtMs'> & { readonly lastUpdatedAtMs: number },
  status: string,
) {
  return {
    taskId,
    status,
    createdAt: new Date(createdAtMs).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAtMs).toISOString(),
    ttlMs: pawl.settings.ttl.doneMs,
    pollIntervalMs: POLL_INTERVAL_MS,
  };
}
