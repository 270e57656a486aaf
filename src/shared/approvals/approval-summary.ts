/** Shortens an approval for a list: large values are truncated. A single approval is returned in full. */
import { truncateJson, truncateText } from '../util/text/truncate-json.ts';
import type { ApprovalRequest, Decision } from './approval.ts';

/** The most characters of parameters, and of a preview, in a list. */
const BRIEF_LENGTH = 16 * 1_024;

/** The request with its large parts truncated; the request itself when nothing is large. */
export function briefRequest(request: ApprovalRequest, paramsJson: string): ApprovalRequest {
  if (paramsJson.length <= BRIEF_LENGTH) return request;
  const { params, justification, reason, amendment } = request;
  return {
    ...request,
    params: truncateJson(params, BRIEF_LENGTH),
    ...(justification !== undefined && { justification: truncateText(justification, BRIEF_LENGTH) }),
    reason: truncateText(reason, BRIEF_LENGTH),
    ...(amendment !== undefined && { amendment: truncateJson(amendment, BRIEF_LENGTH) }),
  };
}

export function briefPreview<Preview extends { readonly details?: string }>(preview: Preview): Preview {
  const { details = '' } = preview;
  return details.length <= BRIEF_LENGTH ? preview : { ...preview, details: truncateText(details, BRIEF_LENGTH) };
}

export function briefDecision(decision: Decision): Decision {
  const { params } = decision;
  if (params === undefined || JSON.stringify(params).length <= BRIEF_LENGTH) return decision;
  return { ...decision, params: truncateJson(params, BRIEF_LENGTH) };
}
