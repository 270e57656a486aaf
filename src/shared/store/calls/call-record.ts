/** The record of a call in the ledger, and how it is parsed. */
import type { AttemptRecord, CallState, Phase } from '../../calls/call-state.ts';
import type { ToolCallEnvelope } from '../../calls/envelope.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { circuitKey } from '../../circuits/circuit-key.ts';
import type { PlannedCall } from '../../groups/group.ts';
import type { Effects } from '../../retries/effects.ts';
import { publishedToolId } from '../fleet/catalogue.ts';
import type { TextReference } from './records/large-values.ts';

/** The stored request: the envelope, and the tool with which it was validated. */
export interface StoredRequest {
  readonly envelope: ToolCallEnvelope;
  /** The reference to large parameters, as long as they have not been read, or could not be. */
  readonly largeParams?: TextReference & { readonly id: string };
  readonly tool: { readonly version: string; readonly definition: string; readonly effects?: Effects };
  /** Seen by the tool and by those downstream. */
  readonly idempotencyKey: string;
  /** Submitted while the reliability layer was off: one attempt, and no circuit. */
  readonly direct?: boolean;
  /** The caller that submitted the call, where the API process knows it: it cannot approve the call. */
  readonly submittedBy?: string;
  /** Kind of the channel that the session's requests reach, where policy asks for it. */
  readonly channel?: string;
  /** Names of the budgets that the time of its attempts is taken from. */
  readonly timed?: readonly string[];
  /** The receiver of its end, signed (`signedCallback`). */
  readonly callback?: string;
  /** Sessions other than its own may have joined it. */
  readonly shared?: true;
  /** The call does not start before this time on Redis' clock. */
  readonly startAtMs?: number;
  /** The call runs under the approval of its plan. */
  readonly planned?: PlannedCall;
}

/** The feature that a worker needs to run the call. */
export function needOf({ envelope, tool }: StoredRequest): string {
  return publishedToolId({ namespace: envelope.toolNamespace, name: envelope.toolName, version: tool.version });
}

/** Names a life of a call that was resolved as `retry`: by its generation, behind the one under which the call was made. */
export function resolutionOf(generation: string, before: { readonly generation: string; readonly resolution: string }) {
  return `${before.resolution === '' ? before.generation : firstGenerationOf(before.resolution)}.${generation}`;
}

export function firstGenerationOf(resolution: string): string {
  return resolution.split('.', 1)[0] ?? '';
}

export function withParams(envelope: ToolCallEnvelope, params: Record<string, unknown>): ToolCallEnvelope {
  return { ...envelope, payload: { ...envelope.payload, params } };
}

/** A redrive, as the record of its call keeps it. */
export interface RedriveMark {
  readonly id: string;
  readonly by: string;
  readonly atMs: number;
  /** The failure that it ran the call again for, the attempts until then, and their last fence. */
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
  /** The newest approval that a person was asked for. */
  readonly approvalId?: string;
  readonly attempts: readonly AttemptRecord[];
  readonly lostAttempts: number;
  /** The newest redrives of the call, the oldest first; absent where there was none. */
  readonly redrives?: readonly RedriveMark[];
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly expiresAtMs?: number;
  /** When its key is free to run again, though the record is still there; absent where that is no sooner. */
  readonly freeAtMs?: number;
  readonly lockUntilMs?: number;
  readonly pendingUntilMs?: number;
  /** The number of its pending among the call's reports of progress. */
  readonly pendingNumber?: number;
  readonly worker?: string;
  readonly startedAtMs?: number;
  readonly cancelRequested: boolean;
  /** The version for optimistic concurrency. */
  readonly version: number;
  readonly outcome?: Outcome;
  /** Redis' clock when the record was read. */
  readonly readAtMs: number;
}

