/** The webhook channel: posts messages, and approvals in the format of Slack's messages, to a chat service. */
import { digestOf } from '../../shared/approvals/approval.ts';
import { approvalButtons } from '../../shared/approvals/webhook-button.ts';
import { statusError } from '../../shared/errors/failure.ts';
import type { Signatures } from '../../shared/signing/signatures.ts';
import type { ApprovalRecord } from '../../shared/store/approvals/approvals.ts';
import { startOf, withEllipsis } from '../../shared/util/text/text-cut.ts';
import { escapeInvisible, formatForDisplay } from '../../shared/util/text/visible-text.ts';

const POST_TIMEOUT_MS = 5_000;
/** Characters of one section of a message: Slack refuses longer ones. */
const MAX_SECTION = 3_000;
/** The limits of the note about hidden parameters, and of one text of a caller. */
const MAX_NOTE = 200;
const MAX_LINE = 300;

export const webhook = {
  timeoutMs: POST_TIMEOUT_MS,
  send: post,
  announce(url: string, record: ApprovalRecord, signatures: Signatures): Promise<void> {
    const { request } = record;
    const text = announcement(record);
    const buttons = approvalButtons(request, signatures);
    return post(url, {
      text,
      blocks: [
        { type: 'section', text: { type: 'mrkdwn', text } },
        ...(buttons.length === 0 ? [] : [{ type: 'actions', block_id: 'pawl-approval', elements: buttons }]),
      ],
      approval: { id: request.id, callId: request.callId, digest: digestOf(request), expiresAtMs: request.expiresAtMs },
    });
  },
};

/** The text of an approval for people. It says when parameters are truncated, because the decision covers all of them. */
function announcement({ request, preview }: ApprovalRecord): string {
  const { tool, actorId, session, reason, justification } = request;
  const onBehalf = actorId === session.actorId ? '' : `, in the name of ${line(actorId)},`;
  const head = [
    `*${line(preview?.summary ?? tool.name)}*`,
    `${tool.namespace}.${tool.name} ${tool.version}, asked by ${line(session.actorId)}${onBehalf} in ${line(session.key)}`,
    `${line(reason)}${justification === undefined ? '' : `; why: ${line(justification)}`}`,
  ].join('\n');
  const params = escapeMarkup(formatForDisplay(request.params));
  const shown = startOf(params, Math.max(0, MAX_SECTION - MAX_NOTE - head.length));
  const hiddenCount = params.length - shown.length;
  const note = `*${hiddenCount} more characters of the parameters are not shown here: look at the whole approval before you decide.*`;
  return `${head}\n\`\`\`${shown}\`\`\`${hiddenCount === 0 ? '' : `\n${note}`}`;
}

/** A caller's text, escaped for one line. */
function line(text: string): string {
  return withEllipsis(escapeMarkup(text.replaceAll(/\s+/g, ' ')), MAX_LINE);
}

/** Escapes text for Slack: without links and mentions, and unable to end the code block around it. */
function escapeMarkup(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
  return escapeInvisible(text)
    .replaceAll(/[&<>]/g, (character) => entities[character] ?? '')
    .replaceAll('```', '\\u{60}'.repeat(3));
}

/** The error says whether the message may have been accepted: a service that answers late, or with a failure, may still show it. */
async function post(url: string, body: object): Promise<void> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    redirect: 'error',
    signal: AbortSignal.timeout(POST_TIMEOUT_MS),
  }).catch((cause: unknown) => {
    throw new Error('The channel did not take the message', { cause });
  });
  await response.body?.cancel().catch(() => {});
  if (!response.ok) throw statusError(`The channel did not take the message: it answered ${response.status}`, response);
}
