/** The built-in rules, which apply in every configuration. */
import { SESSION_TIERS } from '../sessions/session.ts';
import { skillsRefusal } from '../sessions/skill-rule.ts';
import type { PolicyRequest, Ruling } from './policy-request.ts';
import { asksToEscalate } from './sandbox-policy.ts';

type Rule = (request: PolicyRequest) => Ruling | undefined;

export const DEDUPE_RULE = 'built-in.dedupe';

export function builtInRulings(request: PolicyRequest): Ruling[] {
  const rulings: Ruling[] = [];
  for (const rule of RULES) {
    const ruling = rule(request);
    if (ruling !== undefined) rulings.push(ruling);
  }
  return rulings;
}

const toolConfiguration: Rule = ({ tool, toolPolicy }) =>
  toolPolicy?.enabled === false
    ? deny(`tools.${tool.name}.enabled`, 'the tool is disabled by configuration')
    : undefined;

const registrySwitch: Rule = ({ tool, registry }) =>
  registry?.enabled === false
    ? deny(`registry.${tool.name}.enabled`, registry.reason ?? 'the tool is disabled in the registry')
    : undefined;

const skills: Rule = ({ tool, session }) => {
  const reason = skillsRefusal(session.skillRules, tool);
  return reason === undefined ? undefined : deny('built-in.skills', reason);
};

const closedSession: Rule = ({ session }) =>
  session.state === 'closed' ? deny('built-in.session-state', 'the session is closed') : undefined;

const sessionState: Rule = ({ tool, session, toolPolicy }) =>
  isOutOfState(toolPolicy?.states, session)
    ? deny(`tools.${tool.name}.states`, wrongStateReason(tool, session, toolPolicy?.states))
    : undefined;

const queue: Rule = ({ tool, queueTier = tool.tier }) =>
  queueTier === tool.tier ? undefined : deny('built-in.queue', 'the call came through the queue of another tier');

const sessionKind: Rule = ({ tool, session: { kind } }) =>
  SESSION_TIERS[kind].includes(tool.tier)
    ? undefined
    : deny(
        `built-in.channel-kinds.${kind}`,
        `a ${kind} session may only use the tiers ${SESSION_TIERS[kind].join(', ')}`,
      );

/** Programs outside of the sandbox need a person's decision, whether the call asks for it or no sandbox works. */
const sandbox: Rule = ({ params, sandbox: setting, unconfined }) => {
  if (!asksToEscalate(params))
    return unconfined === true
      ? ask(
          'built-in.no-sandbox',
          'no sandbox works where its programs would run, so that they would reach all files and the network',
        )
      : undefined;
  return setting === 'required'
    ? deny('built-in.sandbox', 'the setting `sandbox: required` lets nothing run outside of it')
    : ask('built-in.sandbox-permissions', 'it asks to run outside of the sandbox');
};

const dedupe: Rule = ({ tool, toolPolicy, dedupeMode }) =>
  dedupeMode === 'disabled' && tool.tier !== 'read-only' && toolPolicy?.allowDisabledDedupe !== true
    ? deny(
        DEDUPE_RULE,
        'dedupeMode "disabled" is only for read-only tools unless the tool’s policy sets allowDisabledDedupe',
      )
    : undefined;

const tierDefault: Rule = ({ tool: { tier } }) =>
  tier === 'elevated'
    ? ask('built-in.tiers.elevated', 'elevated calls need a person’s approval')
    : { decision: 'allow', rule: `built-in.tiers.${tier}`, reason: `the tier ${tier} is allowed` };

const RULES: readonly Rule[] = [
  toolConfiguration,
  registrySwitch,
  skills,
  closedSession,
  sessionState,
  queue,
  sessionKind,
  sandbox,
  dedupe,
  tierDefault,
];

function deny(rule: string, reason: string): Ruling {
  return { decision: 'deny', rule, reason };
}

function ask(rule: string, reason: string): Ruling {
  return { decision: 'ask', rule, reason };
}

/** Whether the session is in none of the states in which the tool may be called. */
export function isOutOfState(states: readonly string[] | undefined, { state }: PolicyRequest['session']): boolean {
  return states !== undefined && state !== undefined && !states.includes(state);
}

export function wrongStateReason(
  tool: PolicyRequest['tool'],
  { state }: PolicyRequest['session'],
  states: readonly string[] = [],
): string {
  return `${tool.name} may be called in the state ${states.join(', ') || 'none'}, and the session is ${state}`;
}
