/**
 * Buttons in a webhook's message (in Slack's format) that decide an approval. Each carries a signed text with the approval, its digest, the
 * decision and the expiry. Only a receiver of the message can return it, and only this fleet can make it.
 */
import { z } from 'zod';
import { PawlError } from '../errors/failure.ts';
import type { Signatures } from '../signing/signatures.ts';
import { type ApprovalRequest, digestOf } from './approval.ts';

interface Button {
  readonly type: 'button';
  readonly text: { readonly type: 'plain_text'; readonly text: string };
  readonly style: 'primary' | 'danger';
  readonly action_id: string;
  readonly value: string;
}

const tokenSchema = z.tuple([z.string(), z.string(), z.enum(['approve', 'deny']), z.number()]);

interface ButtonDecision {
  readonly approvalId: string;
  readonly digest: string;
  readonly decision: 'approve' | 'deny';
}

/** Returns none without signing keys: a button that anyone can forge would prove nothing. */
export function approvalButtons(request: ApprovalRequest, signatures: Signatures): readonly Button[] {
  if (!signatures.hasKeys) return [];
  const button = (decision: 'approve' | 'deny', text: string, style: Button['style']): Button[] => {
    const content = JSON.stringify([request.id, digestOf(request), decision, request.expiresAtMs]);
    const signature = signatures.sign('token', [], content);
    const value = `${Buffer.from(content).toString('base64url')}.${Buffer.from(signature).toString('base64url')}`;
    return [{ type: 'button', text: { type: 'plain_text', text }, style, action_id: `pawl-${decision}`, value }];
  };
  return [...button('approve', 'Approve', 'primary'), ...button('deny', 'Deny', 'danger')];
}

/**
 * The decision of a pressed button. Throws `PERMISSION_DENIED` for one that this fleet did not make, and `APPROVAL_STALE` after its expiry.
 */
export function readButton(value: string, signatures: Signatures, nowMs: number): ButtonDecision {
  const [content = '', signature = ''] = value.split('.').map((part) => Buffer.from(part, 'base64url').toString());
  if (!signatures.hasKeys || !signatures.matches('token', [], content, signature))
    throw new PawlError('PERMISSION_DENIED', 'The button is not signed by this fleet.');
  const [approvalId, digest, decision, expiresAtMs] = tokenSchema.parse(JSON.parse(content));
  if (nowMs > expiresAtMs)
    throw new PawlError('APPROVAL_STALE', 'The approval has expired: it cannot be decided any more.');
  return { approvalId, digest, decision };
}
