/** The operator's layers: the rules of the policy file and of the registry. */
import type { ToolLimits } from '../limits/budget.ts';
import { defaultsOf } from '../schema/tagged-union.ts';
import { hostInUrl } from '../util/hosts.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { matches } from '../util/wildcard.ts';
import { isOutOfState, wrongStateReason } from './built-in-rules.ts';
import { commandRulesFor, startedCommands } from './command-rules.ts';
import { hostsIn, pathsIn } from './parameter-facts.ts';
import type { PolicyLayer, ToolRule } from './policy-file.ts';
import type { PolicyRequest, Ruling } from './policy-request.ts';
import { isTaintRelevant } from './taint.ts';

interface NamedLayer {
  readonly path: string;
  readonly layer: PolicyLayer;
}

/**
 * The layers that concern a call: registry, global, tenant, agent, channel and session. A layer of a session applies to the sessions below
 * it, too.
 */
export function layersOf({ policy, session, channel, registry, tool }: PolicyRequest): NamedLayer[] {
  const registryLayers: NamedLayer[] =
    registry?.rule === undefined ? [] : [{ path: 'registry', layer: { tools: { [tool.name]: registry.rule } } }];
  if (policy === undefined) return registryLayers;
  const layers =
    policy.global === undefined ? registryLayers : [...registryLayers, { path: 'policy.global', layer: policy.global }];
  const add = (group: 'tenants' | 'agents' | 'channels' | 'sessions', ...names: (string | undefined)[]) => {
    for (const [pattern, layer] of Object.entries(policy[group]))
      if (names.some((name) => name !== undefined && matches(pattern, name)))
        layers.push({ path: `policy.${group}.${pattern}`, layer });
  };
  add('tenants', session.tenantId);
  add('agents', session.agentId);
  add('channels', channel ?? 'none');
  add('sessions', session.sessionKey, ...(session.ancestors ?? []));
  return layers;
}

/** The limits that the layers set for calls of the tool in one session. The claim of a call counts them. */
export function toolLimits(request: PolicyRequest): readonly ToolLimits[] {
  return layersOf(request).flatMap(({ path, layer }) => {
    const matching = toolRuleOf(layer, request.tool);
    if (matching === undefined) return [];
    const { perMinute, perTurn, perSession } = matching.rule;
    if (perMinute === undefined && perTurn === undefined && perSession === undefined) return [];
    return [{ title: `${path}.tools.${matching.name}`, perMinute, perTurn, perSession }];
  });
}

export function layerRulings(request: PolicyRequest, { path, layer }: NamedLayer): Ruling[] {
  const { tool, taint = [] } = request;
  const rulings: Ruling[] = [];
  const tier = layer.tiers?.[tool.tier];
  if (tier !== undefined)
    rulings.push({
      decision: tier,
      rule: `${path}.tiers.${tool.tier}`,
      reason: `${path} says ${tier} for the tier ${tool.tier}`,
    });
  const match = toolRuleOf(layer, tool);
  if (match !== undefined) {
    const toolResults = toolRulings(request, `${path}.tools.${match.name}`, match.rule);
    // The tool's own decision replaces that of its tier.
    if (toolResults.some(({ replacesTier }) => replacesTier)) rulings.length = 0;
    rulings.push(...toolResults.map(({ replacesTier: _, ...ruling }) => ruling));
  }
  if (layer.taint !== undefined && isTaintRelevant(request))
    rulings.push({
      decision: layer.taint,
      rule: `${path}.taint`,
      reason: `its parameters may come from ${taint.join(', ')}`,
    });
  return rulings;
}

/** The rule of the qualified name, else of the plain name, else of the longest pattern. */
export function toolRuleOf(
  { tools = {} }: PolicyLayer,
  { namespace = 'tools', name }: PolicyRequest['tool'],
): { readonly name: string; readonly rule: ToolRule } | undefined {
  const qualified = `${namespace}.${name}`;
  const [pattern] = Object.keys(tools)
    .filter((key) => matches(key, name) || matches(key, qualified))
    .sort((a, b) => specificity(b, qualified) - specificity(a, qualified));
  const rule = pattern === undefined ? undefined : tools[pattern];
  if (pattern === undefined || rule === undefined) return undefined;
  return { name: pattern, rule: typeof rule === 'string' ? { decision: rule } : rule };
}

