/** The record of a call in the ledger, and how it is parsed. */
import type { AttemptRecord, CallState, Phase } from '../../calls/call-state.ts';
import type { SignatureFault } from '../../calls/compensation.ts';
import type { ToolCallEnvelope } from '../../calls/envelope.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { circuitKey } from '../../circuits/circuit-key.ts';
import type { PlannedCall } from '../../groups/group.ts';
import type { Effects } from '../../retries/effects.ts';
import type { Progress } from '../../tools/tool-context.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import { publishedToolId } from '../fleet/catalogue.ts';
import type { TextReference } from './records/large-values.ts';

/** The stored request: the envelope, and the tool with which it was validated. */
export interface StoredRequest {
  readonly envelope: ToolCallEnvelope;
  /** The reference to large parameters, as long as they have not been read, or could not be. */
  readonly largeParams?: TextReference & { readonly id: string };
  readonly tool: { readonly version: string; readonly definition: string; readonly effects?: Effects };
  /** The key that the tool receives and passes downstream. */
  readonly idempotencyKey: string;
  /** Submitted while the reliability layer was off: one attempt, and no circuit. */
  readonly direct?: boolean;
  /** The caller that submitted the call, where the API process knows it: it cannot approve the call. */
  readonly submittedBy?: string;
  /** The kind of the session's channel, where a policy rule depends on it. */
  readonly channel?: string;
  /** Names of the budgets that are charged the time of its attempts. */
  readonly timed?: readonly string[];
  /** The signed callback to which its end is posted (`signedCallback`). */
  readonly callback?: string;
  /** Sessions other than its own may have joined it. */
  readonly shared?: true;
  /** The call does not start before this time on Redis' clock. */
  readonly startAtMs?: number;
  /** The call runs under the approval of its plan. */
  readonly planned?: PlannedCall;
}

/** The need of a call: the ID of the published tool that its worker must have. */
export function needOf({ envelope, tool }: StoredRequest): string {
  return publishedToolId({ namespace: envelope.toolNamespace, name: envelope.toolName, version: tool.version });
}

/** The resolution of a call that runs again: its first generation, a dot and the new one. */
export function nextResolution(
  generation: string,
  previous: { readonly generation: string; readonly resolution: string },
) {
  return `${previous.resolution === '' ? previous.generation : firstGenerationOf(previous.resolution)}.${generation}`;
}

export function firstGenerationOf(resolution: string): string {
  return resolution.split('.', 1)[0] ?? '';
}

export function withParams(envelope: ToolCallEnvelope, params: Record<string, unknown>): ToolCallEnvelope {
  return { ...envelope, payload: { ...envelope.payload, params } };
}

/** A redrive, as it is stored in the record of its call. */
export interface RedriveMark {
  readonly id: string;
  readonly by: string;
  readonly atMs: number;
  /** The failure code of the call before the redrive, its attempts until then, and their last fence. */
  readonly code: string;
  readonly attempts: number;
  readonly fence: number;
}

export interface CallRecord {
  readonly callId: string;
  readonly state: CallState;
  readonly phase?: Phase;
  readonly generation: string;
  readonly fence: number;
  readonly request: StoredRequest;
  readonly paramsDigest: string;
  readonly circuit: string;
  /** The newest approval that was requested for the call. */
  readonly approvalId?: string;
  readonly attempts: readonly AttemptRecord[];
  readonly lostAttempts: number;
  /** The newest redrives of the call, the oldest first; absent where there was none. */
  readonly redrives?: readonly RedriveMark[];
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly expiresAtMs?: number;
  /** When its key may run again, if that is before the record expires. */
  readonly freeAtMs?: number;
  readonly lockUntilMs?: number;
  readonly pendingUntilMs?: number;
  /** The position of its pending among the call's progress reports. */
  readonly pendingNumber?: number;
  readonly worker?: string;
  readonly startedAtMs?: number;
  readonly cancelRequested: boolean;
  /** The version for optimistic concurrency. */
  readonly version: number;
  readonly outcome?: Outcome;
  /** Only a read with `verified` looks for it. */
  readonly signatureFault?: SignatureFault;
  /** Redis' clock when the record was read. */
  readonly readAtMs: number;
}

export interface StoredProgress {
  readonly fence: number;
  /** Counted over all attempts of the call. */
  readonly number: number;
  /** As the tool reported it, and `renewLease` stored it. */
  readonly event: Progress;
}

/** The parts of a call's record: the fields of the hash, the parsed request and the verified outcome. */
export interface ReadRecord {
  readonly callId: string;
  readonly fields: Readonly<Record<string, string>>;
  readonly request: StoredRequest;
  readonly attempts: readonly AttemptRecord[];
  readonly outcome: Outcome | undefined;
  readonly nowMs: number;
}

