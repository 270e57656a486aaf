/** Reading a call: its record, its outcome and its progress. Data without a valid signature of this fleet is not shown. */
import { isMerged, partitionOf, type RequestIdentity, requestNameOf } from '../../../calls/call-id.ts';
import { CALL_STATES } from '../../../calls/call-state.ts';
import type { SignatureFault } from '../../../calls/compensation.ts';
import type { Outcome } from '../../../calls/outcome.ts';
import { PawlError } from '../../../errors/failure.ts';
import type { Progress } from '../../../tools/tool-context.ts';
import { isObject, parseJson } from '../../../util/json/json-types.ts';
import type { SettledEvent } from '../../queues/result-inbox.ts';
import { fieldsOf, Script } from '../../redis/script.ts';
import {
  type CallRecord,
  callRecord,
  parseAttempts,
  type ReadRecord,
  type StoredProgress,
  type StoredRequest,
  unpackedFields,
} from '../call-record.ts';
import type { LedgerAccess, StoredOutcome } from '../ledger-context.ts';
import { parseRequest } from './request-text.ts';
import { FORGED_OUTCOME, isSignedRequest, refuseMergedCall, signedOutcome, verifiedOutcome } from './signed-records.ts';

const readScript = new Script(new URL('./read-call.lua', import.meta.url));

interface ReadOptions {
  /** The producer that is notified when the call settles. */
  readonly inboxId?: string | undefined;
  /** The producer is notified of all events of the call, also of attempts that begin. */
  readonly following?: boolean;
  /** Leaves out large parameters and a large outcome. */
  readonly brief?: boolean;
  /** Says whether the request was changed. The signature of most successes is gone, and their requests count as changed. */
  readonly verified?: boolean;
}

type Fields = Readonly<Record<string, string>>;

export async function readCall(
  access: LedgerAccess,
  callId: string,
  { inboxId = '', following = false, brief = false, verified = false }: ReadOptions = {},
): Promise<CallRecord | undefined> {
  const partition = partitionOf(callId);
  if (partition === undefined) return undefined;
  const keys = access.keys(partition);
  const [readAt, ...flat] = await readScript.run(
    access.redis,
    [keys.record(callId)],
    [inboxId, keys.records, following ? '1' : '0'],
  );
  const fields = unpackedFields(fieldsOf(flat as readonly string[]));
  const nowMs = Number(readAt);
  if (fields['state'] === undefined) {
    const isMoved = (await access.segments.restore(fields['callId'] ?? callId)) === 'restored';
    return isMoved ? readCall(access, callId, { inboxId, following, brief, verified }) : undefined;
  }
  const id = fields['callId'] ?? callId;
  const parsed = parsedTexts(fields);
  // A writer of Redis can store any text, and one such record must not hide the others of a list.
  if (parsed === undefined) return refuseUnreadable(access, id);
  const { request, attempts } = parsed;
  if (id !== callId && access.signatures.hasKeys && !wasMerged(callId, id, fields, request))
    return callRecord({
      callId,
      fields: asFailed(fields),
      request,
      attempts,
      outcome: refuseMergedCall(access.signatures, callId),
      nowMs,
    });
  // A producer that waits for the end polls the record, and does not need the parameters.
  const withParams = !brief && inboxId === '' && request.largeParams !== undefined;
  const signatureFault = verified ? signatureFaultOf(access, id, fields) : undefined;
  const record = callRecord({
    callId: id,
    fields,
    request: withParams ? await access.requestWithParams(id, request).catch(fallbackIfLost(request)) : request,
    attempts,
    outcome: await recordedOutcome(access, id, fields, brief),
    nowMs,
  });
  if (!isReadable(record)) return refuseUnreadable(access, id);
  return signatureFault === undefined ? record : { ...record, signatureFault };
}

function isReadable(record: CallRecord): boolean {
  const numbers = Object.values(record).filter((value) => typeof value === 'number');
  return CALL_STATES.includes(record.state) && numbers.every(Number.isFinite);
}

