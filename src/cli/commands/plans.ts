/** `pawl plans`: lists, shows, runs and cancels plans. */
import type { PlanSummary, PlanView } from '../../producer/groups/plan-view.ts';
import { shortName } from '../../shared/tools/tool.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import {
  type CliContext,
  operatorName,
  pawlCommand,
  printList,
  printResult,
  say,
  usageError,
  withPawl,
} from '../context.ts';
import { requireTrustedKeys } from '../doctor/signing-keys.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { readPlan } from '../params.ts';
import { type Column, moment, table } from '../print.ts';

const COLUMNS: readonly Column<PlanSummary>[] = [
  { title: 'PLAN', text: ({ planId }) => planId },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'NODES', align: 'right', text: ({ progress }) => String(progress.total) },
  { title: 'STARTED', text: ({ createdAtMs }) => moment(createdAtMs) },
  { title: 'SESSION', text: ({ session }) => session },
];

type NamedNode = readonly [name: string, node: PlanView['nodes'][string]];

const NODE_COLUMNS: readonly Column<NamedNode>[] = [
  { title: 'NODE', text: ([name]) => name },
  { title: 'TOOL', text: ([, { namespace, tool }]) => shortName({ namespace, name: tool }) },
  { title: 'STATE', text: ([, { state }]) => state },
  { title: 'NEEDS', text: ([, { needs }]) => needs.join(', ') },
  { title: 'RESULT', text: ([, node]) => resultOf(node) },
  { title: 'CALL', text: ([, { calls }]) => (calls.length > 1 ? `${calls.length} calls` : (calls[0]?.callId ?? '')) },
];

function resultOf({ skipped, error, calls }: NamedNode[1]): string {
  const failed = calls.find(({ errorCode }) => errorCode !== undefined)?.errorCode;
  return skipped ?? error?.message ?? failed ?? escapeLine(calls[0]?.summary ?? '');
}

export const listPlans = pawlCommand(async (context, pawl, options: { readonly limit: number }) => {
  const plans = await pawl.plans.list({ limit: options.limit });
  printList(context, { plans }, { rows: plans, columns: COLUMNS, none: 'there are no plans' });
});

export const showPlan = pawlCommand(async (context, pawl, id: string) => {
  printPlan(context, await pawl.plans.show(id));
});

function printPlan(context: CliContext, plan: PlanView): void {
  const because = plan.because === undefined ? '' : `, because of ${plan.because}`;
  const { approval } = plan;
  const refused = approval?.error === undefined ? '' : `: ${approval.error.message}`;
  const waits = approval?.state === 'pending' ? `, for ${approval.approvalId}` : '';
  const head = `${plan.planId}: ${plan.state}${because}${escapeLine(refused)}${waits}`;
  printResult(context, plan, `${head}\n\n${table(Object.entries(plan.nodes), NODE_COLUMNS)}`);
}

/** The exit code is 0 when the plan is done, and 5 when it was not approved. */
export async function planCommand(
  context: CliContext,
  file: string,
  options: { readonly session: string; readonly key?: string; readonly dryRun?: boolean },
): Promise<number> {
  const read = await readPlan(context, file);
  const { key } = options;
  const { idempotencyKey: fileKey = key } = read as { readonly idempotencyKey?: unknown };
  if (key !== undefined && fileKey !== key) throw usageError('The plan has another idempotencyKey than --key.');
  const plan = key === undefined ? read : { ...(read as object), idempotencyKey: key };
  return withPawl(context, async (pawl) => {
    const { record: session } = await pawl.session(options.session);
    if (options.dryRun === true) {
      const checked = await pawl.plans.check({ session, plan });
      const { order, needsApproval, irreversible } = checked;
      const lines = order.map((name) =>
        [
          name,
          ...(needsApproval?.includes(name) ? ['(needs approval)'] : []),
          ...(irreversible?.includes(name) ? ['(cannot be undone)'] : []),
        ].join(' '),
      );
      printResult(context, checked, lines.join('\n'));
      return;
    }
    await requireTrustedKeys(context, pawl);
    const { planId, approvalId, irreversible } = await pawl.plans.create({ session, plan });
    const status = approvalId === undefined ? 'has begun' : `waits for the approval ${approvalId}`;
    say(context, `the plan ${planId} ${status}; it continues when this command ends`);
    if (irreversible !== undefined) say(context, `calls of these nodes cannot be undone: ${irreversible.join(', ')}`);
    const finished = await pawl.plans.ended(planId);
    printPlan(context, context.json ? finished : await pawl.plans.show(planId));
    if (finished.state === 'done') return EXIT_CODES.success.code;
    return finished.approval?.state === 'refused' ? EXIT_CODES.denied.code : EXIT_CODES.failed.code;
  });
}

export const cancelPlan = pawlCommand(async (context, pawl, id: string) => {
  await pawl.plans.cancel(id, operatorName());
  const plan = await pawl.plans.read(id);
  printResult(context, plan, `${id} is ${plan.state}`);
});
