/**
 * The policy: which session may call which tool. One pure function decides, in the producer before a call is claimed and in the worker
 * before its tool runs.
 *
 * Each rule that applies gives a ruling: allow, ask (a person decides) or deny. The strictest ruling is the result, so a layer can only
 * restrict what the others allow. Within a layer, a tool's rule replaces its tier's, and the longest matching command prefix replaces the
 * tool's own decision.
 */
import { PawlError } from '../errors/failure.ts';
import type { Tier } from '../tools/tool.ts';
import { builtInRulings, DEDUPE_RULE, isOutOfState } from './built-in-rules.ts';
import { commandPrefixRule } from './command-prefix.ts';
import { commandOf } from './command-rules.ts';
import { layerRulings, layersOf, toolRuleOf } from './policy-layers.ts';
import { type PolicyRequest, type PolicyResult, type Ruling, SEVERITY } from './policy-request.ts';
import { asksToEscalate } from './sandbox-policy.ts';
import { isTaintRelevant } from './taint.ts';

/** The strictest ruling with its rule. The first of equally strict rulings decides. */
export function evaluate(request: PolicyRequest): PolicyResult {
  const rulings = builtInRulings(request);
  const layers = layersOf(request);
  for (const layer of layers) rulings.push(...layerRulings(request, layer));
  const strictest = rulings.reduce((strictest, ruling) =>
    SEVERITY[ruling.decision] > SEVERITY[strictest.decision] ? ruling : strictest,
  );
  if (strictest.decision !== 'ask') return { ...strictest, rulings };
  const { taint = [] } = request;
  const isTaintAsked = layers.some(({ layer }) => layer.taint === 'ask' && isTaintRelevant(request));
  const result: PolicyResult = { ...strictest, rulings, ...(isTaintAsked ? { askedForTaint: taint } : {}) };
  if (request.unconfined === true) return { ...result, unconfined: true };
  if (asksToEscalate(request.params)) return result;
  const prefix = commandPrefixRule(commandOf(request.params) ?? []);
  return prefix === undefined ? result : { ...result, amendment: { kind: 'command-prefix', prefix } };
}

/**
 * Evaluates a call and refuses a denied one. Throws `PERMISSION_DENIED` with the reason, or `DEDUPE_REQUIRED` where nothing else refuses
 * the call.
 */
export function requirePermission(request: PolicyRequest): PolicyResult {
  const result = evaluate(request);
  if (result.decision !== 'deny') return result;
  const refusing = result.rulings.find(({ decision, rule }) => decision === 'deny' && rule !== DEDUPE_RULE);
  if (refusing === undefined) throw dedupeRequired(request.tool);
  throw denied(request.tool, refusing.reason, refusing.rule);
}

function dedupeRequired({ name, tier }: PolicyRequest['tool']): PawlError {
  const expected = 'must be "enforced" or "bestEffort"';
  return new PawlError(
    'DEDUPE_REQUIRED',
    `${name} (tier ${tier}) may change something, so dedupeMode ${expected}; got "disabled". Leave it out, or have the operator set tools.${name}.allowDisabledDedupe.`,
    { issues: [{ path: 'transport.dedupeMode', message: expected }] },
  );
}

/**
 * Whether all calls of a tool in a session are denied, so that the session need not see the tool. Rules about commands, taint or channels
 * depend on the call and do not count.
 */
export function isOutOfReach(request: Omit<PolicyRequest, 'params' | 'taint' | 'channel' | 'dedupeMode'>): boolean {
  const isDenied = ({ decision }: Ruling) => decision === 'deny';
  if (builtInRulings(request).some(isDenied)) return true;
  const { policy, tool, session } = request;
  const layers = layersOf(policy === undefined ? request : { ...request, policy: { ...policy, channels: {} } });
  return layers.some((layer) => {
    const { commands = [], sessionKinds, states } = toolRuleOf(layer.layer, tool)?.rule ?? {};
    if (sessionKinds?.includes(session.kind) === false || isOutOfState(states, session)) return true;
    // A rule for a command replaces the tool's own decision, and that of its tier.
    return commands.every(({ decision }) => decision === 'deny') && layerRulings(request, layer).some(isDenied);
  });
}

export function denied(tool: { readonly name: string; readonly tier: Tier }, reason: string, rule?: string): PawlError {
  const detail = reason.replace(/\.$/, '');
  return new PawlError('PERMISSION_DENIED', `${tool.name} (tier ${tool.tier}) is denied: ${detail}.`, {
    details: { tier: tool.tier, ...(rule !== undefined && { rule }) },
  });
}
