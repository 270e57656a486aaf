/**
 * `tools/call`: an MCP request becomes one call of a session. The reply is the call's result, a question of the tool, or, for clients
 * that support tasks, a task for the call that goes on.
 */
import {
  type InputRequiredResult,
  MissingRequiredClientCapabilityError,
  type Result,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { type InputRequired, isInputRequired } from '../../shared/calls/elicitation.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { isDelayed } from '../../shared/calls/start-time.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { onAbort } from '../../shared/util/wait.ts';
import type { ProgressEvent } from '../calls/result-waiters.ts';
import type { Submission } from '../calls/submission.ts';
import type { Pawl } from '../client.ts';
import { applyDecision, approvalReply, awaitingApprovalReply, onApprovalRequested } from './approvals.ts';
import { invalidParams } from './errors.ts';
import { clientSession, extractKeyArgument, type McpClient, TASKS_EXTENSION } from './request.ts';
import { callToolResult } from './results.ts';
import { submitCall } from './submit.ts';
import { createTask } from './tasks.ts';
import { declaredOutput, type McpTool, publishedToolFor } from './tools.ts';

/** A call that takes longer becomes a task, if the client supports tasks. */
const TASK_AFTER_MS = 500;

export interface CallToolParams {
  readonly name: string;
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
}

/** The request of a call: the SDK's context of it, and whether this server ends. */
interface CallRequest {
  readonly ctx: ServerContext;
  isClosing(): boolean;
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
    throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } });
  const decision = await applyDecision(pawl, client, ctx);
  if (decision?.isOpen) return awaitingApprovalReply(decision.callId, tool);
  if (decision !== undefined)
    return (
      (await delayedReply(pawl, client, decision.callId, { tool, params })) ??
      decidedReply(pawl, tool, decision.callId, request)
    );
  const approvalRequested = Promise.withResolvers<void>();
  const becamePending = Promise.withResolvers<number>();
  const { args, idempotencyKey } = extractKeyArgument(client, tool, params.arguments ?? {});
  const submission = await submitCall(pawl, { ...client, idempotencyKey }, tool, {
    params: args,
    responses: ctx.mcpReq.inputResponses ?? {},
    state: await toolState(pawl, client, params, ctx),
    onProgress: (event) => {
      if (event.type === 'pending') becamePending.resolve(event.expiresAtMs);
      sendProgress(event, tool, ctx);
    },
    onApproval: approvalRequested.resolve,
  });
  if (submission.kind === 'answered') return toReply(pawl, tool, submission.result);
  const delayed = isDelayed(client.start)
    ? await delayedReply(pawl, client, submission.callId, { tool, params })
    : undefined;
  if (delayed !== undefined) return delayed;
  const openCall = { submission, tool, params: args, name: params.name, approvalRequested, becamePending };
  return firstReply(pawl, client, openCall, request);
}

/** The reply to a call that starts later; undefined for one that was joined, and runs or waits for a person. */
async function delayedReply(
  pawl: Pawl,
  client: McpClient,
  callId: string,
  { tool, params }: { readonly tool: McpTool; readonly params: CallToolParams },
): Promise<Result | undefined> {
  const record = await pawl.backend.ledger.readBrief(callId);
  const startAtMs = record?.request.startAtMs;
  if (record?.phase !== 'delayed' || startAtMs === undefined) return undefined;
  if (client.supportsTasks && tool.annotations.taskSupport !== 'forbidden')
    return createTask(pawl, client, { tool: params.name, params: params.arguments ?? {}, callId });
  const text =
    `${tool.mcpName} starts at ${new Date(startAtMs).toISOString()} (call ${callId}) and has not run yet. ` +
    'Ask again with the same arguments and idempotency key to learn what became of it.';
  return unfinishedReply(tool, text, { 'pawl/callId': callId, 'pawl/phase': 'delayed', 'pawl/startAtMs': startAtMs });
}

interface OpenCall {
  readonly submission: Extract<Submission, { readonly kind: 'pending' }>;
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
  const { submission, tool, params, name, approvalRequested, becamePending } = openCall;
  const { callId } = submission;
  const { taskSupport = 'optional' } = tool.annotations;
  // A request that joined another one's call does not cancel it.
  const isJoined = submission.merged === true;
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
    // Policy may ask for approval in every tier, and a request that joined a call is not notified of it.
    ...(tool.tier === 'elevated' || isJoined ? [onApprovalRequested(pawl, callId, approvalRequested.resolve)] : []),
    ...(isJoined ? [onPending(pawl, callId, becamePending.resolve)] : []),
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
  const result = submission.result.then((envelope) => toReply(pawl, tool, envelope));
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

/** The reply to a call that a person has decided on. */
async function decidedReply(pawl: Pawl, tool: McpTool, callId: string, request: CallRequest): Promise<Result> {
  const stopListening = cancelOnDisconnect(pawl, callId, request);
  const becamePending = Promise.withResolvers<Result>();
  const stopFollowing = onPending(pawl, callId, (expiresAtMs) => {
    stopListening();
    becamePending.resolve(pendingReply(callId, tool, expiresAtMs));
  });
  const waitForReply = async () => {
    const result = await pawl.result(callId);
    if (result === undefined) throw invalidParams('The call has expired.');
    return toReply(pawl, tool, await pawl.calls.withHooks(result));
  };
  try {
    return await Promise.race([waitForReply(), becamePending.promise]);
  } finally {
    stopListening();
    stopFollowing();
  }
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
