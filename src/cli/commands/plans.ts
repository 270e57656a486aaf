/** `pawl plans`: lists, shows, runs and cancels plans. */
import type { Plan, PlanNodeView } from '../../producer/groups/plan-state.ts';
import { planOrder, planSummary, planView } from '../../producer/groups/plan-view.ts';
import { needsOf } from '../../shared/groups/check-plan.ts';
import { shownLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, operatorName, print, say, withPawl } from '../context.ts';
import { requireTrustedKeys } from '../doctor/signing-keys.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { readParams } from '../params.ts';
import { type Column, moment, prettyJson, table } from '../print.ts';

const COLUMNS: readonly Column<Plan>[] = [
  { title: 'PLAN', text: ({ head }) => head.id },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'NODES', align: 'right', text: ({ nodes }) => String(nodes.length) },
  { title: 'STARTED', text: ({ head }) => moment(head.createdAtMs) },
  { title: 'SESSION', text: ({ definition }) => definition.target.sessionKey },
];

const NODE_COLUMNS: readonly Column<PlanNodeView>[] = [
  { title: 'NODE', text: ({ name }) => name },
  { title: 'TOOL', text: ({ node }) => node.name },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'NEEDS', text: ({ node }) => [...needsOf(node)].join(', ') },
  { title: 'RESULT', text: resultOf },
  { title: 'CALL', text: ({ calls }) => callsOf(calls) },
];

interface JsonOption {
  readonly json?: boolean;
}

function resultOf({ note, calls }: PlanNodeView): string {
  const failed = calls.find(({ member }) => member?.end?.code !== undefined)?.member?.end?.code;
  const [first] = calls;
  return note?.skipped ?? note?.error?.message ?? failed ?? shownLine(first?.summary ?? '');
}

function callsOf(calls: PlanNodeView['calls']): string {
  const [first] = calls;
  return calls.length > 1 ? `${calls.length} calls` : (first?.member?.callId ?? '');
}

export async function listPlans(
  context: CliContext,
  options: JsonOption & { readonly limit: number },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    const plans = await pawl.plans.list({ limit: options.limit });
    if (options.json === true) print(context, prettyJson({ plans: plans.map(planSummary) }));
    else if (plans.length === 0) say(context, 'there are no plans');
    else print(context, table(plans, COLUMNS));
  });
}

export async function showPlan(context: CliContext, id: string, options: JsonOption): Promise<number> {
  return withPawl(context, async (pawl) => {
    printPlan(context, await pawl.plans.show(id), options);
  });
}

function printPlan(context: CliContext, plan: Plan, { json }: JsonOption): void {
  if (json === true) {
    print(context, prettyJson(planView(plan)));
    return;
  }
  const because = plan.because === undefined ? '' : `, because of ${plan.because}`;
  const { approval } = plan;
  const refused = approval?.error === undefined ? '' : `: ${approval.error.message}`;
  const waits = approval?.state === 'pending' ? `, for ${approval.approvalId}` : '';
  print(
    context,
    `${plan.head.id}: ${plan.state}${because}${shownLine(refused)}${waits}\n\n${table(plan.nodes, NODE_COLUMNS)}`,
  );
}

/** The exit code is 0 when the plan is done, and 5 when it was not approved. */
export async function planCommand(
  context: CliContext,
  file: string,
  options: JsonOption & { readonly session: string; readonly key?: string; readonly dryRun?: boolean },
): Promise<number> {
  const read = await readParams(context, file === '-' ? '-' : `@${file}`);
  const plan = options.key === undefined ? read : { ...(read as object), idempotencyKey: options.key };
  return withPawl(context, async (pawl) => {
    const { record: session } = await pawl.session(options.session);
    if (options.dryRun === true) {
      const checked = planOrder(await pawl.plans.check({ session, plan }));
      const marked = checked.order.map(
        (name) => `${name}${checked.needsApproval?.includes(name) ? ' (needs approval)' : ''}`,
      );
      print(context, options.json === true ? prettyJson(checked) : marked.join('\n'));
      return;
    }
    await requireTrustedKeys(context, pawl);
    const { planId, approvalId } = await pawl.plans.create({ session, plan });
    const began = approvalId === undefined ? 'has begun' : `waits for the approval ${approvalId}`;
    say(context, `the plan ${planId} ${began}; it goes on when this command ends`);
    const ended = await pawl.plans.ended(planId);
    printPlan(context, ended, options);
    if (ended.state === 'done') return EXIT_CODES.success.code;
    return ended.approval?.state === 'refused' ? EXIT_CODES.denied.code : EXIT_CODES.failed.code;
  });
}

export async function cancelPlan(context: CliContext, id: string, options: JsonOption): Promise<number> {
  return withPawl(context, async (pawl) => {
    await pawl.plans.cancel(id, operatorName());
    const plan = await pawl.plans.read(id);
    print(context, options.json === true ? prettyJson(planView(plan)) : `${id} is ${plan.state}`);
  });
}
