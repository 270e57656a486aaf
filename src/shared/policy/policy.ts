/**
 * Who may call what (A3, A17, C3, C23, C24, I3, I16, I23; DESIGN, decision 10): one pure function that producer and worker ask
 * alike, the one before a call is claimed, the other before its tool runs.
 *
 * Every rule that applies gives a ruling: allow, ask (a person decides) or deny. The strictest ruling is the verdict, so that a
 * layer can only restrict what the others leave. Inside one layer a tool's rule stands for its tier's, and the longest command
 * prefix for the tool's own decision.
 */
import { posix } from 'node:path';
import type { StandingApprovalRequest } from '../approvals/approval.ts';
import type { DedupeMode } from '../calls/envelope.ts';
import { PawlError } from '../errors/failure.ts';
import type { ToolLimits } from '../limits/budget.ts';
import { parsePatch } from '../patches/patch.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { defaultsOf } from '../schema/schema.ts';
import { SESSION_TIERS, type SessionKind, type SessionRecord } from '../sessions/session.ts';
import { refusedBySkills, type SkillRule } from '../sessions/skill-rule.ts';
import type { Effects, Tier } from '../tools/tool.ts';
import { matches } from '../util/wildcard.ts';
import { commandPrefixRule } from './command-prefix.ts';
import type { PolicyDecision, PolicyLayer, PolicySettings, ToolPolicyRecord, ToolRule } from './policy-file.ts';
import { asksToEscalate } from './sandbox-override.ts';
import type { SandboxPolicy } from './sandbox-policy.ts';
import { ANY_COMMAND, readCommandText, type SimpleCommand } from './shell-command.ts';

export interface PolicyRequest {
  readonly tool: {
    readonly name: string;
    readonly namespace?: string;
    readonly tier: Tier;
    readonly effects?: Effects;
    /** Says what parameters are that a call leaves out. */
    readonly inputSchema?: JsonSchema;
  };
  readonly session: {
    readonly kind: SessionKind;
    readonly sessionKey?: string;
    readonly ancestors?: readonly string[];
    readonly agentId?: string | undefined;
    readonly tenantId?: string | undefined;
    /** Undefined where the call was accepted before: it goes on, whatever the session does now. */
    readonly state?: string | undefined;
    readonly skillRules?: readonly SkillRule[];
  };
  /** The operator's entry for this tool in `tools`. */
  readonly toolPolicy?: {
    readonly enabled?: boolean | undefined;
    readonly allowDisabledDedupe?: boolean | undefined;
    readonly states?: readonly string[] | undefined;
  };
  readonly policy?: PolicySettings;
  /** What the registry says of the tool now. */
  readonly registry?: ToolPolicyRecord | undefined;
  /** Kind of the channel that the session's requests reach. */
  readonly channel?: string | undefined;
  readonly params?: Readonly<Record<string, unknown>>;
  /** Where the parameters may come from. */
  readonly taint?: readonly string[];
  /** The operator's word on the sandbox of programs. */
  readonly sandbox?: SandboxPolicy;
  /** No sandbox works on a worker that would run the tool's programs, and the operator has not said that none is needed. */
  readonly unconfined?: boolean;
  /** As asked for; undefined where the call has been claimed already. */
  readonly dedupeMode?: DedupeMode | undefined;
  /** The tier of the queue that the call came through. */
  readonly queueTier?: Tier;
}

/** What one rule says. `rule` is its path: in the configuration, or below `built-in`. */
export interface Ruling {
  readonly decision: PolicyDecision;
  readonly rule: string;
  readonly reason: string;
}

export interface PolicyResult extends Ruling {
  /** All that applied, the deciding one among them. */
  readonly rulings: readonly Ruling[];
  /** Where the parameters may come from, if that is a reason to ask. */
  readonly askedForTaint?: readonly string[];
  /** With `ask`: programs of the call would run outside of the sandbox. */
  readonly unconfined?: true;
  /** With `ask`: what a person could allow for the rest of the session (C24). */
  readonly amendment?: Omit<Extract<StandingApprovalRequest, { kind: 'command-prefix' }>, never>;
}

