/** `/v1/approvals`: calls that wait for a person, and decisions on them. */
import { z } from 'zod';
import { APPROVAL_STATES } from '../../../shared/approvals/approval.ts';
import { jsonObjectSchema } from '../../../shared/calls/envelope.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import type { ApprovalRecord } from '../../../shared/store/approvals/approvals.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import type { Pawl } from '../../client.ts';
import { type Caller, seesTenant } from '../core/access.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { approvalView, decisionView, listedApprovalView } from '../core/views.ts';

const decisionSchema = z.strictObject({
  decision: z.enum(['approve', 'deny']),
  /** The digest of the approval as it was shown. */
  digest: z.string().min(1).max(128),
  reason: z.string().max(2_000).optional(),
  /** Parameters that replace the call's own. */
  params: jsonObjectSchema.optional(),
  /** Creates a standing approval: later calls of this kind in this session run, too. */
  remember: z.boolean().optional(),
});

export const approvalRoutes: readonly Route[] = [
  route('get /v1/approvals', {
    operationId: 'listApprovals',
    permission: 'decide',
    summary: 'Approvals, the newest first; with `state`, only those in that state. Large parameters are truncated.',
    query: z.strictObject({
      state: z.enum(APPROVAL_STATES).optional(),
      limit: queryNumber({ max: 200, fallback: 100, unit: 'approvals' }),
    }),
    responses: { 200: ['Approvals', 'ApprovalList'] },
    async answer({ pawl, query, caller }) {
      const { state, limit } = query;
      const isSeen = ({ request }: ApprovalRecord) => seesTenant(caller, request.tenantId);
      const listed = await pawl.approvals.listBrief({ limit, isSeen, ...(state !== undefined && { state }) });
      return { approvals: listed.map(listedApprovalView) };
    },
  }),
  route('get /v1/approvals/{id}', {
    operationId: 'getApproval',
    permission: 'decide',
    summary: 'One approval, with earlier decisions on the same tool.',
    responses: { 200: ['The approval', 'ApprovalWithSimilar'] },
    async answer({ pawl, path, caller }) {
      const approval = await approvalFor(pawl, caller, path.id);
      const similar = await pawl.approvals.similarTo(approval.record);
      return { ...approvalView(approval), similar: similar.map(decisionView) };
    },
  }),
  route('post /v1/approvals/{id}', {
    operationId: 'decideApproval',
    permission: 'decide',
    summary: 'Approves or denies a call, once, exactly as it was shown.',
    body: decisionSchema,
    responses: { 200: ['The approval, decided', 'Approval'] },
    async answer({ pawl, path, body, caller }) {
      const { record } = await approvalFor(pawl, caller, path.id);
      const { decision, digest, reason, params, remember } = body;
      const decided = await pawl.approvals.decide(record.request.id, {
        decision,
        digest,
        by: callerName(caller),
        ...defined({ reason, params, remember }),
      });
      return approvalView(decided);
    },
  }),
];

/** The name under which a caller's calls and decisions are recorded: the role and ID of the token, where there are tokens. */
export function callerName({ id, role }: Caller): string {
  return id === 'local' ? 'local operator' : `${role}:${id}`;
}

/** The submitter of a caller's calls. Without tokens all callers of this machine count as one, and no submitter is recorded. */
export function submitterOf(caller: Caller): { readonly submittedBy?: string } {
  return caller.id === 'local' ? {} : { submittedBy: callerName(caller) };
}

/** An approval that this caller may see. Throws `UNKNOWN_APPROVAL`, also for another tenant's. */
async function approvalFor(pawl: Pawl, caller: Caller, id: string) {
  const approval = await pawl.approvals.show(id);
  if (!seesTenant(caller, approval.record.request.tenantId)) throw new PawlError('UNKNOWN_APPROVAL');
  return approval;
}
