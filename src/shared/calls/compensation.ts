/**
 * Undoing what a call did (I18): a call of the same tool with the same parameters, which runs the tool's `compensate` in the place of
 * its `run`. It goes through the queue like any other call, and once: its key is made from the call that it undoes.
 */

import { PawlError } from '../errors/failure.ts';
import { canonicalJson } from '../schema/canonical-json.ts';
import type { ToolResult } from '../tools/tool-result.ts';
import type { LedgerTtls, RecordLife } from './call-state.ts';
import { contractInvalid, type ToolCallEnvelope } from './envelope.ts';
import type { Outcome } from './outcome.ts';

const TAG = 'compensates:';

/** As much of a call's record as undoing it takes. */
export interface CompensatedCall {
  readonly callId: string;
  /** Tells apart what has run under the same ID, one after the other. */
  readonly generation: string;
  readonly state: string;
  readonly outcome?: Outcome;
  /** With `largeParams`, those of the envelope could not be read. */
  readonly request: { readonly envelope: ToolCallEnvelope; readonly largeParams?: object };
}

/** The call that a call undoes; undefined for an ordinary one. */
export function compensated({ control }: Pick<ToolCallEnvelope, 'control'>): string | undefined {
  return control.requestTags?.find((tag) => tag.startsWith(TAG))?.slice(TAG.length);
}

/**
 * How long a call is kept that was cancelled before anything happened. The key of an undoing is free again as soon as that of one that
 * failed: it has no other key to be asked for again under.
 */
export function lifeOfUnstarted(ttl: LedgerTtls, control: ToolCallEnvelope['control']): RecordLife {
  return { ttlMs: ttl.cancelledMs, ...(compensated({ control }) === undefined ? {} : { freeAfterMs: ttl.failedMs }) };
}

/** Of the call as it ran: one that was forgotten and ran again has not been undone yet. */
export function compensationKey({ callId, generation }: Pick<CompensatedCall, 'callId' | 'generation'>): string {
  return `${TAG}${callId}.${generation}`;
}

/** Whoever undoes the call would be given what became of another call under its key. Throws `CONTRACT_INVALID`. */
export function checkKey({ payload, control }: Pick<ToolCallEnvelope, 'payload' | 'control'>): void {
  const { idempotencyKey } = payload;
  if (idempotencyKey?.startsWith(TAG) !== true) return;
  const undone = compensated({ control });
  if (undone !== undefined && idempotencyKey.startsWith(`${TAG}${undone}.`)) return;
  const message = `must not begin with ${TAG}: such keys are those of undoings`;
  throw contractInvalid([{ path: 'payload.idempotencyKey', message }]);
}

/**
 * An envelope that undoes a call, made from one of its session's for the same tool. Throws `CALL_NOT_COMPENSABLE` for a call that
 * did not succeed, and for one that undid another itself.
 */
export function compensation(call: CompensatedCall, envelope: ToolCallEnvelope): ToolCallEnvelope {
  checkCompensable(call);
  const { target, payload } = call.request.envelope;
  return {
    ...envelope,
    // Whoever asks, it is one call: its identity holds the actor.
    target,
    payload: { ...envelope.payload, params: payload.params, idempotencyKey: compensationKey(call) },
    control: {
      ...envelope.control,
      requestTags: [...(envelope.control.requestTags ?? []), `${TAG}${call.callId}`],
    },
  };
}

function checkCompensable(call: CompensatedCall): void {
  const refuse = (why: string) => {
    throw new PawlError('CALL_NOT_COMPENSABLE', `Call ${call.callId} cannot be undone: ${why}.`);
  };
  if (compensated(call.request.envelope) !== undefined) refuse('it undid another call itself');
  if (call.request.largeParams !== undefined) refuse('its parameters are not there any more');
  const { state, outcome } = call;
  if (state !== 'done' || outcome?.status !== 'success')
    refuse(`it is ${state}${outcome?.error === undefined ? '' : ` (${outcome.error.code})`}, and has not succeeded`);
}

/**
 * The same in the worker, which takes no producer's word for it: it must be a call of this session and actor with this tool and
 * these parameters, and the undoing must carry the one key that it can have. Throws `CALL_NOT_COMPENSABLE`.
 */
export function checkCompensation(envelope: ToolCallEnvelope, call: CompensatedCall): void {
  checkCompensable(call);
  const said = ({ toolNamespace, toolName, target, payload }: ToolCallEnvelope) =>
    canonicalJson([
      toolNamespace,
      toolName,
      target.tenantId ?? null,
      target.sessionKey,
      target.actorId,
      payload.params,
    ]);
  const once =
    envelope.payload.idempotencyKey === compensationKey(call) && envelope.transport.dedupeMode !== 'disabled';
  if (said(envelope) !== said(call.request.envelope) || !once)
    throw new PawlError('CALL_NOT_COMPENSABLE', `Call ${call.callId} is not what this one says that it undoes.`);
}

/** What the tool returned, from what was recorded of it. */
export function recordedResult({ output }: Pick<Outcome, 'output'>): ToolResult<unknown> {
  const { display, artifacts, content, success, tainted } = (output?.metadata ?? {}) as Partial<ToolResult<unknown>>;
  return {
    output: output?.content,
    ...(display === undefined ? {} : { display }),
    ...(artifacts === undefined ? {} : { artifacts }),
    ...(content === undefined ? {} : { content }),
    ...(success === undefined ? {} : { success }),
    ...(tainted === undefined ? {} : { tainted }),
  };
}
