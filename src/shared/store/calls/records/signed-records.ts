/** The signed records of a call: its request, its outcome and its approvals. */
import { type ApprovalRequest, digestOf } from '../../../approvals/approval.ts';
import { decodeOutcome, type Outcome, outcomeWithoutRun } from '../../../calls/outcome.ts';
import { failureOf } from '../../../errors/failure.ts';
import type { Signatures } from '../../../signing/signatures.ts';
import { isObject, parseJson } from '../../../util/json/json-types.ts';
import type { InboxEvent } from '../../queues/result-inbox.ts';
import { parseRequest } from './request-text.ts';

/** A signed request is valid for this long after its job was queued, or after the start of a delayed call. */
export const REQUEST_VALID_MS = 7 * 24 * 3_600_000;

interface SignedRequest {
  readonly callId: string;
  readonly generation: string;
  readonly resolution: string;
  readonly text: string;
}

export function signRequest(signatures: Signatures, { callId, generation, resolution, text }: SignedRequest): string {
  return signatures.sign('request', [callId, generation, resolution], text);
}

/** Whether the fleet signed the request, at any time: enough to end a call, but not to start an attempt. */
export function isSignedRequest(signatures: Signatures, signed: SignedRequest, signature: string): boolean {
  return signatures.verify('request', [signed.callId, signed.generation, signed.resolution], signed.text, signature);
}

export function verifyRequest(
  signatures: Signatures,
  { callId, generation, resolution, text }: SignedRequest,
  signature: string,
  nowMs: number,
): boolean {
  const id = [callId, generation, resolution];
  if (!isSignedRequest(signatures, { callId, generation, resolution, text }, signature)) return false;
  if (!signatures.hasKeys || nowMs - Number(generation) <= REQUEST_VALID_MS) return true;
  const { startAtMs = 0 } = parseRequest(text);
  if (nowMs - startAtMs <= REQUEST_VALID_MS) return true;
  signatures.refuse({ kind: 'request', id, reason: 'the signed request is too old' });
  return false;
}

/** The arguments of `await_approval` for an approval. The signature also covers the digest that a decision must name. */
export function approvalArguments(
  { signatures, retentionMs }: { readonly signatures: Signatures; readonly retentionMs: number },
  approval: ApprovalRequest | undefined,
): (string | number)[] {
  if (approval === undefined) return [];
  const { id, expiresAtMs } = approval;
  const text = JSON.stringify(approval);
  return [text, signatures.sign('approval', [id, digestOf(approval)], text), id, expiresAtMs, retentionMs];
}

export function verifyApproval(
  signatures: Signatures,
  request: ApprovalRequest,
  text: string,
  signature: string,
): boolean {
  return signatures.verify('approval', [request.id, digestOf(request)], text, signature);
}

interface SignedOutcome {
  readonly callId: string;
  readonly state: string;
  readonly text: string;
  readonly signature: string;
}

function isVerifiedOutcome(signatures: Signatures, { callId, state, text, signature }: SignedOutcome): boolean {
  return signatures.verify('outcome', [callId, state], text, signature);
}

/** The outcome, or `FORGED_OUTCOME` when its signature is wrong, or its text is no outcome. */
export function verifiedOutcome(signatures: Signatures, signed: SignedOutcome): Outcome {
  return signedOutcome(signatures, signed) ?? FORGED_OUTCOME;
}

/** Undefined when the signature is wrong. A signed text that is no outcome is `FORGED_OUTCOME`. */
export function signedOutcome(signatures: Signatures, signed: SignedOutcome): Outcome | undefined {
  if (!isVerifiedOutcome(signatures, signed)) return undefined;
  const stored = parseJson(signed.text);
  if (isOutcome(stored)) return decodeOutcome(stored);
  const { callId, text } = signed;
  signatures.refuseOnce(
    { kind: 'outcome', id: [callId], reason: 'the outcome of the call cannot be read' },
    callId,
    text,
  );
  return FORGED_OUTCOME;
}

/** A success is stored as a list. */
function isOutcome(stored: unknown): boolean {
  return Array.isArray(stored)
    ? typeof stored[0] === 'number'
    : isObject(stored) && typeof stored['status'] === 'string';
}

/** The event without an outcome that does not verify: its receiver reads the record instead. */
export function verifiedEvent(signatures: Signatures, event: InboxEvent): InboxEvent {
  if (event.type !== 'settled' || event.outcome === undefined || !signatures.hasKeys) return event;
  const { outcome, signature = '', ...rest } = event;
  const { callId, state } = event;
  const isVerified = isVerifiedOutcome(signatures, { callId, state, text: JSON.stringify(outcome), signature });
  return isVerified ? event : rest;
}

/** Reports a record that names another call, into which its call was not merged. Returns the outcome to show instead. */
export function refuseMergedCall(signatures: Signatures, callId: string): Outcome {
  signatures.refuseOnce({ kind: 'outcome', id: [callId], reason: 'the outcome is another call’s' }, callId);
  return FORGED_OUTCOME;
}

/** Reports a large request or outcome of which a part does not have the digest that its reference names. */
export function refuseChangedPart(signatures: Signatures, callId: string, kind: 'outcome' | 'request'): void {
  signatures.refuse({ kind, id: [callId], reason: `a part of the ${kind} was changed` });
}

/** The outcome that callers see in place of one that no key of this fleet signed. */
export const FORGED_OUTCOME = outcomeWithoutRun(
  '',
  failureOf('SIGNATURE_INVALID', 'The stored result is not signed by a worker of this fleet, so it is not shown.'),
);