const SEVERITY: Readonly<Record<PolicyDecision, number>> = { allow: 0, ask: 1, deny: 2 };

/** The verdict, with the rule that decided. Among equally strict rulings the first one decides. */
export function evaluate(request: PolicyRequest): PolicyResult {
  const rulings = builtIn(request);
  const layers = layersOf(request);
  for (const layer of layers) rulings.push(...layerRulings(request, layer));
  const deciding = rulings.reduce((strictest, ruling) =>
    SEVERITY[ruling.decision] > SEVERITY[strictest.decision] ? ruling : strictest,
  );
  if (deciding.decision !== 'ask') return { ...deciding, rulings };
  const { taint = [] } = request;
  const isTaintAsked = layers.some(({ layer }) => layer.taint === 'ask' && concernsTaint(request));
  const result: PolicyResult = { ...deciding, rulings, ...(isTaintAsked ? { askedForTaint: taint } : {}) };
  if (request.unconfined === true) return { ...result, unconfined: true };
  if (asksToEscalate(request.params)) return result;
  const prefix = commandPrefixRule(commandOf(request.params) ?? []);
  return prefix === undefined ? result : { ...result, amendment: { kind: 'command-prefix', prefix } };
}

function concernsTaint({ tool, taint = [] }: PolicyRequest): boolean {
  return taint.length > 0 && tool.effects !== 'none';
}

/** The same, for what may not be denied: throws `PERMISSION_DENIED`, saying why, or `DEDUPE_REQUIRED` where nothing else is in the way. */
export function permit(request: PolicyRequest): PolicyResult {
  const result = evaluate(request);
  if (result.decision !== 'deny') return result;
  const refusing = result.rulings.find(({ decision, rule }) => decision === 'deny' && rule !== DEDUPE_RULE);
  if (refusing === undefined) throw dedupeRequired(request.tool);
  throw denied(request.tool, refusing.reason, refusing.rule);
}

const DEDUPE_RULE = 'built-in.dedupe';

function dedupeRequired({ name, tier }: PolicyRequest['tool']): PawlError {
  const expected = 'must be "enforced" or "bestEffort"';
  return new PawlError(
    'DEDUPE_REQUIRED',
    `${name} (tier ${tier}) may change something, so dedupeMode ${expected}; got "disabled". Leave it out, or have the operator set tools.${name}.allowDisabledDedupe.`,
    { issues: [{ path: 'transport.dedupeMode', message: expected }] },
  );
}

/**
 * Whether a session's calls of a tool are denied whatever they say: such a tool need not be shown to it. What its commands, their
 * taint or its channel may decide, only a call can tell.
 */
export function isOutOfReach(request: Omit<PolicyRequest, 'params' | 'taint' | 'channel' | 'dedupeMode'>): boolean {
  const isDenied = ({ decision }: Ruling) => decision === 'deny';
  if (builtIn(request).some(isDenied)) return true;
  const { policy, tool, session } = request;
  const layers = layersOf(policy === undefined ? request : { ...request, policy: { ...policy, channels: {} } });
  return layers.some((named) => {
    const { commands = [], sessionKinds, states } = toolRuleOf(named.layer, tool)?.rule ?? {};
    if (sessionKinds?.includes(session.kind) === false || isOutOfState(states, session)) return true;
    // A rule for a command stands for the tool's own decision, and for its tier's.
    return commands.every(({ decision }) => decision === 'deny') && layerRulings(request, named).some(isDenied);
  });
}

export function denied(tool: { readonly name: string; readonly tier: Tier }, reason: string, rule?: string): PawlError {
  const why = reason.replace(/\.$/, '');
  return new PawlError('PERMISSION_DENIED', `${tool.name} (tier ${tool.tier}) is denied: ${why}.`, {
    details: { tier: tool.tier, ...(rule === undefined ? {} : { rule }) },
  });
}

// Built in: they hold whatever the configuration says

