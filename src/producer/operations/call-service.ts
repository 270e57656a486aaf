/** `pawl.calls`: finds, follows and ends calls, and resolves those whose outcome is unknown. */
import { Readable } from 'node:stream';
import { SEARCHABLE_STATES } from '../../shared/calls/call-state.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import { envelopeOf, isUnresolved } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { invalidPart, PawlError } from '../../shared/errors/failure.ts';
import { checkMembers } from '../../shared/schema/known-members.ts';
import { sessionClosed } from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { FlushCounts } from '../../shared/store/calls/call-index.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { OperatorAction, RecordOverride } from '../calls/audit.ts';
import { afterCall, hookedTool } from '../calls/call-hooks.ts';
import { type Cancellation, cancelCall, requestCancellation, unknownCall } from '../calls/cancel.ts';
import { type CallFilter, findCalls } from '../calls/find-calls.ts';
import { parseResolution, type Resolution, resolveAs, resolvedOutput } from '../calls/resolution.ts';
import type { ResultWaiters } from '../calls/result-waiters.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import { type BulkResolution, resolveMany } from './bulk-resolution.ts';

/** A selection of calls: one, those of a session or of a tool, or all. */
export interface CallSelection {
  readonly callId?: string;
  readonly sessionKey?: string;
  readonly tool?: string;
  readonly by?: string;
}

interface CallServiceDeps {
  readonly backend: Pick<Backend, 'ledger' | 'shards' | 'approvals' | 'sessions'>;
  /** They have the TTLs of records. */
  readonly settings: Pick<Settings, 'ttl' | 'tools'>;
  readonly results: ResultWaiters;
  readonly inboxId: string;
  readonly approvals: Pick<ApprovalService, 'cancelled' | 'requestAgain' | 'requested'>;
  readonly hooks: Hooks;
  readonly catalogue: Pick<ToolCatalogue, 'find' | 'peek' | 'qualifiedNameOf'>;
  readonly recordOverride: RecordOverride;
}

export class CallService {
  readonly #deps: CallServiceDeps;

  constructor(deps: CallServiceDeps) {
    this.#deps = deps;
  }

  /** A call's record; undefined when there is none or it has expired. */
  read(callId: string): Promise<CallRecord | undefined> {
    return this.#deps.backend.ledger.read(callId);
  }

  /** A call's record with the parameters that ran, which a person may have edited. */
  readAsItRan(callId: string): Promise<CallRecord | undefined> {
    return this.#deps.backend.approvals.callAsItRan(callId);
  }

  /** Calls of all tiers, the newest first. Large outcomes, which are stored outside of the records, are left out. */
  async list(
    options: CallFilter & { readonly limit?: number; readonly sessionKey?: string } = {},
  ): Promise<CallRecord[]> {
    checkMembers('options', options, ['tool', 'state', 'sessionKey', 'limit']);
    const { state } = options;
    if (state !== undefined && !SEARCHABLE_STATES.includes(state)) throw unknownState(state);
    const { ledger, shards } = this.#deps.backend;
    const search = { ...options, limit: options.limit ?? 50, isVisible: () => true };
    const { records } = await findCalls(shards.partitions(), ledger, search);
    return [...records];
  }

  /** The number of calls that wait or run in the whole fleet. */
  async backlog(): Promise<number> {
    const { ledger, shards } = this.#deps.backend;
    const counts = await Promise.all(shards.partitions().map((partition) => ledger.index.counts(partition)));
    return counts.reduce((sum, { inflight }) => sum + inflight, 0);
  }

