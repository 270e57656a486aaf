/** The audit records of batches and plans. Their calls have records of their own. */
import type { AuditEvent } from '../../shared/audit/audit-event.ts';
import type { GroupHead } from '../../shared/groups/group.ts';

type GroupEvent = Extract<AuditEvent, { readonly type: 'group-changed' }>;

/** The fields that the records of all actions share. */
export function aboutGroup(
  { id, kind, tenantId }: GroupHead,
  sessionKey?: string,
): Pick<GroupEvent, 'type' | 'kind' | 'groupId' | 'sessionKey' | 'tenantId'> {
  return { type: 'group-changed', kind, groupId: id, sessionKey, tenantId };
}
