/** `/v1/audit`: the newest records of the audit trail. */
import { z } from 'zod';
import { AUDIT_TYPES } from '../../../shared/audit/audit-event.ts';
import { sinceSchema } from '../../calls/audit.ts';
import { seesTenant } from '../core/access.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { auditView } from '../core/views.ts';

const name = z.string().min(1).max(512);

export const auditRoutes: readonly Route[] = [
  route('get /v1/audit', {
    operationId: 'listAuditRecords',
    permission: 'operate',
    summary: 'Records of the audit trail, the newest first; a tenant’s token sees only its own.',
    query: z.strictObject({
      session: name.optional(),
      tool: name.optional(),
      call: name.optional(),
      type: z.enum(AUDIT_TYPES).optional(),
      since: sinceSchema.optional(),
      limit: queryNumber({ max: 1_000, fallback: 100, unit: 'records' }),
    }),
    responses: { 200: ['Records', 'AuditRecords'] },
    async answer({ pawl, query, caller }) {
      const { session: sessionKey, call: callId, since: sinceMs, ...rest } = query;
      const isVisible = (tenantId: string | undefined) => seesTenant(caller, tenantId);
      const records = await pawl.audit({ ...rest, sessionKey, callId, sinceMs, seesTenant: isVisible });
      return { records: records.map(auditView) };
    },
  }),
];
