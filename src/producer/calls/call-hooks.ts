/** Where the hooks of a producer meet a call: around its way into the queue and back (D5, R32). */

import { partitionFor } from '../../shared/calls/call-id.ts';
import { compensated } from '../../shared/calls/compensation.ts';
import {
  parseEnvelope,
  type ResultError,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
  turnOf,
} from '../../shared/calls/envelope.ts';
import type { BeforeCallAnswer, HookEvent, HookedTool, Hooks, ShortCircuit } from '../../shared/calls/hooks.ts';
import { resultError } from '../../shared/calls/outcome.ts';
import { failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { Effects } from '../../shared/retries/effects.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { Submission } from './submission.ts';

export interface HookedSubmission {
  readonly hooks: Hooks;
  readonly tool: HookedTool;
  submit(envelope: ToolCallEnvelope): Promise<Submission>;
  refuse(error: unknown, envelope: ToolCallEnvelope): Submission;
}

/**
 * Submits a call with its hooks. `beforeCall` runs first. `onShortCircuit` runs once, if no attempt runs for this caller, as soon as that
 * is known. `afterCall` runs last, once, with the envelope that the caller gets.
 */
export async function submitWithHooks(
  asked: ToolCallEnvelope,
  { hooks, tool, submit, refuse }: HookedSubmission,
): Promise<Submission> {
  const values = new Map<string, unknown>();
  let envelope = asked;
  let submission: Submission;
  try {
    const { idempotencyKey } = asked.payload;
    const key = idempotencyKey === undefined ? {} : { idempotencyKey };
    const made = await hooks.beforeCall({ ...eventOf(tool, asked, values), ...key });
    envelope = rewritten(asked, made);
    submission = await submit(envelope);
  } catch (error) {
    submission = refuse(error, asked);
  }
  const call = (callId?: string) => ({
    ...eventOf(tool, envelope, values),
    ...(callId === undefined ? {} : { callId }),
  });
  const shortCircuit = (reason: ShortCircuit, result?: ToolResultEnvelope, callId?: string) =>
    hooks.onShortCircuit({ ...call(callId), reason, ...(result === undefined ? {} : { result }) });

  if (submission.kind === 'answered') {
    const { result, callId } = submission;
    const told = await orFailed(tool, result, async () => {
      await shortCircuit(reasonOf(result), result, callId);
      return result;
    });
    const answer = await orFailed(tool, told, () => hooks.afterCall({ ...call(callId), result: told }));
    return { ...submission, result: answer };
  }
  const { callId, merged = false } = submission;
  const toldMerged = merged ? shortCircuit('merged', undefined, callId) : Promise.resolve();
  // Its failure is part of the result.
  await toldMerged.catch(() => {});
  const result = submission.result.then(async (ended) => {
    const told = await orFailed(tool, ended, async () => {
      await toldMerged;
      if (!merged && hasNotRun(ended)) await shortCircuit(reasonOf(ended), ended, callId);
      return ended;
    });
    return orFailed(tool, told, () => hooks.afterCall({ ...call(callId), result: told }));
  });
  result.catch(() => {});
  return { ...submission, result };
}

/** The tool of a record as hooks see it. It may be gone by now: hooks that bear its name still look after its results. */
export function hookedTool(
  { callId, request }: Pick<CallRecord, 'callId' | 'request'>,
  catalogue: Pick<ToolCatalogue, 'peek'>,
): HookedTool {
  const { toolNamespace: namespace, toolName: name } = request.envelope;
  const { version } = request.tool;
  const gone = { name, namespace, version, tier: partitionFor(callId).tier, effects: 'once', annotations: {} } as const;
  return catalogue.peek(namespace, name) ?? gone;
}

/** What `afterCall` makes of a result that its caller gets in another way than from its submission, which `envelope` was. */
export function afterCall(
  hooks: Hooks,
  tool: HookedTool,
  envelope: ToolCallEnvelope,
  result: ToolResultEnvelope,
): Promise<ToolResultEnvelope> {
  const { callId } = result;
  const event = { ...eventOf(tool, envelope, new Map()), ...(callId === undefined ? {} : { callId }), result };
  return orFailed(tool, result, () => hooks.afterCall(event));
}

/** What hooks make of a result. One that fails closed, or denies, is this caller's ending: an envelope, like every ending. */
async function orFailed(
  { effects }: HookedTool,
  result: ToolResultEnvelope,
  tell: () => Promise<ToolResultEnvelope>,
): Promise<ToolResultEnvelope> {
  try {
    return await tell();
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    const { output: _withheld, ...rest } = result;
    const told = resultError(failureOf(error.code, error.message), 'error');
    return { ...rest, status: 'error', error: result.attempts > 0 ? afterItRan(told, result, effects) : told };
  }
}

/** The codes of hooks say elsewhere that nothing happened. Here the call ran, and its record keeps how it ended. */
function afterItRan(told: ResultError, { callId, status, error }: ToolResultEnvelope, effects: Effects): ResultError {
  const acted = effects !== 'none' && (status === 'success' || error?.mayHaveHappened === true);
  const message = `The call ran (call ${callId}); a hook withholds its result: ${told.message}`;
  return { ...told, message, ...(acted ? { mayHaveHappened: true } : {}) };
}

/** A call that nobody waits for any more may still run: it says so. */
function hasNotRun({ attempts, error }: ToolResultEnvelope): boolean {
  return attempts === 0 && error?.mayHaveHappened !== true;
}

function reasonOf({ fromCache, status, error }: ToolResultEnvelope): ShortCircuit {
  if (fromCache) return 'replayed';
  if (status === 'circuit_open') return 'circuit-open';
  if (error?.code === 'CANCELLED') return 'cancelled';
  return error?.code === 'DEADLINE_EXCEEDED' ? 'too-late' : 'refused';
}

/** Throws `CONTRACT_INVALID` for what hooks made and the contract does not allow. */
function rewritten(
  envelope: ToolCallEnvelope,
  { params: made, idempotencyKey, keyFrom, hints = {}, carry = {} }: BeforeCallAnswer & { readonly keyFrom?: string },
): ToolCallEnvelope {
  // An undoing has those of the call that it undoes, which went through the hooks already.
  const params = compensated(envelope) === undefined ? made : undefined;
  const hinted = Object.keys(hints).length > 0;
  const carries = Object.keys(carry).length > 0;
  if (params === undefined && idempotencyKey === undefined && !hinted && !carries) return envelope;
  const { payload, control, trace } = envelope;
  return parseEnvelope({
    ...envelope,
    payload: {
      ...payload,
      ...(params === undefined ? {} : { params }),
      ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
      ...(hinted ? { callHints: { ...payload.callHints, ...hints } } : {}),
    },
    control: { ...control, ...(keyFrom === undefined ? {} : { fromHook: keyFrom }) },
    trace: { ...trace, ...(carries ? { baggage: { ...trace.baggage, ...carry } } : {}) },
  });
}

function eventOf(
  tool: HookedTool,
  envelope: ToolCallEnvelope,
  values: Map<string, unknown>,
): Omit<HookEvent, 'signal'> {
  const { sessionKey, actorId, agentId, tenantId } = envelope.target;
  const turnId = turnOf(envelope);
  return {
    tool,
    params: envelope.payload.params,
    requestId: envelope.requestId,
    sessionKey,
    actorId,
    ...(agentId === undefined ? {} : { agentId }),
    ...(tenantId === undefined ? {} : { tenantId }),
    ...(turnId === undefined ? {} : { turnId }),
    values,
  };
}