function builtIn(request: PolicyRequest): Ruling[] {
  const { tool, session, toolPolicy, dedupeMode, queueTier = tool.tier } = request;
  const rulings: Ruling[] = [];
  const deny = (rule: string, reason: string) => rulings.push({ decision: 'deny', rule: `built-in.${rule}`, reason });
  if (toolPolicy?.enabled === false)
    rulings.push({
      decision: 'deny',
      rule: `tools.${tool.name}.enabled`,
      reason: 'the tool is disabled by configuration',
    });
  if (request.registry?.enabled === false)
    rulings.push({
      decision: 'deny',
      rule: `registry.${tool.name}.enabled`,
      reason: request.registry.reason ?? 'the tool is disabled in the registry',
    });
  const unskilled = refusedBySkills(session.skillRules, tool);
  if (unskilled !== undefined) deny('skills', unskilled);
  if (session.state === 'closed') deny('session-state', 'the session is closed');
  if (isOutOfState(toolPolicy?.states, session))
    rulings.push({
      decision: 'deny',
      rule: `tools.${tool.name}.states`,
      reason: outOfState(tool, session, toolPolicy?.states),
    });
  if (queueTier !== tool.tier) deny('queue', 'the call came through the queue of another tier');
  if (!SESSION_TIERS[session.kind].includes(tool.tier))
    deny(
      `session-kinds.${session.kind}`,
      `a ${session.kind} session may only use the tiers ${SESSION_TIERS[session.kind].join(', ')}`,
    );
  if (asksToEscalate(request.params)) {
    if (request.sandbox === 'required')
      deny('sandbox', 'the setting `sandbox: required` lets nothing run outside of it');
    else
      rulings.push({
        decision: 'ask',
        rule: 'built-in.sandbox-permissions',
        reason: 'it asks to run outside of the sandbox',
      });
  } else if (request.unconfined === true)
    rulings.push({
      decision: 'ask',
      rule: 'built-in.no-sandbox',
      reason: 'no sandbox works where its programs would run, so that they would reach all files and the network',
    });
  if (dedupeMode === 'disabled' && tool.tier !== 'read-only' && toolPolicy?.allowDisabledDedupe !== true)
    deny(
      'dedupe',
      'dedupeMode "disabled" is only for read-only tools unless the tool’s policy sets allowDisabledDedupe',
    );
  rulings.push(
    tool.tier === 'elevated'
      ? { decision: 'ask', rule: 'built-in.tiers.elevated', reason: 'elevated calls need a person’s approval' }
      : { decision: 'allow', rule: `built-in.tiers.${tool.tier}`, reason: `the tier ${tool.tier} is allowed` },
  );
  return rulings;
}

// The operator's layers

interface NamedLayer {
  readonly path: string;
  readonly layer: PolicyLayer;
}

/** Global, tenant, agent, channel, session: those that concern this call. What restricts a session restricts those below it. */
function layersOf({ policy, session, channel, registry, tool }: PolicyRequest): NamedLayer[] {
  const own: NamedLayer[] =
    registry?.rule === undefined ? [] : [{ path: 'registry', layer: { tools: { [tool.name]: registry.rule } } }];
  if (policy === undefined) return own;
  const named = policy.global === undefined ? own : [...own, { path: 'policy.global', layer: policy.global }];
  const add = (group: 'tenants' | 'agents' | 'channels' | 'sessions', ...names: (string | undefined)[]) => {
    for (const [pattern, layer] of Object.entries(policy[group]))
      if (names.some((name) => name !== undefined && matches(pattern, name)))
        named.push({ path: `policy.${group}.${pattern}`, layer });
  };
  add('tenants', session.tenantId);
  add('agents', session.agentId);
  add('channels', channel ?? 'none');
  add('sessions', session.sessionKey, ...(session.ancestors ?? []));
  return named;
}

/** I3: how many calls of the tool the layers allow one session; who claims the call counts them. */
export function toolLimits(request: PolicyRequest): readonly ToolLimits[] {
  return layersOf(request).flatMap(({ path, layer }) => {
    const found = toolRuleOf(layer, request.tool);
    if (found === undefined) return [];
    const { perMinute, perTurn, perSession } = found.rule;
    if (perMinute === undefined && perTurn === undefined && perSession === undefined) return [];
    return [{ title: `${path}.tools.${found.name}`, perMinute, perTurn, perSession }];
  });
}

