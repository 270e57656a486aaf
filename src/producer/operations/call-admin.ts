/** Ends calls from outside, and says what became of those whose outcome is unknown: each deed has its record in the audit trail. */

import { isUnresolved } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import { type Cancellation, cancelCall, requestCancellation } from '../calls/cancel.ts';
import { type Resolution, resolveAs } from '../calls/resolution.ts';
import type { Results } from '../calls/result-waiters.ts';
import type { OperatorService } from './operator-actions.ts';

export interface CallAdminServiceDeps {
  readonly ledger: Ledger;
  /** How long the records of calls that have ended live. */
  readonly ttl: Settings['ttl'];
  readonly results: Results;
  readonly inboxId: string;
  readonly approvals: Pick<ApprovalService, 'cancelled' | 'requestAgain' | 'requested'>;
  readonly operators: Pick<OperatorService, 'overridden'>;
}

export class CallAdminService {
  readonly #parts: CallAdminServiceDeps;

  constructor(parts: CallAdminServiceDeps) {
    this.#parts = parts;
  }

  /** Cancels a call wherever it is. Throws `UNKNOWN_CALL`. */
  async cancel(callId: string, by?: string): Promise<Cancellation> {
    const { ledger, ttl, results, inboxId, approvals, operators } = this.#parts;
    const onCancelled = (ended: string) => approvals.cancelled(ended);
    const ended = await cancelCall({ ledger, results, inboxId, ttl, onCancelled }, callId);
    await operators.overridden('cancellation', ended.settlement, by, aboutOf(callId, await ledger.glance(callId)));
    return ended;
  }

  /** Asks for a call's end and does not wait for it. Throws `UNKNOWN_CALL`. */
  async requestCancel(callId: string, by?: string): Promise<void> {
    const { ledger, ttl, approvals, operators } = this.#parts;
    const record = await ledger.read(callId);
    if (record === undefined) throw new PawlError('UNKNOWN_CALL');
    const answer = await requestCancellation({ ledger, ttl }, record);
    if (answer.kind === 'cancelled') await approvals.cancelled(callId);
    await operators.overridden('cancellation', 'requested', by, aboutOf(callId, record));
  }

  /** Gives a call with an unknown outcome a known one, or lets it run again. Throws `UNKNOWN_CALL` and `CALL_NOT_RESOLVABLE`. */
  async resolve(callId: string, resolution: Resolution, by?: string): Promise<CallRecord> {
    const { ledger, ttl, operators } = this.#parts;
    const record = await ledger.read(callId);
    if (record === undefined)
      throw new PawlError('UNKNOWN_CALL', `There is no call ${callId}, or its record has expired.`);
    const answer =
      resolution.as === 'retry' ? await this.#again(record) : await resolveAs({ ledger, ttl }, record, resolution);
    if (answer === 'gone') throw new PawlError('UNKNOWN_CALL');
    if (answer === 'refused') {
      throw new PawlError(
        'CALL_NOT_RESOLVABLE',
        `Only a call in doubt can be resolved; ${callId} is ${record.state}${record.outcome?.error === undefined ? '' : ` (${record.outcome.error.code})`}.`,
      );
    }
    await operators.overridden('resolution', resolution.as, by, aboutOf(callId, record));
    return (await ledger.read(callId)) ?? record;
  }

  /** Lets a call run again; when a person had to approve it, once one has approved that, too. */
  async #again(record: CallRecord): Promise<'queued' | 'refused' | 'gone'> {
    const { ledger, approvals } = this.#parts;
    const { approvalId, readAtMs } = record;
    const generation = String(readAtMs);
    if (approvalId === undefined || !isUnresolved(record.outcome))
      return ledger.requeue(record, 'resolved', generation);
    const asked = await approvals.requestAgain(record, approvalId);
    const answer = await ledger.requeue(record, 'resolved', generation, undefined, asked);
    if (answer === 'queued') await approvals.requested(asked);
    return answer;
  }
}

/** What the audit trail says of a call. */
function aboutOf(callId: string, record: CallRecord | undefined) {
  if (record === undefined) return { callId };
  const { toolNamespace, toolName, target } = record.request.envelope;
  const { sessionKey, tenantId } = target;
  return { callId, tool: `${toolNamespace}.${toolName}`, sessionKey, tenantId };
}