function specificity(pattern: string, qualified: string): number {
  return (pattern === qualified ? 2_000 : pattern.includes('*') ? 0 : 1_000) + pattern.length;
}

function toolRulings({ tool, session, params: callParams }: PolicyRequest, path: string, rule: ToolRule): ToolRuling[] {
  const { commands, hosts, paths, methods } = rule;
  const needsParams = [commands, hosts, paths, methods].some((list) => list !== undefined);
  const params =
    callParams === undefined || !needsParams
      ? undefined
      : { ...defaultsOf(tool.inputSchema ?? {}, callParams), ...defined(callParams) };
  const rulings: ToolRuling[] = [];
  const deny = (field: string, reason: string) =>
    rulings.push({ decision: 'deny', rule: `${path}.${field}`, reason, replacesTier: false });
  rulings.push(...commandRulings(rule, path, params));
  if (rule.sessionKinds !== undefined && !rule.sessionKinds.includes(session.kind))
    deny('sessionKinds', `${tool.name} is only for sessions of kind ${rule.sessionKinds.join(', ')}`);
  if (isOutOfState(rule.states, session)) deny('states', wrongStateReason(tool, session, rule.states));
  if (params === undefined) return rulings;
  if (hosts !== undefined)
    for (const { name, forms } of hostsIn(params))
      if (!forms.some((form) => hosts.some((pattern) => matches(hostInUrl(pattern) || pattern, form))))
        deny('hosts', `${name} names ${forms[0] ? `the host ${forms.at(-1)}` : 'no host'}, which is not on the list`);
  if (paths !== undefined)
    for (const { name, path: value } of pathsIn(params))
      if (!paths.some((pattern) => matches(pattern, value)))
        deny('paths', `${name} names the path ${value}, which is not on the list`);
  const method = params['method'];
  if (methods !== undefined && typeof method === 'string' && !methods.includes(method.toUpperCase()))
    deny('methods', `the method ${method} is not on the list`);
  return rulings;
}

type ToolRuling = Ruling & { readonly replacesTier: boolean };

/** The rulings of the tool's own decision and of its rules for commands, one for each command that the call may start. */
function commandRulings(
  rule: ToolRule,
  path: string,
  params: Readonly<Record<string, unknown>> | undefined,
): ToolRuling[] {
  const general: Ruling[] =
    rule.decision === undefined
      ? []
      : [{ decision: rule.decision, rule: path, reason: rule.reason ?? `${path} says ${rule.decision}` }];
  const started = rule.commands === undefined ? undefined : startedCommands(params);
  if (started === undefined || started.commands.length === 0)
    return general.map((ruling) => ({ ...ruling, replacesTier: true }));
  const rulingsByCommand = started.commands.map((command) => {
    const matching = commandRulesFor(rule, command, started.isExact).map(
      ({ rule: { prefix, decision, reason }, index }) => {
        const subject = `commands that start with ${prefix.join(' ')}`;
        const explanation = command.open
          ? `it may run ${subject}: ${reason ?? decision}`
          : (reason ?? `${subject}: ${decision}`);
        return { decision, rule: `${path}.commands.${index}`, reason: explanation };
      },
    );
    return command.open || matching.length === 0 ? [...matching, ...general] : matching;
  });
  // The tier's decision stays where the tool's rules leave a command undecided.
  const replacesTier =
    general.length > 0 || started.commands.every(({ open }, index) => !open && rulingsByCommand[index]?.length !== 0);
  const byRule = new Map(rulingsByCommand.flat().map((ruling) => [ruling.rule, ruling]));
  return [...byRule.values()].map((ruling) => ({ ...ruling, replacesTier }));
}