function layerRulings(request: PolicyRequest, { path, layer }: NamedLayer): Ruling[] {
  const { tool, taint = [] } = request;
  const rulings: Ruling[] = [];
  const tier = layer.tiers?.[tool.tier];
  if (tier !== undefined)
    rulings.push({
      decision: tier,
      rule: `${path}.tiers.${tool.tier}`,
      reason: `${path} says ${tier} for the tier ${tool.tier}`,
    });
  const found = toolRuleOf(layer, tool);
  if (found !== undefined) {
    const ruled = toolRulings(request, `${path}.tools.${found.name}`, found.rule);
    // The tool's own decision stands for its tier's.
    if (ruled.some(({ own }) => own)) rulings.length = 0;
    rulings.push(...ruled.map(({ own: _, ...ruling }) => ruling));
  }
  if (layer.taint !== undefined && concernsTaint(request))
    rulings.push({
      decision: layer.taint,
      rule: `${path}.taint`,
      reason: `its parameters may come from ${taint.join(', ')}`,
    });
  return rulings;
}

/** The qualified name's rule before the plain name's, that before the longest pattern. */
function toolRuleOf(
  { tools = {} }: PolicyLayer,
  { namespace = 'tools', name }: PolicyRequest['tool'],
): { readonly name: string; readonly rule: ToolRule } | undefined {
  const qualified = `${namespace}.${name}`;
  const [found] = Object.keys(tools)
    .filter((key) => matches(key, name) || matches(key, qualified))
    .sort((a, b) => rank(b, qualified) - rank(a, qualified));
  const rule = found === undefined ? undefined : tools[found];
  if (found === undefined || rule === undefined) return undefined;
  return { name: found, rule: typeof rule === 'string' ? { decision: rule } : rule };
}

function rank(pattern: string, qualified: string): number {
  return (pattern === qualified ? 2_000 : pattern.includes('*') ? 0 : 1_000) + pattern.length;
}

function toolRulings({ tool, session, params: given }: PolicyRequest, path: string, rule: ToolRule): OwnRuling[] {
  const { commands, hosts, paths, methods } = rule;
  const looksAtParams = [commands, hosts, paths, methods].some((list) => list !== undefined);
  const params = given === undefined || !looksAtParams ? undefined : { ...defaultsOf(tool.inputSchema), ...given };
  const rulings: OwnRuling[] = [];
  const deny = (field: string, reason: string) =>
    rulings.push({ decision: 'deny', rule: `${path}.${field}`, reason, own: false });
  rulings.push(...decisionsOf(rule, path, params));
  if (rule.sessionKinds !== undefined && !rule.sessionKinds.includes(session.kind))
    deny('sessionKinds', `${tool.name} is only for sessions of kind ${rule.sessionKinds.join(', ')}`);
  if (isOutOfState(rule.states, session)) deny('states', outOfState(tool, session, rule.states));
  if (params === undefined) return rulings;
  if (hosts !== undefined)
    for (const { name, host } of hostsIn(params))
      if (!hosts.some((pattern) => matches(pattern, host)))
        deny('hosts', `${name} names the host ${host}, which is not on the list`);
  if (paths !== undefined)
    for (const { name, path: at } of pathsIn(params))
      if (!paths.some((pattern) => matches(pattern, at)))
        deny('paths', `${name} names the path ${at}, which is not on the list`);
  const method = params['method'];
  if (methods !== undefined && typeof method === 'string' && !methods.includes(method.toUpperCase()))
    deny('methods', `the method ${method} is not on the list`);
  return rulings;
}

/** The session is in none of the states in which the tool may be called. */
function isOutOfState(states: readonly string[] | undefined, { state }: PolicyRequest['session']): boolean {
  return states !== undefined && state !== undefined && !states.includes(state);
}

function outOfState(
  tool: PolicyRequest['tool'],
  { state }: PolicyRequest['session'],
  states: readonly string[] = [],
): string {
  return `${tool.name} may be called in the state ${states.join(', ') || 'none'}, and the session is ${state}`;
}

