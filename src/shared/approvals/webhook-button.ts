/**
 * Buttons that decide, as a webhook's receiver gets them (in the shape of Slack's): each carries a signed text that names the approval,
 * its digest, the decision and the expiry. Whoever brings it back has seen the message; nobody else can make one.
 */
import { z } from 'zod';
import { PawlError } from '../errors/failure.ts';
import type { Signatures } from '../signing/signatures.ts';
import { type ApprovalRequest, digestOf } from './approval.ts';

export interface Button {
  readonly type: 'button';
  readonly text: { readonly type: 'plain_text'; readonly text: string };
  readonly style: 'primary' | 'danger';
  readonly action_id: string;
  readonly value: string;
}

const tokenSchema = z.tuple([z.string(), z.string(), z.enum(['approve', 'deny']), z.number()]);

export interface ButtonDecision {
  readonly approvalId: string;
  readonly digest: string;
  readonly decision: 'approve' | 'deny';
}

/** None without keys: a button that anybody can make would be no decision. */
export function approvalButtons(request: ApprovalRequest, signatures: Signatures): readonly Button[] {
  if (!signatures.present) return [];
  const button = (decision: 'approve' | 'deny', text: string, style: Button['style']): Button[] => {
    const content = JSON.stringify([request.id, digestOf(request), decision, request.expiresAtMs]);
    const signature = signatures.sign('token', [], content);
    const value = `${Buffer.from(content).toString('base64url')}.${Buffer.from(signature).toString('base64url')}`;
    return [{ type: 'button', text: { type: 'plain_text', text }, style, action_id: `pawl-${decision}`, value }];
  };
  return [...button('approve', 'Approve', 'primary'), ...button('deny', 'Deny', 'danger')];
}

/** What a button that was pressed says. Throws `PERMISSION_DENIED` for one that this fleet did not make, or that has expired. */
export function readButton(value: string, signatures: Signatures, nowMs: number): ButtonDecision {
  const [content = '', signature = ''] = value.split('.').map((part) => Buffer.from(part, 'base64url').toString());
  if (!signatures.present || !signatures.matches('token', [], content, signature))
    throw new PawlError('PERMISSION_DENIED', 'This button was not made by this fleet.');
  const [approvalId, digest, decision, expiresAtMs] = tokenSchema.parse(JSON.parse(content));
  if (nowMs > expiresAtMs) throw new PawlError('APPROVAL_STALE', 'The time to decide is over.');
  return { approvalId, digest, decision };
}
