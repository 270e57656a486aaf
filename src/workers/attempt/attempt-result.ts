import type { Failure, PawlError } from '../../shared/errors/failure.ts';
import type { PendingResult } from '../../shared/tools/pending.ts';
import type { ToolResult } from '../../shared/tools/tool-result.ts';

/** The result of one run of a tool's code. */
export type AttemptResult =
  | { readonly kind: 'value'; readonly result: ToolResult<unknown> }
  | { readonly kind: 'failure'; readonly failure: Failure }
  /** The tool left the call to an outside system. */
  | { readonly kind: 'pending'; readonly pending: PendingResult }
  /** The attempt was aborted. The tool may still have returned a result; `evidence` says what is known of its effect. */
  | {
      readonly kind: 'aborted';
      readonly reason: PawlError;
      readonly result?: ToolResult<unknown>;
      readonly pending?: PendingResult;
      readonly evidence: Evidence;
    };

/** The result of a tool that finished although it was aborted counts, unless the attempt has lost its lease. */
export function finishedResult(result: AttemptResult): AttemptResult {
  if (result.kind !== 'aborted' || result.reason.code === 'LEASE_LOST') return result;
  if (result.pending !== undefined) return { kind: 'pending', pending: result.pending };
  return result.result === undefined ? result : { kind: 'value', result: result.result };
}

/** The attempt did not reach the tool's code, proved that nothing happened, or may have had its effect. */
export type Evidence = 'not-run' | 'proven' | 'unknown';
