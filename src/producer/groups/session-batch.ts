/** `session.batch`: builds the envelopes of its calls, and returns the results in their order. */
import { contractInvalid, type ToolCallEnvelope, type ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { startTimeOf, withStartTime } from '../../shared/calls/start-time.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { checkMembers } from '../../shared/schema/known-members.ts';
import type { AnyTool, InputOf, OutputOf } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { onAbort } from '../../shared/util/wait.ts';
import { type CallOptions, checkSignal, FormCache, toolNameOf } from '../calls/call-envelope.ts';
import type { AcceptedBatch, BatchEntry, BatchService } from './batches.ts';

/** One call of a batch, with the options of `session.call`. */
export interface BatchCallOf<T extends AnyTool | string> extends Omit<CallOptions, 'signal'> {
  readonly tool: T;
  readonly params: InputOf<T>;
}

export interface BatchOptions {
  /** The number of calls in flight at once. Default: all. */
  readonly concurrency?: number;
  /** The same key in the same session returns the same batch; with other calls it is a conflict. */
  readonly idempotencyKey?: string;
  /** Aborting cancels the batch: no further call begins, and those that run are cancelled. */
  readonly signal?: AbortSignal;
}

export type BatchResults<Tools extends readonly (AnyTool | string)[]> = {
  -readonly [Index in keyof Tools]: ToolResultEnvelope<OutputOf<Tools[Index]>>;
};

/** The promise of all results, in the order of the calls. */
export type RunningBatch<Results> = Promise<Results> & {
  /** The ID of the batch, and of each call that was accepted. */
  readonly accepted: Promise<AcceptedBatch>;
  /** Starts no further call, and cancels those that have not ended. */
  cancel(): Promise<void>;
};

/** The session that makes the calls. */
interface BatchSession {
  readonly record: { readonly sessionKey: string; readonly tenantId?: string };
  envelope(tool: AnyTool | string, params: unknown, options: CallOptions): ToolCallEnvelope;
  /** Redis' clock. */
  now(): number;
}

type AnyBatchCall = BatchCallOf<AnyTool | string>;

export function runBatch<Results>(
  batches: Pick<BatchService, 'create' | 'results' | 'cancel'>,
  session: BatchSession,
  calls: readonly unknown[],
  options: BatchOptions,
): RunningBatch<Results> {
  const received = new Map<string, ToolResultEnvelope>();
  // Untyped callers may pass null, which is refused below.
  const { concurrency, idempotencyKey, signal } = options ?? {};
  const { sessionKey, tenantId } = session.record;
  const accept = async () => {
    checkMembers('options', options, ['concurrency', 'idempotencyKey', 'signal']);
    checkSignal(signal);
    return batches.create(
      { entries: entriesOf(session, calls), concurrency, idempotencyKey, sessionKey, tenantId },
      received,
    );
  };
  const accepted = accept();
  const cancel = async () => batches.cancel((await accepted).batchId);
  const run = async () => {
    const batch = await accepted;
    const stopListening = onAbort(signal, () => void cancel().catch(() => {}));
    try {
      const results = await batches.results(batch, received);
      // The record of a refused entry has no envelope, which would name its tool.
      return results.map((result, index) => ({
        ...result,
        toolName: result.toolName || nameIn(calls[index]),
      })) as Results;
    } finally {
      stopListening();
    }
  };
  return Object.assign(run(), { accepted, cancel });
}

function nameIn(call: unknown): string {
  return toolNameOf((call as Partial<AnyBatchCall> | null | undefined)?.tool);
}

function entriesOf(session: BatchSession, calls: readonly unknown[]): BatchEntry[] {
  const forms = new FormCache();
  if (!Array.isArray(calls))
    throw contractInvalid([{ path: 'calls', message: `must be a list of { tool, params }; got ${quoteValue(calls)}` }]);
  // `map` would leave the holes of a list out.
  return Array.from(calls, (call: unknown) => {
    try {
      if (typeof call !== 'object' || call === null)
        throw contractInvalid([{ path: '', message: `must be { tool, params }; got ${typeof call}` }]);
      const { tool, params = {}, ...options } = call as AnyBatchCall;
      if ('signal' in options)
        throw contractInvalid([{ path: 'signal', message: 'must be given for the whole batch, among its options' }]);
      const start = startTimeOf(options, session.now());
      const envelope = session.envelope(tool, params, withStartTime(options, start));
      forms.check(envelope, options);
      return { envelope, ...defined({ startAtMs: start?.atMs, callbackUrl: options.callbackUrl }) };
    } catch (error) {
      if (error instanceof PawlError) return error;
      throw error;
    }
  });
}