  /** The whole output of a call that succeeded. Throws `UNKNOWN_CALL` when there is none. */
  async output(callId: string): Promise<unknown> {
    const output = (await this.#deps.backend.ledger.outcome(callId))?.output;
    if (output === undefined) throw withoutOutput(callId);
    return output.content;
  }

  /**
   * The output as JSON text, streamed from Redis in parts. Throws `UNKNOWN_CALL` when there is none, and `SIGNATURE_INVALID` for an output
   * with a wrong signature; the stream may also fail with either of them.
   */
  async outputStream(callId: string): Promise<Readable> {
    const parts = await this.#deps.backend.ledger.output(callId);
    if (parts === undefined) throw withoutOutput(callId);
    // The first part is read before anything is sent, so that its error can still be a response.
    const first = await parts.next();
    return Readable.from(startingWith(first.value ?? Buffer.alloc(0), parts), { objectMode: false });
  }

  /**
   * Waits for the end of a call, which may have been submitted before this process started. Undefined after `waitMs`. Throws
   * `UNKNOWN_CALL`.
   */
  async result(
    callId: string,
    options: { readonly requestId?: string; readonly waitMs?: number } = {},
  ): Promise<ToolResultEnvelope | undefined> {
    const { results, backend, inboxId } = this.#deps;
    const waiting = results.wait(callId);
    try {
      const record = await backend.ledger.read(callId, inboxId);
      if (record === undefined) throw new PawlError('UNKNOWN_CALL');
      const { requestId, toolName } = record.request.envelope;
      const ids = { requestId: options.requestId ?? requestId, toolName, callId: record.callId };
      if (record.outcome !== undefined && record.state !== 'inflight') return envelopeOf(record.outcome, ids);
      const outcome = await withinMs(waiting.outcome, options.waitMs);
      return outcome === undefined ? undefined : envelopeOf(outcome, ids);
    } finally {
      waiting.stop();
    }
  }

  /** Applies `afterCall` hooks to a result that was read by the call's ID. Throws `UNKNOWN_CALL`. */
  async withHooks(result: ToolResultEnvelope): Promise<ToolResultEnvelope> {
    const { hooks, catalogue } = this.#deps;
    const { callId } = result;
    if (callId === undefined || !hooks.has('afterCall')) return result;
    const record = await this.read(callId);
    if (record === undefined) throw new PawlError('UNKNOWN_CALL');
    return afterCall(hooks, hookedTool(record, catalogue), record.request.envelope, result);
  }

  /** Cancels a call in any state. Throws `UNKNOWN_CALL`. */
  async cancel(callId: string, by?: string): Promise<Cancellation> {
    const { backend, settings, results, inboxId, approvals, recordOverride } = this.#deps;
    const { ledger } = backend;
    const onCancelled = (ended: string) => approvals.cancelled(ended);
    const ended = await cancelCall({ ledger, results, inboxId, settings, onCancelled }, callId);
    const subject = aboutCall(callId, await ledger.readBrief(callId));
    await recordOverride({ what: 'cancellation', action: ended.settlement, by, ...subject });
    return ended;
  }

  /** Requests the cancellation of a call without waiting for it. Throws `UNKNOWN_CALL`. */
  async requestCancel(callId: string, by?: string): Promise<void> {
    const { backend, settings, approvals, recordOverride } = this.#deps;
    const record = await backend.ledger.read(callId);
    if (record === undefined) throw new PawlError('UNKNOWN_CALL');
    const answer = await requestCancellation({ ledger: backend.ledger, settings }, record);
    if (answer.kind === 'cancelled') await approvals.cancelled(callId);
    await recordOverride({ what: 'cancellation', action: 'requested', by, ...aboutCall(callId, record) });
  }

  resolveMany(resolution: BulkResolution): ReturnType<typeof resolveMany> {
    const { backend } = this.#deps;
    const check = (record: CallRecord, given: Resolution) =>
      given.as === 'retry' ? this.#requireOpenSession(record) : resolvedOutput(this.#deps, record, given);
    return resolveMany(
      { backend, check, resolve: (callId, as, by, reason) => this.resolve(callId, as, by, reason) },
      resolution,
    );
  }

  /**
   * Sets the outcome of a call in doubt, or lets it run again. `reason` is recorded in the audit trail. Throws `UNKNOWN_CALL`,
   * `CALL_NOT_RESOLVABLE`, `CONTRACT_INVALID`, `COMPLETION_INVALID` for an output that does not fit the tool, and `SESSION_CLOSED` for a
   * call that would run again in a closed session.
   */
  async resolve(callId: string, resolution: Resolution, by?: string, reason?: string): Promise<CallRecord> {
    const { backend, recordOverride } = this.#deps;
    const { ledger } = backend;
    const parsed = parseResolution(resolution);
    const record = await ledger.read(callId);
    if (record === undefined) throw unknownCall(callId);
    const answer =
      parsed.as === 'retry' ? await this.#retry(record) : await resolveAs({ ...this.#deps, ledger }, record, parsed);
    if (answer === 'gone') throw new PawlError('UNKNOWN_CALL');
    if (answer === 'refused') {
      throw new PawlError(
        'CALL_NOT_RESOLVABLE',
        `Only a call in doubt can be resolved; ${callId} is ${record.state}${record.outcome?.error === undefined ? '' : ` (${record.outcome.error.code})`}.`,
      );
    }
    await recordOverride({ what: 'resolution', action: parsed.as, by, reason, ...aboutCall(callId, record) });
    return (await ledger.read(callId)) ?? record;
  }

  /** Lets a call run again. A call that needed an approval needs another one first. */
  async #retry(record: CallRecord): Promise<'queued' | 'refused' | 'gone'> {
    const { backend, approvals } = this.#deps;
    const { approvalId = record.request.planned?.approvalId, readAtMs } = record;
    const generation = String(readAtMs);
    if (!isUnresolved(record.outcome)) return 'refused';
    await this.#requireOpenSession(record);
    if (approvalId === undefined) return backend.ledger.requeue(record, { reason: 'resolved', generation });
    const request = await approvals.requestAgain(record, approvalId);
    const answer = await backend.ledger.requeue(record, { reason: 'resolved', generation, approval: request });
    if (answer === 'queued') await approvals.requested(request);
    return answer;
  }

