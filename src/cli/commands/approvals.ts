/** `pawl approvals`: calls that wait for a person, and decisions on them. */
import type { ApprovalListing, DecideOptions } from '../../producer/approvals/approvals.ts';
import type { Pawl } from '../../producer/client.ts';
import {
  approvalView,
  decisionView,
  listedApprovalView,
  standingApprovalView,
} from '../../producer/http/core/views.ts';
import type { ApprovalState, StandingApprovalRequest } from '../../shared/approvals/approval.ts';
import type { StandingApproval } from '../../shared/store/approvals/standing-approvals.ts';
import { qualifiedName, shortName } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { truncateText } from '../../shared/util/text/truncate-json.ts';
import { escapeInvisible, escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, operatorName, pawlCommand, printList, printResult, say } from '../context.ts';
import { withSigningPawl } from '../doctor/signing-keys.ts';
import { readParams } from '../params.ts';
import { block, type Column, fieldLines, moment } from '../print.ts';

const COLUMNS: readonly Column<ApprovalListing>[] = [
  { title: 'ID', text: ({ record }) => record.request.id },
  { title: 'STATE', text: ({ record }) => record.state },
  { title: 'TOOL', text: ({ record }) => shortName(record.request.tool) },
  { title: 'ASKED BY', text: (listing) => requesterText(approvalView(listing)) },
  { title: 'SESSION', text: ({ record }) => record.request.session.key },
  { title: 'WHAT', text: (listing) => summaryText(approvalView(listing)) },
];

export const listApprovals = pawlCommand(
  async (context, pawl, options: { limit: number; state?: ApprovalState | 'all' }) => {
    const { limit, state = 'pending' } = options;
    const approvals = await pawl.approvals.listBrief({ limit, ...(state === 'all' ? {} : { state }) });
    const none = state === 'all' ? 'there are no approvals' : `no approval is ${state}`;
    printList(context, { approvals: approvals.map(listedApprovalView) }, { rows: approvals, columns: COLUMNS, none });
  },
);

export const showApproval = pawlCommand(async (context, pawl, id: string) => {
  const listing = await pawl.approvals.show(id);
  const similar = (await pawl.approvals.similarTo(listing.record)).map(decisionView);
  const before = similar.map(({ state, decidedBy = '', summary, reason = '' }) =>
    escapeLine(`  before         ${state} by ${decidedBy}: ${summary} ${reason}`),
  );
  printResult(context, { ...approvalView(listing), similar }, [describeApproval(listing), ...before].join('\n'));
});

interface DecideCommandOptions {
  readonly digest?: string;
  readonly reason?: string;
  readonly params?: string;
  readonly remember?: boolean;
}

export async function decideApproval(
  context: CliContext,
  decision: 'approve' | 'deny',
  id: string,
  options: DecideCommandOptions,
): Promise<number> {
  const params = options.params === undefined ? undefined : await readParams(context, options.params);
  return withSigningPawl(context, async (pawl) => {
    const { reason, remember } = options;
    const listing = await pawl.approvals.show(id);
    if (!context.json) say(context, `${decision}: ${approvalView(listing).preview.summary}`);
    const decided = await decide(pawl, listing, {
      decision,
      digest: options.digest ?? listing.digest,
      ...defined({ reason, params, remember }),
    });
    printResult(context, approvalView(decided), `${decided.record.request.id} is ${decided.record.state}`);
  });
}

const REMEMBERED_COLUMNS: readonly Column<StandingApproval>[] = [
  { title: 'ID', text: ({ approvalId }) => approvalId },
  { title: 'TOOL', text: ({ tool }) => shortName(tool) },
  { title: 'WHAT', text: ({ amendment }) => scopeText(amendment) },
  { title: 'BY', text: ({ by }) => by },
  { title: 'UNTIL', text: ({ validUntilMs }) => moment(validUntilMs) },
];

export const listStandingApprovals = pawlCommand(async (context, pawl, sessionKey: string) => {
  const { key } = await pawl.session(sessionKey);
  const rows = await pawl.approvals.remembered(key);
  const none = 'there are no standing approvals';
  printList(context, { remembered: rows.map(standingApprovalView) }, { rows, columns: REMEMBERED_COLUMNS, none });
});

export const revokeStandingApproval = pawlCommand(async (context, pawl, sessionKey: string, approvalId: string) => {
  const { key } = await pawl.session(sessionKey);
  const revoked = await pawl.approvals.forget(key, approvalId, operatorName());
  const scope = `${qualifiedName(revoked.tool)}, ${scopeText(revoked.amendment)}`;
  const text = escapeLine(`${scope}: calls of this kind need an approval again`);
  printResult(context, standingApprovalView(revoked), text);
});

function scopeText(scope: StandingApprovalRequest): string {
  return scope.kind === 'command-prefix' ? scope.prefix.join(' ') : scope.kind;
}

export function decide(
  pawl: Pick<Pawl, 'approvals'>,
  { record }: ApprovalListing,
  options: Omit<DecideOptions, 'by'>,
): Promise<ApprovalListing> {
  return pawl.approvals.decide(record.request.id, { ...options, by: operatorName() });
}

/** The facts that a person needs before a decision. */
export function describeApproval(listing: ApprovalListing): string {
  const view = approvalView(listing);
  const { annotations, justification = '', taint, preview, amendment } = view;
  const hints = Object.entries(annotations).flatMap(([name, value]) => (value ? [name] : []));
  const lines: readonly (readonly [string, string])[] = [
    ['approval', view.id],
    ['state', view.decidedBy === undefined ? view.state : `${view.state} by ${view.decidedBy}`],
    ['tool', `${view.namespace}.${view.tool} ${view.toolVersion} (tier ${view.tier}, effects ${view.effects})`],
    ['hints', hints.join(', ')],
    ['asked by', `${requesterText(view)}${view.agentId === undefined ? '' : `, agent ${view.agentId}`}`],
    ['session', `${view.session} (${view.sessionKind}), in ${view.workspaceRoot}`],
    ['why', justification],
    ['rule', `${view.rule}: ${view.reason}`],
    ['taint', taint.join(', ')],
    ['remember', amendment === undefined ? '' : scopeText(amendment)],
    ['expires', moment(view.expiresAtMs)],
    ['digest', view.digest],
    ['what', preview.summary],
  ];
  const details = preview.details === undefined || preview.details === view.shown ? [] : [block(preview.details)];
  return escapeInvisible([...fieldLines(lines), ...details, 'parameters', view.shown].join('\n'));
}

/** The length of parameters in a list, and of the beginning by which details are recognised as mere parameters. */
const MAX_LISTED = 400;

/** The effect of a call in one line: the tool's summary, with the parameters if the tool gives no preview of its own. */
function summaryText({ preview, shown }: Pick<ReturnType<typeof approvalView>, 'preview' | 'shown'>): string {
  const { summary, details = '' } = preview;
  const isPlain = details.slice(0, MAX_LISTED) === shown.slice(0, MAX_LISTED);
  return isPlain ? `${summary} ${truncateText(shown.replace(/\n\s*/g, ' '), MAX_LISTED)}` : summary;
}

/** The session's actor, and the actor that the call names instead, if any. */
function requesterText({ requestedBy, actorId }: { readonly requestedBy: string; readonly actorId: string }): string {
  return requestedBy === actorId ? requestedBy : `${requestedBy}, in the name of ${actorId}`;
}
