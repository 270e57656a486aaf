/**
 * `tools/call`: an MCP request becomes one call of a session. The reply is the call's result, a question of the tool, or, for clients
 * that support tasks, a task for the call that goes on.
 */
import type { InputRequiredResult, Result, ServerContext } from '@modelcontextprotocol/server';
import { type InputRequired, isInputRequired } from '../../shared/calls/elicitation.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { isDelayed } from '../../shared/calls/start-time.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { onAbort } from '../../shared/util/wait.ts';
import type { ProgressEvent } from '../calls/result-waiters.ts';
import type { PendingSubmission } from '../calls/submission.ts';
import type { Pawl } from '../client.ts';
import { applyDecision, approvalReply, awaitingApprovalReply, onApprovalRequested } from './approvals.ts';
import { invalidParams } from './errors.ts';
import { clientSession, extractKeyArgument, type McpClient, tasksUnsupported } from './request.ts';
import { callToolResult } from './results.ts';
import { submitCall } from './submit.ts';
import { createTask } from './tasks.ts';
import { declaredOutput, type McpTool, publishedToolFor } from './tools.ts';

/** A call that takes longer becomes a task, if the client supports tasks. */
const TASK_AFTER_MS = 500;

interface CallToolParams {
  readonly name: string;
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
}

/** The request of a call: the SDK's context of it, and whether this server ends. */
interface CallRequest {
  readonly ctx: ServerContext;
  isClosing(): boolean;
  /** Takes over the call of a request that was answered before the call's end. */
  follow?(submission: PendingSubmission): void;
}

export async function callTool(
  pawl: Pawl,
  client: McpClient,
  params: CallToolParams,
  request: CallRequest,
): Promise<Result> {
  const { ctx } = request;
  const session = await clientSession(pawl, client);
  const tool = await publishedToolFor(pawl, session.key, params.name);
  if (tool.annotations.taskSupport === 'required' && !client.supportsTasks && ctx.mcpReq.envelope !== undefined)
    throw tasksUnsupported();
  const { args, idempotencyKey } = extractKeyArgument(client, tool, params.arguments ?? {});
  const named = { tool, name: params.name, params: args };
  const decision = await applyDecision(pawl, client, ctx);
  if (decision?.isOpen) return awaitingApprovalReply(decision.callId, tool);
  const approvalRequested = Promise.withResolvers<void>();
  const becamePending = Promise.withResolvers<number>();
  if (decision !== undefined) {
    const { callId } = decision;
    const delayed = await delayedReply(pawl, client, callId, named);
    const decided = { ...named, callId, origin: 'decided', approvalRequested, becamePending } as const;
    return delayed ?? firstReply(pawl, client, { ...decided, result: decidedResult(pawl, callId) }, request);
  }
  let isAnswered = false;
  const submission = await submitCall(pawl, { ...client, idempotencyKey }, tool, {
    params: args,
    responses: ctx.mcpReq.inputResponses ?? {},
    state: await toolState(pawl, client, params, ctx),
    onProgress: (event) => {
      if (event.type === 'pending') becamePending.resolve(event.expiresAtMs);
      // A request that was answered gets no further notifications.
      if (!isAnswered) sendProgress(event, tool, ctx);
    },
    onApproval: approvalRequested.resolve,
  });
  if (submission.kind === 'answered') return toReply(pawl, tool, submission.result);
  const { callId, result, merged } = submission;
  let hasEnded = false;
  const ended = result.finally(() => (hasEnded = true));
  ended.catch(() => {});
  const origin = merged === true ? 'joined' : 'submitted';
  const openCall = { ...named, callId, result: ended, origin, approvalRequested, becamePending } as const;
  try {
    const delayed = isDelayed(client.start) ? await delayedReply(pawl, client, callId, named) : undefined;
    return delayed ?? (await firstReply(pawl, client, openCall, request));
  } finally {
    isAnswered = true;
    if (!hasEnded) request.follow?.(submission);
  }
}

