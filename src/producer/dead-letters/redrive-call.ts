/**
 * Redrives one dead letter, by the rules for a new call: its session is open and may call the tool, the parameters are valid for the
 * current tool, its circuit is closed, and its budgets and its tier have capacity.
 */
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import { partitionFor } from '../../shared/calls/call-id.ts';
import { isUnresolved } from '../../shared/calls/outcome.ts';
import { isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import type { FailureCode } from '../../shared/errors/failure-codes.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { reserve } from '../../shared/store/limits/budgets.ts';
import { type RedriveAnswer, redriveCall } from '../../shared/store/redrives/redrive-call.ts';
import type { RedrivenCall, RedriveOrder } from '../../shared/store/redrives/redrives.ts';
import { isCompatibleVersion } from '../../shared/tools/versions.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { CallAuthorizer } from '../calls/authorize-call.ts';
import type { AuthorizedCall, IdentifiedCall } from '../calls/checked-call.ts';
import type { CallIdentifier } from '../calls/identify-call.ts';
import type { CircuitCheck } from '../circuits/circuit-check.ts';

interface CallRedriverDeps {
  readonly ledger: Pick<Backend['ledger'], 'read' | 'access'>;
  readonly authorizer: Pick<CallAuthorizer, 'authorize'>;
  readonly circuits: Pick<CircuitCheck, 'circuitOf' | 'refusal'>;
  readonly identifier: Pick<CallIdentifier, 'identify'>;
  readonly approvals: Pick<ApprovalService, 'requestAgain' | 'requestFor' | 'requested'>;
}

type RedriveOf = Pick<RedriveOrder, 'by' | 'tenantId'> & { readonly redriveId: string };

interface AdmittedCall {
  readonly authorized: AuthorizedCall;
  readonly call: IdentifiedCall;
}

/** The reason why a call is skipped: a failure code; for a call in doubt, the code of its outcome. */
type SkipCode = string;

/** The skip code of each answer of the script; undefined for a call that was started. */
const SKIP_CODES: Readonly<Record<RedriveAnswer, FailureCode | undefined>> = {
  queued: undefined,
  again: undefined,
  overloaded: 'OVERLOADED',
  changed: 'CALL_NOT_REDRIVABLE',
  none: 'CALL_NOT_REDRIVABLE',
  unresolved: 'OUTCOME_UNKNOWN',
  gone: 'UNKNOWN_CALL',
  forged: 'SIGNATURE_INVALID',
};

export class CallRedriver {
  readonly #deps: CallRedriverDeps;

  constructor(deps: CallRedriverDeps) {
    this.#deps = deps;
  }

  /** Checks whether a call would start now, and changes nothing. Returns the skip code, or undefined. */
  async check(call: RedrivenCall, order: Pick<RedriveOrder, 'tenantId'>): Promise<SkipCode | undefined> {
    const record = await this.#deps.ledger.read(call.callId);
    return (
      skipCode(record, call, order) ??
      (await this.#codeOfError(async () => void (await this.#admit(record as CallRecord))))
    );
  }

  /** Starts a call, once in each redrive. Returns the skip code, or undefined. Rejects when Redis is unavailable. */
  async redrive(call: RedrivenCall, order: RedriveOf): Promise<SkipCode | undefined> {
    const record = await this.#deps.ledger.read(call.callId);
    if (record?.redrives?.some(({ id }) => id === order.redriveId) === true) return undefined;
    return skipCode(record, call, order) ?? (await this.#codeOfError(() => this.#start(record as CallRecord, order)));
  }

  async #start(record: CallRecord, { redriveId, by }: RedriveOf): Promise<SkipCode | undefined> {
    const { ledger, approvals } = this.#deps;
    const { access } = ledger;
    const admitted = await this.#admit(record);
    const { maxInflight, queueName, spends } = admitted.call.admission;
    const approval = await this.#approvalFor(record, admitted);
    const reserved = spends === undefined ? undefined : await reserve(access, spends);
    if (reserved !== undefined && 'spent' in reserved) return 'BUDGET_EXHAUSTED';
    const generation = String(record.readAtMs);
    const terms = { redriveId, by, generation, room: maxInflight, line: queueName, approval };
    const answer = await redriveCall(access, record, terms);
    if (answer !== 'queued') await reserved?.giveBack();
    else if (approval !== undefined) await approvals.requested(approval);
    return SKIP_CODES[answer];
  }

  /** Throws the error that a new call of this kind would end with. */
  async #admit(record: CallRecord): Promise<AdmittedCall> {
    const { authorizer, circuits, identifier } = this.#deps;
    const { request, callId } = record;
    if (request.largeParams !== undefined) throw new PawlError('PARAMS_LOST');
    const authorized = await authorizer.authorize(request.envelope).catch((error: unknown) => {
      throw error instanceof PawlError && error.code === 'INVALID_PARAMS' ? new PawlError('DEFINITION_CHANGED') : error;
    });
    const { tool } = authorized;
    // The current version of the tool runs the call, if its tier and effects have not changed.
    const isSame =
      tool.tier === partitionFor(callId).tier &&
      tool.effects === (request.tool.effects ?? tool.effects) &&
      isCompatibleVersion(tool.version, request.tool.version);
    if (!isSame) throw new PawlError('DEFINITION_CHANGED');
    const circuit = circuits.circuitOf(request.envelope, tool);
    if (circuits.refusal(tool, circuit) !== undefined) throw new PawlError('CIRCUIT_OPEN');
    return { authorized, call: await identifier.identify({ ...authorized, circuit }) };
  }

  /** An approval covers one round: a redrive needs a new one. */
  async #approvalFor(record: CallRecord, { authorized, call }: AdmittedCall): Promise<ApprovalRequest | undefined> {
    const { approvals } = this.#deps;
    const { approvalId, callId, request, readAtMs } = record;
    if (approvalId !== undefined) return approvals.requestAgain(record, approvalId, 'redrive');
    if (call.approvalNeed === undefined) return undefined;
    const { envelope, submittedBy } = request;
    const round = { callId, generation: String(readAtMs), submittedBy };
    return approvals.requestFor({ envelope, tool: authorized.tool, ...call.approvalNeed, ...round });
  }

  async #codeOfError(step: () => Promise<SkipCode | undefined>): Promise<SkipCode | undefined> {
    try {
      return await step();
    } catch (error) {
      if (!isRefusalError(error)) throw error;
      return error.code;
    }
  }
}

/** The reason why a call cannot be redriven; undefined when it can. */
function skipCode(
  record: CallRecord | undefined,
  { failedAtMs }: RedrivenCall,
  { tenantId }: Pick<RedriveOrder, 'tenantId'>,
): SkipCode | undefined {
  if (record === undefined) return 'UNKNOWN_CALL';
  const { state, outcome, updatedAtMs, request } = record;
  // A call of another tenant is treated as unknown.
  if (tenantId !== undefined && request.envelope.target.tenantId !== tenantId) return 'UNKNOWN_CALL';
  if (state === 'inflight') return 'IN_FLIGHT';
  if (isUnresolved(outcome)) return outcome?.error?.code ?? 'OUTCOME_UNKNOWN';
  return state !== 'failed' || updatedAtMs !== failedAtMs ? 'CALL_NOT_REDRIVABLE' : undefined;
}