type OwnRuling = Ruling & { readonly own: boolean };

/** Of the tool's own decision and of its rules for commands, one for each command that the call may start. */
function decisionsOf(rule: ToolRule, path: string, params: Readonly<Record<string, unknown>> | undefined): OwnRuling[] {
  const general: Ruling[] =
    rule.decision === undefined
      ? []
      : [{ decision: rule.decision, rule: path, reason: rule.reason ?? `${path} says ${rule.decision}` }];
  const started = rule.commands === undefined ? undefined : startedBy(params);
  if (started === undefined || started.commands.length === 0)
    return general.map((ruling) => ({ ...ruling, own: true }));
  const ruled = started.commands.map((command) => {
    const found = commandRulesFor(rule, command, started.sure).map(({ rule: { prefix, decision, reason }, index }) => {
      const named = `commands that start with ${prefix.join(' ')}`;
      const said = command.open ? `it may run ${named}: ${reason ?? decision}` : (reason ?? `${named}: ${decision}`);
      return { decision, rule: `${path}.commands.${index}`, reason: said };
    });
    return command.open || found.length === 0 ? [...found, ...general] : found;
  });
  // What the tool's rules do not decide, its tier's does.
  const own = general.length > 0 || started.commands.every(({ open }, index) => !open && ruled[index]?.length !== 0);
  const each = new Map(ruled.flat().map((ruling) => [ruling.rule, ruling]));
  return [...each.values()].map((ruling) => ({ ...ruling, own }));
}

/**
 * The longest prefix that the command starts with; of equal ones the strictest. Of one that may go on in any way, all that it may
 * start with. What is not `sure` is allowed by none.
 */
function commandRulesFor({ commands = [] }: ToolRule, { words, open }: SimpleCommand, sure: boolean) {
  const found = commands
    .map((rule, index) => ({ rule, index }))
    .filter(({ rule: { prefix, decision } }) => {
      if (decision === 'allow') return sure && startsWith(words, prefix);
      if (open && words.length === 0) return true;
      const known = open ? prefix.slice(0, words.length) : prefix;
      return startsWith(words, known) || namesLike(words, known);
    })
    .sort(
      (a, b) => b.rule.prefix.length - a.rule.prefix.length || SEVERITY[b.rule.decision] - SEVERITY[a.rule.decision],
    );
  return open ? found : found.slice(0, 1);
}

/** Of a command as `commandOf` gives it: the program of the prefix may stand there with its folder. */
export function startsWith(command: readonly string[], prefix: readonly string[]): boolean {
  const [program = '', ...rest] = prefix;
  return [programOf(program), ...rest].every((word, index) => command[index] === word);
}

/** The same wherever the program is: what may not be started under a name, may not be from another folder. */
function namesLike([program = '', ...rest]: readonly string[], [named = '', ...words]: readonly string[]): boolean {
  return startsWith([posix.basename(program), ...rest], [posix.basename(named), ...words]);
}

// What parameters say

/** Which of them a tool takes, its schema need not say. */
const COMMAND_NAMES = ['command', 'argv', 'cmd'] as const;

function commandsIn(params: Readonly<Record<string, unknown>> | undefined): readonly unknown[] {
  return COMMAND_NAMES.map((name) => params?.[name]).filter((command) => command !== undefined && command !== null);
}

/** The argument vector of a call that starts a program; undefined where there is none, or where it may be another one. */
export function commandOf(params: Readonly<Record<string, unknown>> | undefined): readonly string[] | undefined {
  const commands = commandsIn(params);
  return commands.length === 1 ? wordsOf(commands[0]) : undefined;
}

function wordsOf(command: unknown): readonly string[] | undefined {
  if (!Array.isArray(command) || !command.every((word) => typeof word === 'string')) return undefined;
  const [program = '', ...rest] = command as readonly string[];
  return [programOf(program), ...rest];
}

/** Whose texts are read as `readCommandText` does. */
const SHELLS = new Set(['sh', 'ash', 'bash', 'dash', 'ksh']);

