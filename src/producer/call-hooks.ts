/** Where the hooks of a producer meet a call: around its way into the queue and back (D5, R32). */
import { compensated } from '../shared/compensation.ts';
import { parseEnvelope, type ToolCallEnvelope, type ToolResultEnvelope, turnOf } from '../shared/envelope.ts';
import { failureOf, PawlError } from '../shared/failure.ts';
import type { BeforeCallAnswer, HookEvent, HookedTool, Hooks, ShortCircuit } from '../shared/hooks.ts';
import { resultError } from '../shared/outcome.ts';
import type { Submission } from './submission.ts';

type Submit = (envelope: ToolCallEnvelope) => Submission | Promise<Submission>;
type Refuse = (error: unknown, envelope: ToolCallEnvelope) => Submission;

/**
 * Hands a call in with its hooks: `beforeCall` first; `onShortCircuit` once, if no attempt runs for this caller; `afterCall` last,
 * once, with the envelope that the caller gets.
 */
export async function submitHooked(
  hooks: Hooks,
  tool: HookedTool,
  asked: ToolCallEnvelope,
  submit: Submit,
  refuse: Refuse,
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
    const told = await orFailed(result, async () => {
      await shortCircuit(reasonOf(result), result, callId);
      return result;
    });
    return { ...submission, result: await orFailed(told, () => hooks.afterCall({ ...call(callId), result: told })) };
  }
  const { callId, merged = false } = submission;
  const toldMerged = merged ? shortCircuit('merged', undefined, callId) : Promise.resolve();
  // Its failure is part of the result.
  await toldMerged.catch(() => {});
  const result = submission.result.then(async (ended) => {
    const told = await orFailed(ended, async () => {
      await toldMerged;
      if (!merged && ended.status === 'circuit_open') await shortCircuit('circuit-open', ended, callId);
      return ended;
    });
    return orFailed(told, () => hooks.afterCall({ ...call(callId), result: told }));
  });
  result.catch(() => {});
  return { ...submission, result };
}

/** What hooks make of a result. One that fails closed, or denies, is this caller's ending: an envelope, like every ending. */
async function orFailed(
  result: ToolResultEnvelope,
  tell: () => Promise<ToolResultEnvelope>,
): Promise<ToolResultEnvelope> {
  try {
    return await tell();
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    const { output: _withheld, ...rest } = result;
    return { ...rest, status: 'error', error: resultError(failureOf(error.code, error.message), 'error') };
  }
}

function reasonOf(result: ToolResultEnvelope): ShortCircuit {
  if (result.fromCache) return 'replayed';
  return result.status === 'circuit_open' ? 'circuit-open' : 'refused';
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