/** The fields of a record. The record of a success packs some into the field `ended` (`endedText` in `shared.lua`). */
export function unpackedFields(stored: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const { ended, ...fields } = stored;
  if (ended === undefined) return stored;
  const [generation = '', sinceGeneration, sinceClaim, fence = '', version = '', paramsDigest = '', ...attempt] =
    ended.split(' ');
  const createdAtMs = Number(generation) + Number(sinceGeneration);
  const updatedAtMs = createdAtMs + Number(sinceClaim);
  const times = { createdAtMs: String(createdAtMs), updatedAtMs: String(updatedAtMs) };
  const [startedAfterMs, durationMs, worker] = attempt;
  const onlyAttempt = `${fence} ${createdAtMs + Number(startedAfterMs)} ${durationMs} ${worker}\n`;
  const attempts = worker === undefined ? {} : { attempts: onlyAttempt };
  return { ...fields, ...times, ...attempts, generation, fence, version, paramsDigest };
}

export function callRecord({ callId, fields, request, attempts, outcome, nowMs }: ReadRecord): CallRecord {
  const { toolNamespace, toolName } = request.envelope;
  const startedAtMs = fields['startedAtMs'] ?? (fields['fence'] && attempts.at(-1)?.startedAtMs);
  const number = (name: string) => (fields[name] === undefined ? {} : { [name]: Number(fields[name]) });
  return {
    callId,
    state: fields['state'] as CallState,
    ...(fields['phase'] !== undefined && { phase: phaseAt(fields, nowMs) }),
    generation: fields['generation'] ?? '',
    fence: Number(fields['fence'] ?? 0),
    request,
    paramsDigest: fields['paramsDigest'] ?? '',
    circuit: fields['circuit'] ?? circuitKey({ hint: 'tool', tool: `${toolNamespace}.${toolName}` }),
    ...(fields['approval'] !== undefined && { approvalId: fields['approval'] }),
    attempts,
    lostAttempts: Number(fields['lost'] ?? 0),
    ...(fields['redriven'] !== undefined && { redrives: parseJsonLines<RedriveMark>(fields['redriven']) }),
    createdAtMs: Number(fields['createdAtMs']),
    updatedAtMs: Number(fields['updatedAtMs'] ?? fields['startedAtMs'] ?? fields['createdAtMs']),
    // A copy of a moved record expires in Redis before the record does.
    ...number('expiresAtMs'),
    ...(fields['keptUntilMs'] !== undefined && { expiresAtMs: Number(fields['keptUntilMs']) }),
    ...number('freeAtMs'),
    ...number('lockUntilMs'),
    ...number('pendingUntilMs'),
    ...number('pendingNumber'),
    ...(startedAtMs !== undefined && { startedAtMs: Number(startedAtMs) }),
    ...(fields['worker'] !== undefined && { worker: fields['worker'] }),
    cancelRequested: fields['cancelRequested'] === '1',
    version: Number(fields['version'] ?? 1),
    ...(outcome !== undefined && { outcome }),
    readAtMs: nowMs,
  };
}

/** A delayed call counts as queued from its start on: BullMQ moves its job and writes no record. */
function phaseAt({ phase, notBeforeMs }: ReadRecord['fields'], nowMs: number): Phase {
  return phase === 'delayed' && Number(notBeforeMs) <= nowMs ? 'queued' : (phase as Phase);
}

/** One line for each attempt, so that a script can append one. A success is `fence start duration worker`; all others are JSON. */
export function formatAttempts(attempts: readonly AttemptRecord[]): string {
  return attempts.map((attempt) => `${formatSuccess(attempt) ?? attemptJson(attempt)}\n`).join('');
}

function formatSuccess({ attempt: _position, ...record }: AttemptRecord): string | undefined {
  const { fence, worker, startedAtMs, finishedAtMs, status, retriable, ...rest } = record;
  if (status !== 'success' || retriable || worker.includes('\n')) return undefined;
  for (const _name in rest) return undefined;
  return `${fence} ${startedAtMs} ${finishedAtMs - startedAtMs} ${worker}`;
}

function attemptJson({ attempt: _position, ...rest }: AttemptRecord): string {
  return JSON.stringify(rest);
}

export function parseAttempts(lines: string): AttemptRecord[] {
  return nonEmptyLines(lines).map((line, index) => ({
    attempt: index + 1,
    ...(parseSuccess(line) ?? (JSON.parse(line) as Omit<AttemptRecord, 'attempt'>)),
  }));
}

function parseSuccess(line: string): Omit<AttemptRecord, 'attempt'> | undefined {
  const [, fence, start, durationMs, worker] = /^(\d+) (-?\d+) (-?\d+) (.*)$/.exec(line) ?? [];
  if (worker === undefined) return undefined;
  const startedAtMs = Number(start);
  const finishedAtMs = startedAtMs + Number(durationMs);
  return { fence: Number(fence), worker, startedAtMs, finishedAtMs, status: 'success', retriable: false };
}

function parseJsonLines<Line>(lines: string): Line[] {
  return nonEmptyLines(lines).map(parseJson).filter(isObject) as Line[];
}

function nonEmptyLines(lines: string): string[] {
  return lines.split('\n').filter((line) => line !== '');
}
