/** `/v1/sessions/{key}/remembered`: list and revoke the standing approvals of a session. */
import type { Pawl } from '../../client.ts';
import { type Route, route } from '../core/route.ts';
import { standingApprovalView } from '../core/views.ts';
import { nameOf } from './approvals.ts';
import { sessionFor } from './sessions.ts';

export function standingApprovalRoutes(pawl: Pawl): readonly Route[] {
  return [listRememberedApprovals(pawl), forgetRememberedApproval(pawl)];
}

function listRememberedApprovals(pawl: Pawl): Route {
  return route('get /v1/sessions/{key}/remembered', {
    operationId: 'listRememberedApprovals',
    permission: 'decide',
    summary: 'What people allowed for the rest of a session, the newest first.',
    responses: { 200: ['Remembered approvals', 'RememberedApprovalList'] },
    async answer({ path, caller }) {
      const { key } = await sessionFor(pawl, caller, path['key'] ?? '');
      const remembered = await pawl.approvals.remembered(key);
      return { remembered: remembered.map(standingApprovalView) };
    },
  });
}

function forgetRememberedApproval(pawl: Pawl): Route {
  return route('delete /v1/sessions/{key}/remembered/{id}', {
    operationId: 'forgetRememberedApproval',
    permission: 'decide',
    summary: 'Takes back what was remembered with an approval: the next call like it is asked about again.',
    responses: { 204: 'Taken back' },
    async handle({ path, caller }) {
      const { key } = await sessionFor(pawl, caller, path['key'] ?? '');
      await pawl.approvals.forget(key, path['id'] ?? '', nameOf(caller));
      return { status: 204 };
    },
  });
}
