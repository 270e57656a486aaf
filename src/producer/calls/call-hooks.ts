/** The hooks of a producer around a call: before its submission and after its result. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import {
  hookCallerOf,
  parseEnvelope,
  type ResultError,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
} from '../../shared/calls/envelope.ts';
import type { BeforeCallAnswer, HookEvent, HookedTool, ShortCircuit } from '../../shared/calls/hook-events.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import { resultError } from '../../shared/calls/outcome.ts';
import { failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { Effects } from '../../shared/retries/effects.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { AnsweredSubmission, PendingSubmission, Submission } from './submission.ts';

interface HookedSubmission {
  readonly hooks: Hooks;
  readonly tool: HookedTool;
  submit(envelope: ToolCallEnvelope): Promise<Submission>;
  refuse(error: unknown, envelope: ToolCallEnvelope): Submission;
}

/**
 * Submits a call with its hooks. `beforeCall` runs first. `onShortCircuit` runs once, as soon as it is known that no attempt runs for
 * this caller. `afterCall` runs last, once, with the envelope that the caller gets.
 */
export async function submitWithHooks(
  submitted: ToolCallEnvelope,
  { hooks, tool, submit, refuse }: HookedSubmission,
): Promise<Submission> {
  const values = new Map<string, unknown>();
  let envelope = submitted;
  let submission: Submission;
  try {
    const { idempotencyKey } = submitted.payload;
    const key = idempotencyKey === undefined ? {} : { idempotencyKey };
    const changes = await hooks.beforeCall({ ...eventOf(tool, submitted, values), ...key });
    envelope = applyChanges(submitted, changes);
    submission = await submit(envelope);
  } catch (error) {
    submission = refuse(error, submitted);
  }
  const call = { hooks, tool, event: eventOf(tool, envelope, values) };
  return submission.kind === 'answered' ? answerWithHooks(call, submission) : resultWithHooks(call, submission);
}

/** A call whose `beforeCall` has run. */
interface HookedCall {
  readonly hooks: Hooks;
  readonly tool: HookedTool;
  readonly event: Omit<HookEvent, 'signal'>;
}

async function answerWithHooks(call: HookedCall, answered: AnsweredSubmission): Promise<Submission> {
  const { result, callId } = answered;
  const reported = await orErrorEnvelope(call.tool, result, async () => {
    await shortCircuit(call, callId, { reason: reasonOf(result), result });
    return result;
  });
  return { ...answered, result: await runAfterCall(call, callId, reported) };
}

async function resultWithHooks(call: HookedCall, pending: PendingSubmission): Promise<Submission> {
  const { callId, merged = false } = pending;
  const reportedMerge = merged ? shortCircuit(call, callId, { reason: 'merged' }) : Promise.resolve();
  // The result reports a failure of this hook.
  await reportedMerge.catch(() => {});
  const result = pending.result.then(async (finalResult) => {
    const reported = await orErrorEnvelope(call.tool, finalResult, async () => {
      await reportedMerge;
      if (!merged && hasNotRun(finalResult))
        await shortCircuit(call, callId, { reason: reasonOf(finalResult), result: finalResult });
      return finalResult;
    });
    return runAfterCall(call, callId, reported);
  });
  result.catch(() => {});
  return { ...pending, result };
}

function shortCircuit(
  { hooks, event }: HookedCall,
  callId: string | undefined,
  ending: { readonly reason: ShortCircuit; readonly result?: ToolResultEnvelope },
): Promise<void> {
  return hooks.onShortCircuit({ ...event, ...(callId !== undefined && { callId }), ...ending });
}

function runAfterCall(
  { hooks, tool, event }: HookedCall,
  callId: string | undefined,
  result: ToolResultEnvelope,
): Promise<ToolResultEnvelope> {
  const call = { ...event, ...(callId !== undefined && { callId }), result };
  return orErrorEnvelope(tool, result, () => hooks.afterCall(call));
}