/** The reply to a call that starts later; undefined for one that was joined, and runs or waits for a person. */
async function delayedReply(
  pawl: Pawl,
  client: McpClient,
  callId: string,
  { tool, name, params }: Pick<OpenCall, 'tool' | 'name' | 'params'>,
): Promise<Result | undefined> {
  const record = await pawl.backend.ledger.readBrief(callId);
  const startAtMs = record?.request.startAtMs;
  if (record?.phase !== 'delayed' || startAtMs === undefined) return undefined;
  if (client.supportsTasks && tool.annotations.taskSupport !== 'forbidden')
    return createTask(pawl, client, { tool: name, params, callId });
  const text =
    `${tool.mcpName} starts at ${new Date(startAtMs).toISOString()} (call ${callId}) and has not run yet. ` +
    'Ask again with the same arguments and idempotency key to learn what became of it.';
  return unfinishedReply(tool, text, { 'pawl/callId': callId, 'pawl/phase': 'delayed', 'pawl/startAtMs': startAtMs });
}

interface OpenCall {
  readonly callId: string;
  readonly result: Promise<ToolResultEnvelope>;
  /** A request that joined another one's call does not cancel it. A request with a person's decision goes on with the call. */
  readonly origin: 'submitted' | 'joined' | 'decided';
  readonly tool: McpTool;
  readonly params: Readonly<Record<string, unknown>>;
  /** The tool's name in the request. */
  readonly name: string;
  readonly approvalRequested: PromiseWithResolvers<void>;
  /** An outside system completes the call: when it expires. */
  readonly becamePending: PromiseWithResolvers<number>;
}

/**
 * The reply to a call that goes on: its result, a task, the question of an approval, or a text that it waits for an outside system,
 * whichever comes first.
 */
async function firstReply(pawl: Pawl, client: McpClient, openCall: OpenCall, request: CallRequest): Promise<Result> {
  const { callId, origin, tool, params, name, approvalRequested, becamePending } = openCall;
  const { taskSupport = 'optional' } = tool.annotations;
  const isJoined = origin === 'joined';
  const stopListening = isJoined ? () => {} : cancelOnDisconnect(pawl, callId, request);
  const canBeTask = client.supportsTasks && taskSupport !== 'forbidden';
  const task = Promise.withResolvers<Result>();
  let isTask = false;
  const startTask = () => {
    stopListening();
    if (!isTask) task.resolve(createTask(pawl, client, { tool: name, params, callId }));
    isTask = true;
  };
  const cleanups = [
    stopListening,
    ...(canBeTask ? [startTimer(taskSupport === 'required' ? 0 : TASK_AFTER_MS, startTask)] : []),
    // Policy may ask for approval in every tier, and only the request that submitted a call is notified of what becomes of it.
    ...(isJoined || (origin === 'submitted' && tool.tier === 'elevated')
      ? [onApprovalRequested(pawl, callId, approvalRequested.resolve)]
      : []),
    ...(origin === 'submitted' ? [] : [onPending(pawl, callId, becamePending.resolve)]),
  ];
  const approval = approvalRequested.promise.then(() => {
    stopListening();
    return approvalReply(pawl, client, callId, tool);
  });
  const pendingOutcome = becamePending.promise.then((expiresAtMs) => {
    stopListening();
    if (!canBeTask) return pendingReply(callId, tool, expiresAtMs);
    startTask();
    return task.promise;
  });
  const result = openCall.result.then((envelope) => toReply(pawl, tool, envelope));
  try {
    return await Promise.race([result, task.promise, approval, pendingOutcome]);
  } finally {
    for (const cleanUp of cleanups) cleanUp();
  }
}

/** A reply that is no result. Clients check the result of a tool that declares its output, unless it is an error. */
function unfinishedReply(tool: McpTool, text: string, meta: Readonly<Record<string, unknown>>): Result {
  const isError = declaredOutput(tool) === undefined ? {} : { isError: true };
  return { ...isError, content: [{ type: 'text', text }], _meta: meta };
}