/** What a call may start. `sure`: it is these commands, and nothing else; only then may they be allowed. */
function startedBy(params: Readonly<Record<string, unknown>> | undefined): {
  readonly commands: readonly SimpleCommand[];
  readonly sure: boolean;
} {
  const given = commandsIn(params);
  const shell = params?.['shell'];
  const isText = typeof shell !== 'string' || SHELLS.has(programOf(shell));
  const read = given.map((command) => {
    const words = wordsOf(command);
    if (words !== undefined) return { commands: [{ words, open: false }], plain: true };
    if (typeof command !== 'string' || !isText) return { commands: [ANY_COMMAND], plain: false };
    const { commands, plain } = readCommandText(command);
    return {
      commands: commands.map(({ words: [program, ...rest], open }) => ({
        words: program === undefined ? [] : [programOf(program), ...rest],
        open,
      })),
      plain,
    };
  });
  return {
    commands: read.flatMap(({ commands }) => commands),
    sure: read.length === 1 && read.every(({ plain }) => plain),
  };
}

const SYSTEM_FOLDER = /^(?:(?:\/usr(?:\/local)?)?\/s?bin|\/opt\/homebrew\/bin|\/run\/current-system\/sw\/bin)$/;

/** `/bin/rm` and `rm` are one program; `./rm` may be anything, and be put there by whoever calls it. */
function programOf(word: string): string {
  return SYSTEM_FOLDER.test(posix.dirname(word)) ? posix.basename(word) : word;
}

function hostsIn(params: Readonly<Record<string, unknown>>): { readonly name: string; readonly host: string }[] {
  return textsIn(params).flatMap(([name, value]) => {
    if (/^(?:host|hostname|domain)s?$/i.test(name)) return [{ name, host: value.toLowerCase() }];
    // As whoever fetches it reads it: `https:/host` names a host, too, with a tab in its scheme or a control before it.
    if (!URL.canParse(value)) return [];
    const { protocol, hostname, href } = new URL(value);
    return href.startsWith(`${protocol}//`) ? [{ name, host: hostname }] : [];
  });
}

const PATH_NAMES =
  /^(?:(?:path|file|file_?path|filename|dir|folder|source|target|destination)s?|directory|directories|cwd|workdir|from|to)$/i;

function pathsIn(params: Readonly<Record<string, unknown>>): { readonly name: string; readonly path: string }[] {
  return textsIn(params).flatMap(([name, value]) => {
    const paths = name === 'patch' ? pathsOfPatch(value) : PATH_NAMES.test(name) ? [value] : [];
    return paths.map((path) => ({ name, path: posix.normalize(path) }));
  });
}

/** Of the files that a patch names. One that cannot be read is applied by nobody. */
function pathsOfPatch(text: string): string[] {
  try {
    return parsePatch(text).flatMap((file) =>
      file.kind === 'update' && file.moveTo !== undefined ? [file.path, file.moveTo] : [file.path],
    );
  } catch {
    return [];
  }
}

/** Calls whose parameters are nested deeper are refused. */
const MAX_DEPTH = 128;

/** Those of lists and objects, too: a tool that takes several paths takes each of them, wherever they stand. */
function textsIn(value: unknown, name = '', depth = 0): (readonly [name: string, text: string])[] {
  if (typeof value === 'string') return [[name, value]];
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return [];
  const entries = Array.isArray(value) ? value.map((each) => [name, each] as const) : Object.entries(value);
  return entries.flatMap(([key, each]) => textsIn(each, key, depth + 1));
}

/**
 * Where the parameters of a call may come from (I23): what its request says, in tags such as `taint:web`, and what its session had
 * seen when the call was made.
 */
export function taintOf(
  tags: readonly string[] | undefined,
  { taint = [] }: Pick<SessionRecord, 'taint'> = {},
  madeAtMs = Number.POSITIVE_INFINITY,
): readonly string[] {
  if (tags === undefined && taint.length === 0) return [];
  const said = (tags ?? []).filter((tag) => tag.startsWith('taint:')).map((tag) => tag.slice('taint:'.length));
  const seen = taint.filter(({ atMs }) => atMs <= madeAtMs).map(({ source }) => source);
  return [...new Set([...said, ...seen])];
}
