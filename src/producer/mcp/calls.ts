/**
 * `tools/call`: an MCP request becomes one call of a session. The answer is the call's result, a question of the tool, or, for
 * clients that know tasks, a task that stands for the call that goes on.
 */
import {
  type InputRequiredResult,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  ProtocolErrorCode,
  type Result,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { type InputRequired, isInputRequired } from '../../shared/calls/elicitation.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { ProgressEvent } from '../calls/result-waiters.ts';
import type { Pawl } from '../client.ts';
import { approvalAnswer, decided, pendingResult, whenAsked } from './approvals.ts';
import { keyed, type McpClient, sessionFor, TASKS_EXTENSION } from './request.ts';
import { callToolResult } from './results.ts';
import { submitCall } from './submit.ts';
import { createTask } from './tasks.ts';
import { type McpTool, publishedToolFor } from './tools.ts';

/** A call that takes longer becomes a task, where the client takes one. */
const TASK_AFTER_MS = 500;

export interface CallToolParams {
  readonly name: string;
  readonly arguments?: Readonly<Record<string, unknown>> | undefined;
}

export async function callTool(
  pawl: Pawl,
  client: McpClient,
  params: CallToolParams,
  ctx: ServerContext,
  isClosing: () => boolean,
): Promise<Result> {
  const session = await sessionFor(pawl, client);
  const published = await publishedToolFor(pawl, session.key, params.name);
  const taskSupport = published.annotations.taskSupport ?? 'optional';
  if (taskSupport === 'required' && !client.takesTasks && ctx.mcpReq.envelope !== undefined)
    throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } });
  const decision = await decided(pawl, client, ctx);
  if (decision?.isOpen) return pendingResult(decision.callId, published);
  if (decision !== undefined) return resultOf(pawl, published, decision.callId, ctx.mcpReq.signal, isClosing);
  const asked = Promise.withResolvers<void>();
  const { given, idempotencyKey } = keyed(client, published, params.arguments ?? {});
  const submission = await submitCall(pawl, { ...client, idempotencyKey }, published, given, {
    responses: ctx.mcpReq.inputResponses ?? {},
    state: await stateOf(pawl, client, params, ctx),
    onProgress: (event) => report(event, published, ctx),
    onApproval: asked.resolve,
  });
  const answer = (result: ToolResultEnvelope) => answerOf(pawl, published, result);
  if (submission.kind === 'answered') return answer(submission.result);
  const { callId } = submission;
  // Who joined another request's call leaves it to that.
  const joined = submission.merged === true;
  const stopListening = joined ? () => {} : cancelWhenGone(pawl, callId, ctx.mcpReq.signal, isClosing);
  const mayBeTask = client.takesTasks && taskSupport !== 'forbidden';
  const stopped = Promise.withResolvers<Result>();
  const stopWaiting = [
    ...(mayBeTask ? [within(taskSupport === 'required' ? 0 : TASK_AFTER_MS, () => stopped.resolve(newTask()))] : []),
    // Policy may have a call of any tier wait for a person, and who joins it hears no more that it does.
    ...(published.tier === 'elevated' || joined ? [whenAsked(pawl, callId, asked.resolve)] : []),
  ];
  const newTask = async () => {
    stopListening();
    return createTask(pawl, client, { tool: params.name, params: given, callId });
  };
  const waiting = asked.promise.then(() => {
    stopListening();
    return approvalAnswer(pawl, client, callId, published);
  });
  try {
    return await Promise.race([submission.result.then(answer), stopped.promise, waiting]);
  } finally {
    for (const stop of stopWaiting) stop();
    stopListening();
  }
}

/**
 * The state that a tool left with its question. The client carries only the call's ID; what it names must be this session's
 * question about the same tool, so that there is nothing to forge.
 */
async function stateOf(pawl: Pawl, client: McpClient, { name }: CallToolParams, ctx: ServerContext): Promise<unknown> {
  const callId = ctx.mcpReq.requestState<unknown>();
  if (callId === undefined) return undefined;
  const record = typeof callId === 'string' ? await pawl.read(callId) : undefined;
  const asked = record?.outcome?.output?.content;
  const envelope = record?.request.envelope;
  const same = envelope?.target.sessionKey === client.sessionKey && name.endsWith(envelope.toolName);
  if (!same || !isInputRequired(asked))
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Invalid or expired requestState', {
      reason: 'invalid_request_state',
    });
  return asked.requestState;
}

/** The end of a call that a person has decided on. */
async function resultOf(
  pawl: Pawl,
  published: McpTool,
  callId: string,
  signal: AbortSignal,
  isClosing: () => boolean,
): Promise<Result> {
  const stopListening = cancelWhenGone(pawl, callId, signal, isClosing);
  try {
    const result = await pawl.result(callId);
    if (result === undefined) throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'The call has expired.');
    return await answerOf(pawl, published, await pawl.calls.withHooks(result));
  } finally {
    stopListening();
  }
}

async function answerOf(pawl: Pawl, published: McpTool, result: ToolResultEnvelope): Promise<Result> {
  const output = result.status === 'success' ? result.output.content : undefined;
  return isInputRequired(output) ? inputRequiredResult(output, result.callId) : callToolResult(pawl, result, published);
}

function inputRequiredResult({ inputRequests, requestState }: InputRequired, callId: string | undefined): Result {
  return {
    resultType: 'input_required',
    ...(inputRequests === undefined ? {} : { inputRequests: inputRequests as InputRequiredResult['inputRequests'] }),
    ...(requestState === undefined || callId === undefined ? {} : { requestState: callId }),
  };
}

/** A report of progress goes out as that, and its words as a log line, for clients that asked for either. */
function report(event: ProgressEvent, published: McpTool, { mcpReq }: ServerContext): void {
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
          ...(total === undefined ? {} : { total }),
          ...(message === undefined ? {} : { message }),
        },
      })
      .catch(ignore);
  if (message !== undefined) mcpReq.log('info', message, published.mcpName).catch(ignore);
}

/** The client took its request back, or closed the stream, which means the same. */
function cancelWhenGone(pawl: Pawl, callId: string, signal: AbortSignal, isClosing: () => boolean): () => void {
  const cancel = () => {
    if (!isClosing()) pawl.cancel(callId).catch(() => {});
  };
  if (signal.aborted) cancel();
  else signal.addEventListener('abort', cancel, { once: true });
  return () => signal.removeEventListener('abort', cancel);
}

function within(delayMs: number, then: () => void): () => void {
  const timer = setTimeout(then, delayMs);
  return () => clearTimeout(timer);
}