  /** A closed session ends its calls, so nothing of it starts again. */
  async #requireOpenSession({ request }: CallRecord): Promise<void> {
    const { sessionKey } = request.envelope.target;
    const session = await this.#deps.backend.sessions.read(sessionKey);
    if (session?.state === 'closed') throw sessionClosed(sessionKey);
  }

  /**
   * Deletes the records of calls that have ended, so that calls with the same keys run again. Calls in flight and calls in doubt stay; a
   * cancelled call in doubt can be deleted by its ID. Throws `UNKNOWN_TOOL` and `UNKNOWN_CALL`.
   */
  async flush(selection: CallSelection = {}): Promise<FlushCounts> {
    checkMembers('selection', selection, ['callId', 'sessionKey', 'tool', 'by']);
    const { callId, sessionKey, tool, by } = selection;
    if (callId !== undefined) return this.#forget(callId, by);
    const { backend, catalogue, recordOverride } = this.#deps;
    const select = {
      ...(sessionKey !== undefined && { sessionKey }),
      ...(tool !== undefined && { tool: await catalogue.qualifiedNameOf(tool) }),
    };
    const { ledger, shards } = backend;
    const flushed = await Promise.all(shards.partitions().map((partition) => ledger.index.flush(partition, select)));
    const sum = (name: keyof FlushCounts) => flushed.reduce((total, counts) => total + counts[name], 0);
    await recordOverride({ what: 'flush', action: `${sum('flushed')} forgotten`, by, ...select });
    return { flushed: sum('flushed'), inflight: sum('inflight'), unresolved: sum('unresolved') };
  }

  async #forget(callId: string, by: string | undefined): Promise<FlushCounts> {
    const forgotten = await this.#deps.backend.ledger.index.forget(callId);
    if (forgotten === undefined) throw unknownCall(callId);
    await this.#deps.recordOverride({ what: 'flush', action: `${forgotten.flushed} forgotten`, by, callId });
    return forgotten;
  }
}

function unknownState(state: unknown): PawlError {
  return invalidPart('The state', 'state', `must be one of ${SEARCHABLE_STATES.join(', ')}; got ${quoteValue(state)}`);
}

/** The fields of an audit record that describe a call. */
function aboutCall(callId: string, record: CallRecord | undefined): Omit<OperatorAction, 'what' | 'action'> {
  if (record === undefined) return { callId };
  const { toolNamespace, toolName, target } = record.request.envelope;
  const { sessionKey, tenantId } = target;
  return { callId, tool: `${toolNamespace}.${toolName}`, sessionKey, tenantId };
}

function withoutOutput(callId: string): PawlError {
  return new PawlError('UNKNOWN_CALL', `Call ${callId} has no output: it failed, still runs, or has expired.`);
}

async function* startingWith(first: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  yield first;
  yield* rest;
}
