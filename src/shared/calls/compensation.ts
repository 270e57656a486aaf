/**
 * Compensation undoes a call by another call of the same tool with the same parameters, which runs `compensate` in place of `run`. It
 * goes through the queue like any other call, and runs once, because its key is made from the call that it undoes.
 */
import { PawlError } from '../errors/failure.ts';
import { canonicalJson } from '../schema/canonical-json.ts';
import type { ToolResult } from '../tools/tool-result.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { contractInvalid, type ToolCallEnvelope } from './envelope.ts';
import type { Outcome } from './outcome.ts';

const TAG = 'compensates:';

/** The part of a call's record that a compensation needs. */
export interface CompensatedCall {
  readonly callId: string;
  /** Distinguishes the calls that ran under the same ID, one after the other. */
  readonly generation: string;
  readonly state: string;
  readonly outcome?: Outcome;
  /** With `largeParams`, the envelope's parameters could not be read. */
  readonly request: { readonly envelope: ToolCallEnvelope; readonly largeParams?: object };
  readonly signatureFault?: SignatureFault;
}

/**
 * The reason why a request may not be what ran: no key of this fleet signed it (`wrong`), or its signature is not there (`missing`).
 * The record of a success keeps no signature where its tool has no `compensate`.
 */
export type SignatureFault = 'wrong' | 'missing';

/** Reads the record of a call, for another one that undoes it. */
export type CallOf = (callId: string) => Promise<CompensatedCall | undefined>;

/** The call that a call undoes; undefined for an ordinary one. */
export function compensatedCallId({ control }: Pick<ToolCallEnvelope, 'control'>): string | undefined {
  return control.requestTags?.find((tag) => tag.startsWith(TAG))?.slice(TAG.length);
}

/** The key holds the generation: a call that was forgotten and ran again has not been undone yet. */
export function compensationKey({ callId, generation }: Pick<CompensatedCall, 'callId' | 'generation'>): string {
  return `${TAG}${callId}.${generation}`;
}

/** Reserves the keys of compensations, which would otherwise replay a foreign call's outcome. Throws `CONTRACT_INVALID`. */
export function checkCompensationKey({ payload, control }: Pick<ToolCallEnvelope, 'payload' | 'control'>): void {
  const { idempotencyKey } = payload;
  if (idempotencyKey?.startsWith(TAG) !== true) return;
  const originalId = compensatedCallId({ control });
  if (originalId !== undefined && idempotencyKey.startsWith(`${TAG}${originalId}.`)) return;
  const message = `must not begin with ${TAG}: such keys are reserved for compensations`;
  throw contractInvalid([{ path: 'payload.idempotencyKey', message }]);
}

/**
 * The envelope of a compensation, made from an envelope of the same session and tool. Throws `CALL_NOT_COMPENSABLE` for a call that
 * did not succeed, and for a call that is itself a compensation; `SIGNATURE_INVALID` for one whose request was changed.
 */
export function compensation(call: CompensatedCall, envelope: ToolCallEnvelope): ToolCallEnvelope {
  checkCompensable(call);
  const { target, payload } = call.request.envelope;
  return {
    ...envelope,
    // The identity holds the actor, so the original's target keeps all callers on one compensation.
    target,
    payload: { ...envelope.payload, params: payload.params, idempotencyKey: compensationKey(call) },
    control: {
      ...envelope.control,
      requestTags: [...(envelope.control.requestTags ?? []), `${TAG}${call.callId}`],
    },
  };
}

function checkCompensable(call: CompensatedCall): void {
  const refuse = (reason: string) => {
    throw new PawlError('CALL_NOT_COMPENSABLE', `Call ${call.callId} cannot be undone: ${reason}.`);
  };
  if (call.signatureFault === 'wrong')
    throw new PawlError(
      'SIGNATURE_INVALID',
      `Call ${call.callId} cannot be undone: its request is not signed by this fleet.`,
    );
  if (compensatedCallId(call.request.envelope) !== undefined) refuse('it is itself a compensation');
  if (call.request.largeParams !== undefined) refuse('its parameters are not there any more');
  const { state, outcome } = call;
  if (state !== 'done' || outcome?.status !== 'success')
    refuse(`it is ${state}${outcome?.error === undefined ? '' : ` (${outcome.error.code})`}, and has not succeeded`);
  if (call.signatureFault === 'missing') refuse('its tool had no compensate when it ran');
}

/**
 * The worker's own check, which does not trust the producer: the call must have the same session, actor, tool and parameters, and the
 * compensation must carry its one possible key. Throws `CALL_NOT_COMPENSABLE`.
 */
export function checkCompensation(envelope: ToolCallEnvelope, call: CompensatedCall): void {
  checkCompensable(call);
  const subject = ({ toolNamespace, toolName, target, payload }: ToolCallEnvelope) =>
    canonicalJson([
      toolNamespace,
      toolName,
      target.tenantId ?? null,
      target.sessionKey,
      target.actorId,
      payload.params,
    ]);
  const hasOwnKey =
    envelope.payload.idempotencyKey === compensationKey(call) && envelope.transport.dedupeMode !== 'disabled';
  if (subject(envelope) !== subject(call.request.envelope) || !hasOwnKey)
    throw new PawlError(
      'CALL_NOT_COMPENSABLE',
      `This compensation does not match call ${call.callId}: session, actor, tool, parameters and key must be those of that call.`,
    );
}

export function recordedResult({ output }: Pick<Outcome, 'output'>): ToolResult<unknown> {
  const { display, artifacts, content, success, tainted } = (output?.metadata ?? {}) as Partial<ToolResult<unknown>>;
  return {
    output: output?.content,
    ...defined({ display, artifacts, content, success, tainted }),
  };
}
