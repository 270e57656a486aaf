/** Runs `onApproval` hooks: once for each transition of an approval, in the process that makes it. */
import type { ApprovalEvent } from '../calls/hook-events.ts';
import type { Hooks } from '../calls/hooks.ts';
import { defined } from '../util/json/omit-undefined.ts';
import type { ApprovalEnd, ApprovalRequest, Decision } from './approval.ts';

export class ApprovalHooks {
  readonly #hooks: Hooks;
  readonly #requestIdOf: (callId: string) => Promise<string | undefined>;

  constructor(hooks: Hooks, requestIdOf: (callId: string) => Promise<string | undefined>) {
    this.#hooks = hooks;
    this.#requestIdOf = requestIdOf;
  }

  get hasHooks(): boolean {
    return this.#hooks.has('onApproval');
  }

  /** Runs before a person is asked. Throws `PERMISSION_DENIED` when a hook denies, `HOOK_FAILED` when a guarding hook fails. */
  async requested(request: ApprovalRequest, requestId: string): Promise<void> {
    if (this.hasHooks) await this.#hooks.onApproval({ ...approvalEvent(request, requestId), state: 'requested' });
  }

  /** Runs after the approval has ended; no hook can change that. */
  async ended(
    { request, preview }: { readonly request: ApprovalRequest; readonly preview?: ApprovalEvent['preview'] },
    state: ApprovalEnd,
    decision?: Decision,
  ): Promise<void> {
    if (!this.hasHooks) return;
    const requestId = (await this.#requestIdOf(request.callId)) ?? '';
    const { by, reason, params = request.params } = decision ?? {};
    const event = {
      ...approvalEvent(request, requestId),
      params,
      state,
      ...defined({ preview, decidedBy: by, reason }),
    };
    // `Hooks` has reported a failure already.
    await this.#hooks.onApproval(event).catch(() => {});
  }
}

function approvalEvent(request: ApprovalRequest, requestId: string): Omit<ApprovalEvent, 'signal' | 'state'> {
  const { id, callId, tool, params, session, actorId, agentId, tenantId } = request;
  return {
    approvalId: id,
    callId,
    requestId,
    tool,
    params,
    sessionKey: session.key,
    actorId,
    ...defined({ agentId, tenantId }),
    values: new Map(),
  };
}
