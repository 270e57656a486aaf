/** `pawl.batches`: many calls in one request, each with an outcome of its own. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import {
  contractInvalid,
  isIdempotencyKey,
  MAX_KEY_BYTES,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
} from '../../shared/calls/envelope.ts';
import { envelopeOf, refusal } from '../../shared/calls/outcome.ts';
import { type Issue, invalidInput, isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import { FAILURES, type FailureCode } from '../../shared/errors/failure-codes.ts';
import {
  type BatchDefinition,
  type BatchEntryError,
  type BatchEntryRecord,
  BatchProgress,
  type BatchState,
  batchKey,
  entryCall,
} from '../../shared/groups/batch.ts';
import {
  type CallExtras,
  decodeMembers,
  type GroupHead,
  MAX_MEMBERS,
  type Member,
  type MemberEnd,
} from '../../shared/groups/group.ts';
import { identifyGroup } from '../../shared/groups/group-key.ts';
import { checkObject } from '../../shared/schema/known-members.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { GroupRecord } from '../../shared/store/groups/groups.ts';
import type { GroupStore } from '../../shared/store/ports.ts';
import { asLost } from '../../shared/store/segments/segments.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import { type Batch, type BatchCall, type BatchView, batchView } from './batch-view.ts';
import { aboutGroup, cancelGroup, createdElsewhere, type GroupAccess, groupOf, groupWithKey } from './group-access.ts';
import type { GroupCalls } from './group-driver.ts';
import type { GroupRules, GroupRunner } from './group-runner.ts';

/** A call to submit. */
export interface BatchSubmission extends CallExtras {
  readonly envelope: ToolCallEnvelope;
}

/** A call to submit, or the error that its entry was refused with before it had an envelope. */
export type BatchEntry = BatchSubmission | PawlError;

interface NewBatch {
  readonly entries: readonly BatchEntry[];
  /** The number of calls in flight at once. Default: all. */
  readonly concurrency?: number | undefined;
  /** The same key of the same owner returns the same batch; with other calls it is a conflict. */
  readonly idempotencyKey?: string | undefined;
  /** The session that owns the key. Default: the tenant owns it. */
  readonly sessionKey?: string | undefined;
  readonly tenantId?: string | undefined;
  readonly submittedBy?: string | undefined;
}

type AcceptedEntry = { readonly callId: string } | { readonly error: BatchEntryError };

export interface AcceptedBatch {
  readonly batchId: string;
  /** In the order of the entries. */
  readonly calls: readonly AcceptedEntry[];
}

export interface BatchServiceDeps {
  readonly records: GroupStore;
  readonly runner: GroupRunner;
  readonly calls: GroupCalls;
  readonly audit: RecordAudit;
  readBrief(callId: string): Promise<CallRecord | undefined>;
  now(): Promise<number>;
}

/** The largest JSON of all entries together. */
const MAX_BYTES = 4 * 1_024 * 1_024;

export const BATCH_RULES: GroupRules = {
  progressOf: ({ definition, fields }) => new BatchProgress(definition as BatchDefinition, decodeMembers(fields)),
  callOf({ definition }, _progress, key) {
    const entry = (definition as BatchDefinition).entries[Number(key)];
    return entry?.envelope && entryCall(key, entry);
  },
};

export class BatchService {
  readonly #deps: BatchServiceDeps;

  constructor(deps: BatchServiceDeps) {
    this.#deps = deps;
  }