/** Undefined where the request, or a line of the attempts, is none. */
function parsedTexts({ request = '', attempts = '' }: Fields): Pick<ReadRecord, 'request' | 'attempts'> | undefined {
  try {
    const parsed = { request: parseRequest(request), attempts: parseAttempts(attempts) };
    return parsed.attempts.every(({ fence }) => Number.isFinite(fence)) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function refuseUnreadable({ signatures }: LedgerAccess, callId: string): undefined {
  signatures.refuseOnce({ kind: 'request', id: [callId], reason: 'the record of the call cannot be read' }, callId);
}

function signatureFaultOf({ signatures }: LedgerAccess, callId: string, fields: Fields): SignatureFault | undefined {
  const { request: text = '', signature = '', generation = '', resolution = '' } = fields;
  // Most successes have no signature any more, which is nothing to report.
  if (signature === '') return signatures.hasKeys ? 'missing' : undefined;
  return isSignedRequest(signatures, { callId, generation, resolution, text }, signature) ? undefined : 'wrong';
}

async function recordedOutcome(
  access: LedgerAccess,
  callId: string,
  fields: Fields,
  brief: boolean,
): Promise<Outcome | undefined> {
  const { state = '', outcome: text, outcomeAt: key, outcomeParts: parts, outcomeSignature: signature = '' } = fields;
  if (text !== undefined) return verifiedOutcome(access.signatures, { callId, state, text, signature });
  if (key === undefined || (brief && parts !== undefined)) return undefined;
  return access.largeOutcome(callId, { state, key, parts, signature });
}

/** The outcome alone. If the event names the outcome's text, the record is not read. */
export async function readOutcome(
  access: LedgerAccess,
  callId: string,
  event?: SettledEvent,
): Promise<Outcome | undefined> {
  const announced = await announcedOutcome(access, callId, event);
  if (announced !== undefined) return announced;
  const stored = await storedOutcome(access, callId);
  if (stored === undefined || typeof stored.inline !== 'string')
    return stored === undefined ? undefined : access.largeOutcome(callId, stored);
  return verifiedOutcome(access.signatures, { ...stored, callId, text: stored.inline });
}

async function announcedOutcome(
  access: LedgerAccess,
  callId: string,
  event: SettledEvent | undefined,
): Promise<Outcome | undefined> {
  if (event?.textId === undefined) return undefined;
  const text = await access.redis.get(access.callKeys(callId).outcome(callId, event.textId));
  if (text === null) return undefined;
  return signedOutcome(access.signatures, { callId, state: event.state, text, signature: event.signature ?? '' });
}

/**
 * The content of a call's output as JSON, part by part; undefined when there is none. The parts throw `UNKNOWN_CALL` and
 * `SIGNATURE_INVALID` as those of a large text do (`LargeTexts`).
 */
export async function readOutputParts(
  access: LedgerAccess,
  callId: string,
): Promise<AsyncGenerator<Buffer, void, undefined> | undefined> {
  const stored = await storedOutcome(access, callId);
  if (stored?.parts !== undefined) {
    const reference = access.verifiedReference(callId, stored);
    if (reference === undefined) throw new PawlError('SIGNATURE_INVALID', FORGED_OUTCOME.error?.message);
    if (reference.content !== undefined) return access.outcomeParts(callId, stored.key, reference, reference.content);
  }
  const output = (await readOutcome(access, callId))?.output;
  return output === undefined ? undefined : textParts(JSON.stringify(output.content));
}

async function storedOutcome(
  access: LedgerAccess,
  callId: string,
): Promise<(StoredOutcome & { readonly inline: string | null }) | undefined> {
  const [state, inline = null, signature, key, parts] = await access.redis.hmget(
    access.callKeys(callId).record(callId),
    ...['state', 'outcome', 'outcomeSignature', 'outcomeAt', 'outcomeParts'],
  );
  if (state === null)
    return (await access.segments.restore(callId)) === 'restored' ? storedOutcome(access, callId) : undefined;
  // A call in flight has no outcome, even if an event announced one.
  if (typeof state !== 'string' || state === 'inflight' || (inline ?? key ?? null) === null) return undefined;
  return { state, inline, signature: signature ?? '', key: key ?? '', parts: parts ?? undefined };
}

/** The stored progress reports after `position` (`fence-number`), or all. */
export async function readProgress(
  access: LedgerAccess,
  callId: string,
  position?: string,
): Promise<readonly StoredProgress[]> {
  const from = position === undefined ? '-' : `(${position}`;
  const entries = await access.redis.xrange(access.callKeys(callId).progress(callId), from, '+');
  return entries.flatMap(([id, [, event]]) => {
    const [fence, number] = id.split('-').map(Number);
    const report = parseJson(event ?? '{}');
    return isObject(report) ? [{ fence: fence ?? 0, number: number ?? 0, event: report as unknown as Progress }] : [];
  });
}

/** Whether the call was merged into another one. The record alone is no proof: anyone who can write to Redis can change it. */
function wasMerged(
  callId: string,
  leadingId: string,
  { sameRequest = '', paramsDigest = '' }: Fields,
  { envelope }: StoredRequest,
): boolean {
  const requestName = parseRequestName(sameRequest);
  return requestName !== undefined && isMerged(callId, requestName, { callId: leadingId, envelope, paramsDigest });
}

function parseRequestName(stored: string): string | undefined {
  try {
    return requestNameOf(JSON.parse(stored) as RequestIdentity);
  } catch {
    return undefined;
  }
}

function asFailed({ phase: _, ...fields }: Fields): Fields {
  return { ...fields, state: 'failed' };
}

/** Returns the request without its parameters when they are lost or were changed, so that the record is still shown. */
function fallbackIfLost(request: StoredRequest): (error: unknown) => StoredRequest {
  return (error) => {
    if (error instanceof PawlError && (error.code === 'PARAMS_LOST' || error.code === 'SIGNATURE_INVALID'))
      return request;
    throw error;
  };
}

async function* textParts(text: string): AsyncGenerator<Buffer, void, undefined> {
  yield Buffer.from(text);
}
