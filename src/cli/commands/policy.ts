/** `pawl policy explain`: the policy's decision on a call, and the rule that made it. */
import type { Pawl } from '../../producer/client.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { toolPolicyOf } from '../../shared/connectors/declared-tool.ts';
import { evaluate } from '../../shared/policy/policy.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import { CHANNEL_ADVICE, OPEN_STATE } from '../../shared/sessions/session.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { type CliContext, printResult, say, usageError, withPawl } from '../context.ts';
import { readParams } from '../params.ts';
import { table } from '../print.ts';
import { toolReference } from './call.ts';

interface ExplainOptions {
  readonly session?: string;
  readonly params?: string;
  readonly namespace?: string;
  readonly taint?: readonly string[];
}

export async function explainPolicy(context: CliContext, tool: string, options: ExplainOptions): Promise<number> {
  const params = options.params === undefined ? undefined : await readParams(context, options.params);
  return withPawl(context, async (pawl) => {
    const { result, channel } = await evaluateCall(pawl, tool, params, options);
    const rulings = table(result.rulings, [
      { title: '', text: ({ rule }) => (rule === result.rule ? '*' : '') },
      { title: 'DECISION', text: ({ decision }) => decision },
      { title: 'RULE', text: ({ rule }) => rule },
      { title: 'REASON', text: ({ reason }) => reason },
    ]);
    const text = escapeLine(`${result.decision}: ${result.reason} (${result.rule})`);
    printResult(context, { tool, ...result, channel }, `${text}\n${rulings}`);
    if (!context.json && result.decision === 'ask' && channel === 'none') say(context, noChannelHint(options.session));
  });
}

async function evaluateCall(
  pawl: Pawl,
  toolName: string,
  params: Readonly<Record<string, unknown>> | undefined,
  { session: sessionKey, namespace: namespaceOption, taint = [] }: ExplainOptions,
): Promise<{ readonly result: PolicyResult; readonly channel: string }> {
  const { namespace, name } = toolReference(toolName, namespaceOption);
  const { tools } = await pawl.catalogue();
  const tool = tools.find((each) => each.name === name && each.namespace === namespace);
  if (tool === undefined) throw usageError(`There is no tool ${JSON.stringify(toolName)}; 'pawl tools' lists them.`);
  const record = sessionKey === undefined ? undefined : (await pawl.session(sessionKey)).record;
  const declared = await pawl.registry.read(qualifiedName(tool));
  const route = record === undefined ? undefined : await pawl.approvals.routeOf(record);
  const channel = route?.channel.kind ?? 'none';
  const result = evaluate({
    tool,
    session: record ?? { kind: 'main', state: OPEN_STATE },
    toolPolicy: toolPolicy(pawl.settings, tool),
    policy: pawl.settings.policy,
    registry: toolPolicyOf(declared),
    channel,
    ...(params !== undefined && { params }),
    taint: [...taint, ...taintOf([], record)],
    sandbox: pawl.settings.sandbox,
  });
  return { result, channel };
}

function noChannelHint(session: string | undefined): string {
  return session === undefined
    ? `that is for a session with a channel: without one no person can be asked, and the call is denied; ${CHANNEL_ADVICE}`
    : `no person can be asked: neither this session nor one above it has a channel to a person, so the call is denied; ${CHANNEL_ADVICE}`;
}