  /**
   * Accepts a batch. An invalid entry is refused alone, with its index in each path. From then on every front door can
   * drive it. With an idempotency key that its owner has used, it returns the existing batch. Throws `CONTRACT_INVALID` for a batch
   * without entries, with too many, or too large, and `IDEMPOTENCY_CONFLICT` for a key that was used with other calls.
   */
  async create(batch: NewBatch, results?: Map<string, ToolResultEnvelope>): Promise<AcceptedBatch> {
    checkSize(batch);
    const { concurrency, tenantId, submittedBy, sessionKey, idempotencyKey: key } = batch;
    const content = key === undefined ? undefined : batch.entries.map(contentOf);
    const identity = identifyGroup({ kind: 'batch', owner: [tenantId, sessionKey], key, content });
    const existing = await groupWithKey(this.#deps.records, identity);
    if (existing !== undefined) return acceptedBatch(existing);
    const { records, runner, audit, now } = this.#deps;
    const batchId = identity?.id ?? uuidv7();
    const about = defined({ tenantId, submittedBy, digest: identity?.digest });
    const head: GroupHead = { id: batchId, kind: 'batch', ...about, createdAtMs: await now() };
    const entries = await Promise.all(batch.entries.map((entry, index) => this.#acceptEntry(batchId, entry, index)));
    const definition: BatchDefinition = { entries, ...defined({ concurrency }) };
    checkBytes(definition);
    if (!(await runner.create(head, definition, defined({ results }))))
      return acceptedBatch(await createdElsewhere(records, head, identity));
    void audit({ ...aboutGroup(head), action: 'begun', by: submittedBy, size: entries.length });
    return acceptedBatch({ head, definition });
  }

  async #acceptEntry(batchId: string, entry: BatchEntry, index: number): Promise<BatchEntryRecord> {
    try {
      if (entry instanceof PawlError) throw entry;
      const { identity, envelope } = await this.#deps.calls.check(withKey(entry.envelope, batchKey(batchId, index)));
      return { ...entry, envelope, callId: identity.callId };
    } catch (error) {
      if (!isRefusalError(error)) throw error;
      return { error: entryError(error, index) };
    }
  }

  /** A batch with its calls. Throws `NOT_FOUND`. */
  async read(batchId: string, access?: GroupAccess): Promise<BatchView> {
    return batchView(await this.#batch(await groupOf(this.#deps.records, 'batch', batchId, access)));
  }

  async #batch(record: GroupRecord): Promise<Batch> {
    const { head, endedAtMs } = record;
    const definition = record.definition as BatchDefinition;
    const members = decodeMembers(record.fields);
    const calls = await Promise.all(
      definition.entries.map(async (entry, index): Promise<BatchCall> => {
        const member = members.get(String(index));
        const callId = member?.callId;
        const call = callId === undefined ? undefined : await this.#deps.readBrief(callId);
        return { entry, ...defined({ member, record: call }) };
      }),
    );
    return { head, definition, state: batchState(record), calls, ...defined({ endedAtMs }) };
  }

  /** Starts no further call, and cancels those that have not ended. A batch that has ended does not change. Throws `NOT_FOUND`. */
  async cancel(batchId: string, by = 'library'): Promise<void> {
    await cancelGroup(this.#deps, await groupOf(this.#deps.records, 'batch', batchId), by);
  }

  /** Resolves with the results in the order of the entries, when the batch has ended. */
  async results(
    { batchId }: Pick<AcceptedBatch, 'batchId'>,
    received: ReadonlyMap<string, ToolResultEnvelope> = new Map(),
  ): Promise<readonly ToolResultEnvelope[]> {
    const record = await this.#deps.runner.ended('batch', batchId);
    const members = decodeMembers(record.fields);
    const { entries } = record.definition as BatchDefinition;
    return Promise.all(
      entries.map((entry, index) => {
        const key = String(index);
        return received.get(key) ?? this.#resultOf(entry, members.get(key));
      }),
    );
  }

  async #resultOf(entry: BatchEntryRecord, member: Member | undefined): Promise<ToolResultEnvelope> {
    if (entry.error !== undefined) return refusedEntry(entry.error);
    const { requestId, toolName } = entry.envelope;
    const callId = member?.callId;
    const ids = { requestId, toolName, ...defined({ callId }) };
    const record = callId === undefined ? undefined : await this.#deps.calls.read(callId).catch(asLost);
    if (record instanceof PawlError) return refusal(record, ids);
    if (record?.outcome !== undefined && callId !== undefined)
      return envelopeOf(record.outcome, { requestId, toolName, callId });
    return withoutRecord(member?.end, ids);
  }
}

/** The part of an entry that is the same when the request is repeated. */
function contentOf(entry: BatchEntry): unknown {
  if (entry instanceof PawlError) return { code: entry.code, message: entry.message };
  const { target, toolNamespace, toolName, payload } = entry.envelope;
  return [target.sessionKey, toolNamespace, toolName, payload.params, payload.idempotencyKey ?? null];
}

function acceptedBatch({ head, definition }: Pick<GroupRecord, 'head' | 'definition'>): AcceptedBatch {
  const { entries } = definition as BatchDefinition;
  const calls = entries.map((entry) => (entry.error === undefined ? { callId: entry.callId } : entry));
  return { batchId: head.id, calls };
}

export function batchState({ endedAtMs, cancelledBy }: GroupRecord): BatchState {
  if (endedAtMs === undefined) return cancelledBy === undefined ? 'running' : 'cancelling';
  return cancelledBy === undefined ? 'done' : 'cancelled';
}

/** The result of a call whose record is not there: it never began, was refused, was flushed, or has expired. */
function withoutRecord(end: MemberEnd | undefined, ids: Parameters<typeof refusal>[1]): ToolResultEnvelope {
  if (end === undefined) {
    const message = 'The batch was cancelled before this call began: nothing ran.';
    return refusal({ code: 'CANCELLED', message }, ids);
  }
  const { status, code = 'TOOL_FAILED', message = '', mayHaveHappened } = end;
  if (status === 'success') {
    const lost = 'The call succeeded, and its result is gone: its record was flushed, or has expired.';
    return refusal({ code: 'RESULT_LOST', message: lost }, ids);
  }
  // A tool has codes of its own, such as `HTTP_422`.
  const known = Object.hasOwn(FAILURES, code) ? (code as FailureCode) : 'TOOL_FAILED';
  const refused = refusal({ code: known, message }, ids, status);
  const inDoubt = mayHaveHappened === true ? { retriable: false, mayHaveHappened } : {};
  return { ...refused, error: { ...refused.error, code, message, ...inDoubt } };
}

/** The result of an entry that was refused before it was a call. */
function refusedEntry({ code, ...error }: BatchEntryError): ToolResultEnvelope {
  return refusal({ code: code as PawlError['code'], ...error }, { requestId: uuidv7(), toolName: '' });
}

function checkSize(batch: NewBatch): void {
  checkObject('batch', batch);
  const { entries, concurrency, idempotencyKey } = batch;
  const issues: Issue[] = [];
  const refuse = (path: string, message: string) => void issues.push({ path, message: `must be ${message}` });
  if (!Array.isArray(entries)) refuse('calls', `a list of calls; got ${quoteValue(entries)}`);
  else if (entries.length < 1 || entries.length > MAX_MEMBERS)
    refuse('calls', `a list of 1 to ${MAX_MEMBERS} calls; got ${entries.length}`);
  if (concurrency !== undefined && !(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= MAX_MEMBERS))
    refuse('concurrency', `a whole number from 1 to ${MAX_MEMBERS}; got ${String(concurrency)}`);
  if (idempotencyKey !== undefined && !isIdempotencyKey(idempotencyKey))
    refuse('idempotencyKey', `a text that is not empty, of at most ${MAX_KEY_BYTES} bytes of UTF-8`);
  if (issues.length > 0) throw invalidBatch(issues);
}

function checkBytes(definition: BatchDefinition): void {
  const bytes = Buffer.byteLength(JSON.stringify(definition));
  if (bytes > MAX_BYTES)
    throw invalidBatch([{ path: 'calls', message: `has ${bytes} bytes of JSON; at most ${MAX_BYTES} are allowed` }]);
}

function invalidBatch(issues: readonly Issue[]): PawlError {
  return invalidInput('The batch is not usable', issues, 'the batch');
}

/** Gives the call a key, so that it is the same call when another process submits it again. */
function withKey(envelope: ToolCallEnvelope, key: string): ToolCallEnvelope {
  const { payload } = envelope;
  if (payload.idempotencyKey !== undefined) return envelope;
  if (envelope.transport.dedupeMode === 'disabled')
    throw contractInvalid([{ path: 'dedupeMode', message: 'must not be "disabled" in a batch, which may be resumed' }]);
  return { ...envelope, payload: { ...payload, idempotencyKey: key } };
}

/** The error of an entry: its paths begin with the entry's index. */
function entryError({ code, message, issues = [] }: PawlError, index: number): BatchEntryError {
  const entry = `calls.${index}`;
  const pathInEntry = (path: string) => {
    if (path === '') return code === 'INVALID_PARAMS' ? `${entry}.params` : entry;
    if (code === 'INVALID_PARAMS') return `${entry}.params.${path}`;
    return `${entry}.${path.replace(/^payload\./, '')}`;
  };
  const located = issues.map((issue) => ({ path: pathInEntry(issue.path), message: issue.message }));
  return { code, message, issues: located.length > 0 ? located : [{ path: entry, message }] };
}
