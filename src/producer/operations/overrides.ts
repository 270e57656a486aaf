/** The audit records of what operators do: each replaces a decision of the system by one of a person. */
import type { AuditEvent, RecordAudit } from '../../shared/audit/audit-event.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';

type Override = Extract<AuditEvent, { type: 'override' }>;
type About = Omit<Override, 'type' | 'what' | 'action' | 'by'>;

export interface OperatorAction extends About {
  readonly what: Override['what'];
  /** Such as `force_open` or `retry`. */
  readonly action: string;
  /** Default: the operator that this producer was opened for. */
  readonly by?: string | undefined;
}

/** Writes an operator's action into the audit trail. */
export type RecordOverride = (action: OperatorAction) => Promise<void>;

export function overrideRecorder(audit: RecordAudit, operator: string): RecordOverride {
  return async ({ by = operator, ...action }) => {
    await audit({ type: 'override', by, ...action });
  };
}

/** The part of an audit record that is about a call. */
export function aboutCall(callId: string, record: CallRecord | undefined): About {
  if (record === undefined) return { callId };
  const { toolNamespace, toolName, target } = record.request.envelope;
  const { sessionKey, tenantId } = target;
  return { callId, tool: `${toolNamespace}.${toolName}`, sessionKey, tenantId };
}