/** Calls back once an outside system is to complete the call. The returned function ends the subscription. */
function onPending(pawl: Pawl, callId: string, callback: (expiresAtMs: number) => void): () => void {
  return pawl.follow(callId, {
    onEvents(events) {
      const pending = events.find(({ type }) => type === 'pending');
      if (pending !== undefined) callback(Number(pending.data['expiresAtMs']));
    },
    onEnd() {},
  });
}

/** The reply to a client without tasks: its request would time out, and cancel the call. */
function pendingReply(callId: string, tool: McpTool, expiresAtMs: number): Result {
  const text =
    `${tool.mcpName} waits for an outside system, until ${new Date(expiresAtMs).toISOString()} at most (call ${callId}). ` +
    'Go on with other work; ask again with the same arguments and idempotency key to learn what became of it.';
  return unfinishedReply(tool, text, {
    'pawl/callId': callId,
    'pawl/phase': 'pending',
    'pawl/pendingUntilMs': expiresAtMs,
  });
}

/**
 * The state that a tool left with its question. The client carries only the call's ID, and that call must be a question of the same tool
 * in this session, so that the client can forge nothing.
 */
async function toolState(
  pawl: Pawl,
  client: McpClient,
  { name }: CallToolParams,
  ctx: ServerContext,
): Promise<unknown> {
  const callId = ctx.mcpReq.requestState<unknown>();
  if (callId === undefined) return undefined;
  const record = typeof callId === 'string' ? await pawl.read(callId) : undefined;
  const content = record?.outcome?.output?.content;
  const envelope = record?.request.envelope;
  const isSameTool = envelope?.target.sessionKey === client.sessionKey && name.endsWith(envelope.toolName);
  if (!isSameTool || !isInputRequired(content))
    throw invalidParams('Invalid or expired requestState', {
      reason: 'invalid_request_state',
    });
  return content.requestState;
}

/** The result of a call that a person has decided on. */
async function decidedResult(pawl: Pawl, callId: string): Promise<ToolResultEnvelope> {
  const result = await pawl.result(callId);
  if (result === undefined) throw invalidParams('The call has expired.');
  return pawl.calls.withHooks(result);
}

async function toReply(pawl: Pawl, tool: McpTool, result: ToolResultEnvelope): Promise<Result> {
  const output = result.status === 'success' ? result.output.content : undefined;
  return isInputRequired(output) ? inputRequiredResult(output, result.callId) : callToolResult(pawl, result, tool);
}

function inputRequiredResult({ inputRequests, requestState }: InputRequired, callId: string | undefined): Result {
  return {
    resultType: 'input_required',
    ...(inputRequests !== undefined && { inputRequests: inputRequests as InputRequiredResult['inputRequests'] }),
    ...(requestState === undefined || callId === undefined ? {} : { requestState: callId }),
  };
}

/** Sends progress as a notification, and its message as a log line, to clients that asked for either. */
function sendProgress(event: ProgressEvent, tool: McpTool, { mcpReq }: ServerContext): void {
  if (event.type !== 'progress') return;
  const progressToken = mcpReq._meta?.progressToken;
  const { progress, total, message } = event;
  const ignore = () => {};
  if (progressToken !== undefined)
    mcpReq
      .notify({
        method: 'notifications/progress',
        params: {
          progressToken,
          progress,
          ...defined({ total, message }),
        },
      })
      .catch(ignore);
  if (message !== undefined) mcpReq.log('info', message, tool.mcpName).catch(ignore);
}

/** Cancels the call when the client cancels its request or closes the stream, unless this server is what ends. */
function cancelOnDisconnect(pawl: Pawl, callId: string, { ctx, isClosing }: CallRequest): () => void {
  return onAbort(ctx.mcpReq.signal, () => {
    if (!isClosing()) pawl.cancel(callId).catch(() => {});
  });
}

function startTimer(delayMs: number, callback: () => void): () => void {
  const timer = setTimeout(callback, delayMs);
  return () => clearTimeout(timer);
}
