/**
 * Who may call what (A3, A17; DESIGN, decision 10). Asked before a call is claimed, and again before its tool runs.
 */
import type { ToolPolicy } from './config.ts';
import type { DedupeMode } from './envelope.ts';
import { PawlError } from './failure.ts';
import { SESSION_TIERS, type SessionKind } from './session.ts';
import type { Tier } from './tool.ts';

export interface PermitRequest {
  readonly tool: { readonly name: string; readonly tier: Tier };
  readonly session: { readonly kind: SessionKind };
  readonly policy: Pick<ToolPolicy, 'enabled' | 'allowDisabledDedupe'>;
  /** As asked for; undefined where the call has been claimed already. */
  readonly dedupeMode?: DedupeMode;
  /** The tier of the queue that the call came through. */
  readonly queueTier?: Tier;
}

/** Throws `PERMISSION_DENIED`, saying why. */
export function permit({ tool, session, policy, dedupeMode, queueTier = tool.tier }: PermitRequest): void {
  const deny = (reason: string): never => {
    throw new PawlError('PERMISSION_DENIED', `${tool.name} (tier ${tool.tier}) is denied: ${reason}.`, {
      details: { tier: tool.tier },
    });
  };
  if (policy.enabled === false) deny('the tool is disabled by configuration');
  if (queueTier !== tool.tier) deny('the call came through the queue of another tier');
  if (!SESSION_TIERS[session.kind].includes(tool.tier))
    deny(`a ${session.kind} session may only use the tiers ${SESSION_TIERS[session.kind].join(', ')}`);
  if (tool.tier === 'elevated') deny('elevated calls need a person’s approval, and no approval route is configured');
  if (dedupeMode === 'disabled' && tool.tier !== 'read-only' && policy.allowDisabledDedupe !== true)
    deny('dedupeMode "disabled" is only for read-only tools unless the tool’s policy sets allowDisabledDedupe');
}
