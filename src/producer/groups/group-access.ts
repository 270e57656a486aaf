/** Finds a batch or a plan by its ID, and cancels it. */
import type { AuditEvent, RecordAudit } from '../../shared/audit/audit-event.ts';
import type { GroupHead, GroupKind } from '../../shared/groups/group.ts';
import { checkSameGroup, type GroupIdentity } from '../../shared/groups/group-key.ts';
import { checkMembers } from '../../shared/schema/known-members.ts';
import type { GroupRecord, GroupRecords } from '../../shared/store/groups/groups.ts';
import { type GroupRunner, ofKind } from './group-runner.ts';

export interface GroupAccess {
  /** Only groups of this tenant. Default: all. */
  readonly tenantId?: string | undefined;
}

/** The record of a group. Throws `NOT_FOUND`, also for a group of another kind, and of another tenant than the one that is given. */
export async function groupOf(
  records: Pick<GroupRecords, 'read'>,
  kind: GroupKind,
  id: string,
  access: GroupAccess = {},
): Promise<GroupRecord> {
  checkMembers('access', access, ['tenantId']);
  const { tenantId } = access;
  const record = await records.read(id);
  const isVisible = tenantId === undefined || record?.head.tenantId === tenantId;
  return ofKind(kind, id, isVisible ? record : undefined);
}

/** The record of the group with this identity. Throws `IDEMPOTENCY_CONFLICT` when its content differs. */
export async function groupWithKey(
  records: Pick<GroupRecords, 'read'>,
  identity: GroupIdentity | undefined,
): Promise<GroupRecord | undefined> {
  if (identity === undefined) return undefined;
  const record = await records.read(identity.id);
  if (record !== undefined) checkSameGroup(record.head, identity);
  return record;
}

/** The record of a group that another process has created under the same ID at this moment. Throws as `groupWithKey` and `groupOf` do. */
export async function createdElsewhere(
  records: Pick<GroupRecords, 'read'>,
  { id, kind }: GroupHead,
  identity: GroupIdentity | undefined,
): Promise<GroupRecord> {
  return (await groupWithKey(records, identity)) ?? groupOf(records, kind, id);
}

interface CancelGroupDeps {
  readonly records: Pick<GroupRecords, 'cancel'>;
  readonly runner: Pick<GroupRunner, 'notifyChanged'>;
  readonly audit: RecordAudit;
}

/** Starts no further call, and cancels those that have not ended. A group that has ended does not change. */
export async function cancelGroup(
  { records, runner, audit }: CancelGroupDeps,
  { head }: Pick<GroupRecord, 'head'>,
  by: string,
  sessionKey?: string,
): Promise<void> {
  const answer = await records.cancel(head.id, by);
  if (answer === 'written') void audit({ ...aboutGroup(head, sessionKey), action: 'cancelled', by });
  runner.notifyChanged(head.id);
}

type GroupEvent = Extract<AuditEvent, { readonly type: 'group-changed' }>;

/** The fields that the audit records of all actions share. */
export function aboutGroup(
  { id, kind, tenantId }: GroupHead,
  sessionKey?: string,
): Pick<GroupEvent, 'type' | 'kind' | 'groupId' | 'sessionKey' | 'tenantId'> {
  return { type: 'group-changed', kind, groupId: id, sessionKey, tenantId };
}
