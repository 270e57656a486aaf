import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';

export function originOf(session: SessionRecord, { target }: ToolCallEnvelope, submittedBy: string | undefined) {
  const { sessionKey: key, kind, workspaceRoot, actorId, tenantId, agentId } = session;
  return {
    session: { key, kind, workspaceRoot, actorId },
    actorId: target.actorId,
    ...defined({ tenantId, agentId, submittedBy }),
  };
}