/** Progress that a tool reported, as `renewLease` stored it. */
export interface ProgressReport {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

export interface KeptProgress {
  readonly fence: number;
  /** Counted over all attempts of the call. */
  readonly number: number;
  readonly event: ProgressReport;
}

/** A call's record as it is read: the hash in Redis, its request parsed, its outcome verified. */
export interface ReadRecord {
  readonly callId: string;
  readonly fields: Readonly<Record<string, string>>;
  readonly request: StoredRequest;
  readonly outcome: Outcome | undefined;
  readonly nowMs: number;
}

/** The fields of a record, also of one that keeps them in one (`endedText` in `shared.lua`). */
export function unpackedFields(stored: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const { ended, ...fields } = stored;
  if (ended === undefined) return stored;
  const [generation = '', sinceGeneration, sinceClaim, fence = '', version = '', paramsDigest = '', ...attempt] =
    ended.split(' ');
  const createdAtMs = Number(generation) + Number(sinceGeneration);
  const updatedAtMs = createdAtMs + Number(sinceClaim);
  const times = { createdAtMs: String(createdAtMs), updatedAtMs: String(updatedAtMs) };
  const [startedAfterMs, durationMs, worker] = attempt;
  const only = `${fence} ${createdAtMs + Number(startedAfterMs)} ${durationMs} ${worker}\n`;
  const attempts = worker === undefined ? {} : { attempts: only };
  return { ...fields, ...times, ...attempts, generation, fence, version, paramsDigest };
}

export function callRecord({ callId, fields, request, outcome, nowMs }: ReadRecord): CallRecord {
  const { toolNamespace, toolName } = request.envelope;
  const attempts = parseAttempts(fields['attempts'] ?? '');
  const startedAtMs = fields['startedAtMs'] ?? (fields['fence'] && attempts.at(-1)?.startedAtMs);
  const number = (name: string) => (fields[name] === undefined ? {} : { [name]: Number(fields[name]) });
  return {
    callId,
    state: fields['state'] as CallState,
    ...(fields['phase'] === undefined ? {} : { phase: phaseAt(fields, nowMs) }),
    generation: fields['generation'] ?? '',
    fence: Number(fields['fence'] ?? 0),
    request,
    paramsDigest: fields['paramsDigest'] ?? '',
    circuit: fields['circuit'] ?? circuitKey({ hint: 'tool', tool: `${toolNamespace}.${toolName}` }),
    ...(fields['approval'] === undefined ? {} : { approvalId: fields['approval'] }),
    attempts,
    lostAttempts: Number(fields['lost'] ?? 0),
    ...(fields['redriven'] === undefined ? {} : { redrives: linesOf<RedriveMark>(fields['redriven']) }),
    createdAtMs: Number(fields['createdAtMs']),
    updatedAtMs: Number(fields['updatedAtMs'] ?? fields['startedAtMs'] ?? fields['createdAtMs']),
    // Redis keeps a copy for less time than its record.
    ...number('expiresAtMs'),
    ...(fields['keptUntilMs'] === undefined ? {} : { expiresAtMs: Number(fields['keptUntilMs']) }),
    ...number('freeAtMs'),
    ...number('lockUntilMs'),
    ...number('pendingUntilMs'),
    ...number('pendingNumber'),
    ...(startedAtMs === undefined ? {} : { startedAtMs: Number(startedAtMs) }),
    ...(fields['worker'] === undefined ? {} : { worker: fields['worker'] }),
    cancelRequested: fields['cancelRequested'] === '1',
    version: Number(fields['version'] ?? 1),
    ...(outcome === undefined ? {} : { outcome }),
    readAtMs: nowMs,
  };
}

/** From its start on, a delayed call is queued: only its job has moved. */
function phaseAt({ phase, notBeforeMs }: ReadRecord['fields'], nowMs: number): Phase {
  return phase === 'delayed' && Number(notBeforeMs) <= nowMs ? 'queued' : (phase as Phase);
}

/**
 * Attempts are lines, so that a script can append one: their number is their position. A success is its fence, start, duration and worker;
 * every other attempt is JSON.
 */
export function formatAttempts(attempts: readonly AttemptRecord[]): string {
  return attempts.map((attempt) => `${plainSuccess(attempt) ?? attemptJson(attempt)}\n`).join('');
}

function plainSuccess({ attempt: _position, ...record }: AttemptRecord): string | undefined {
  const { fence, worker, startedAtMs, finishedAtMs, status, retriable, ...rest } = record;
  if (status !== 'success' || retriable || worker.includes('\n')) return undefined;
  for (const _name in rest) return undefined;
  return `${fence} ${startedAtMs} ${finishedAtMs - startedAtMs} ${worker}`;
}

function attemptJson({ attempt: _position, ...rest }: AttemptRecord): string {
  return JSON.stringify(rest);
}

export function parseAttempts(lines: string): AttemptRecord[] {
  return textLines(lines).map((line, index) => ({
    attempt: index + 1,
    ...(parsedSuccess(line) ?? (JSON.parse(line) as Omit<AttemptRecord, 'attempt'>)),
  }));
}

function parsedSuccess(line: string): Omit<AttemptRecord, 'attempt'> | undefined {
  const [, fence, start, durationMs, worker] = /^(\d+) (-?\d+) (-?\d+) (.*)$/.exec(line) ?? [];
  if (worker === undefined) return undefined;
  const startedAtMs = Number(start);
  const finishedAtMs = startedAtMs + Number(durationMs);
  return { fence: Number(fence), worker, startedAtMs, finishedAtMs, status: 'success', retriable: false };
}

function linesOf<Line>(lines: string): Line[] {
  return textLines(lines).map((line) => JSON.parse(line) as Line);
}

function textLines(lines: string): string[] {
  return lines.split('\n').filter((line) => line !== '');
}
