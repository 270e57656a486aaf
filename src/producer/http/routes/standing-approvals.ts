/** `/v1/sessions/{key}/remembered`: list and revoke the standing approvals of a session. */
import { type Route, route } from '../core/route.ts';
import { standingApprovalView } from '../core/views.ts';
import { callerName } from './approvals.ts';
import { sessionFor } from './sessions.ts';

export const standingApprovalRoutes: readonly Route[] = [
  route('get /v1/sessions/{key}/remembered', {
    operationId: 'listRememberedApprovals',
    permission: 'decide',
    summary: 'The standing approvals of a session, the newest first.',
    responses: { 200: ['Remembered approvals', 'RememberedApprovalList'] },
    async answer({ pawl, path, caller }) {
      const { key } = await sessionFor(pawl, caller, path.key);
      return { remembered: (await pawl.approvals.remembered(key)).map(standingApprovalView) };
    },
  }),
  route('delete /v1/sessions/{key}/remembered/{id}', {
    operationId: 'forgetRememberedApproval',
    permission: 'decide',
    summary: 'Revokes a standing approval: the next call of its kind needs an approval again.',
    responses: { 204: 'Revoked' },
    async answer({ pawl, path, caller }) {
      const { key } = await sessionFor(pawl, caller, path.key);
      await pawl.approvals.forget(key, path.id, callerName(caller));
    },
  }),
];