/** The tool of a record as hooks see it. Hooks also run for results of a tool that no worker publishes any more. */
export function hookedTool(
  { callId, request }: Pick<CallRecord, 'callId' | 'request'>,
  catalogue: Pick<ToolCatalogue, 'peek'>,
): HookedTool {
  const { toolNamespace: namespace, toolName: name } = request.envelope;
  const { version } = request.tool;
  const removedTool = {
    name,
    namespace,
    version,
    tier: partitionFor(callId).tier,
    effects: 'once',
    annotations: {},
  } as const;
  return catalogue.peek(namespace, name) ?? removedTool;
}

/** Runs `afterCall` for a result that its caller reads by the call's ID. `envelope` was submitted. */
export function afterCall(
  hooks: Hooks,
  tool: HookedTool,
  envelope: ToolCallEnvelope,
  result: ToolResultEnvelope,
): Promise<ToolResultEnvelope> {
  return runAfterCall({ hooks, tool, event: eventOf(tool, envelope, new Map()) }, result.callId, result);
}

/** The result after its hooks. If a hook denies or fails closed, this caller gets an error envelope instead. */
async function orErrorEnvelope(
  { effects }: HookedTool,
  result: ToolResultEnvelope,
  run: () => Promise<ToolResultEnvelope>,
): Promise<ToolResultEnvelope> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    const { output: _withheld, ...rest } = result;
    const hookError = resultError(failureOf(error.code, error.message), 'error');
    return {
      ...rest,
      status: 'error',
      error: result.attempts > 0 ? errorAfterRun(hookError, result, effects) : hookError,
    };
  }
}

/** In other places these codes mean that nothing happened. Here the call ran, and its record has its outcome. */
function errorAfterRun(
  hookError: ResultError,
  { callId, status, error }: ToolResultEnvelope,
  effects: Effects,
): ResultError {
  const mayHaveChanged = effects !== 'none' && (status === 'success' || error?.mayHaveHappened === true);
  const message = `The call ran (call ${callId}); a hook withholds its result: ${hookError.message}`;
  return { ...hookError, message, ...(mayHaveChanged ? { mayHaveHappened: true } : {}) };
}

/** A call whose caller stopped waiting may still run; its error says so. */
function hasNotRun({ attempts, error }: ToolResultEnvelope): boolean {
  return attempts === 0 && error?.mayHaveHappened !== true;
}

function reasonOf({ fromCache, status, error }: ToolResultEnvelope): ShortCircuit {
  if (fromCache) return 'replayed';
  if (status === 'circuit_open') return 'circuit-open';
  if (error?.code === 'CANCELLED') return 'cancelled';
  return error?.code === 'DEADLINE_EXCEEDED' ? 'too-late' : 'refused';
}

/** The envelope with the changes of hooks. Throws `CONTRACT_INVALID` for invalid changes. */
function applyChanges(
  envelope: ToolCallEnvelope,
  {
    params: changedParams,
    idempotencyKey,
    keyFrom,
    hints = {},
    carry = {},
  }: BeforeCallAnswer & { readonly keyFrom?: string },
): ToolCallEnvelope {
  // A compensation keeps the parameters of the call that it undoes, which went through the hooks already.
  const params = compensatedCallId(envelope) === undefined ? changedParams : undefined;
  const hinted = Object.keys(hints).length > 0;
  const hasBaggage = Object.keys(carry).length > 0;
  if (params === undefined && idempotencyKey === undefined && !hinted && !hasBaggage) return envelope;
  const { payload, control, trace } = envelope;
  return parseEnvelope({
    ...envelope,
    payload: {
      ...payload,
      ...(params !== undefined && { params }),
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      ...(hinted ? { callHints: { ...payload.callHints, ...hints } } : {}),
    },
    control: { ...control, ...(keyFrom !== undefined && { fromHook: keyFrom }) },
    trace: { ...trace, ...(hasBaggage ? { baggage: { ...trace.baggage, ...carry } } : {}) },
  });
}

function eventOf(
  tool: HookedTool,
  envelope: ToolCallEnvelope,
  values: Map<string, unknown>,
): Omit<HookEvent, 'signal'> {
  return { tool, params: envelope.payload.params, ...hookCallerOf(envelope), values };
}
