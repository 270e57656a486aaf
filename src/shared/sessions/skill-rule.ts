/**
 * The rule that skills set for a session's tools: a skill can take tools away, and never add one. The rule is fixed and signed when the
 * session is opened, and the sessions below inherit it.
 */
import { matches } from '../util/wildcard.ts';
import type { SkillRecord } from './skill.ts';

export interface SkillRule {
  /** The skills that it comes from. */
  readonly skills: readonly string[];
  /** The only tools that are allowed; absent for all but the forbidden ones. */
  readonly allowed?: readonly string[];
  readonly forbidden: readonly string[];
}

type ToolName = { readonly namespace?: string | undefined; readonly name: string };

/** The rule of a session with these skills; undefined when they restrict nothing. */
export function skillRule(skills: readonly SkillRecord[]): SkillRule | undefined {
  const restricting = skills.filter(({ allowedTools }) => allowedTools !== undefined);
  const forbidden = skills.flatMap(({ forbiddenTools }) => forbiddenTools);
  if (restricting.length === 0 && forbidden.length === 0) return undefined;
  const allowed = restricting.flatMap(({ allowedTools = [] }) => allowedTools);
  const required = skills.flatMap(({ requiredTools }) => requiredTools);
  return {
    skills: skills.map(({ name }) => name),
    ...(restricting.length === 0 ? {} : { allowed: [...allowed, ...required] }),
    forbidden,
  };
}

/** The reason why a session's skills refuse a tool; undefined when every rule allows it. */
export function skillsRefusal(rules: readonly SkillRule[] | undefined, tool: ToolName): string | undefined {
  for (const { skills, allowed, forbidden } of rules ?? []) {
    const subject = `the session’s skills (${skills.join(', ')})`;
    if (forbidden.some((pattern) => matchesTool(pattern, tool))) return `${subject} forbid it`;
    if (allowed !== undefined && !allowed.some((pattern) => matchesTool(pattern, tool)))
      return `${subject} do not allow it`;
  }
  return undefined;
}

/**
 * Whether a pattern matches a tool, upper and lower case alike: skills of other programs write `Read` and `Shell` for `read` and `shell`.
 */
export function matchesTool(pattern: string, { namespace = 'tools', name }: ToolName): boolean {
  const lower = pattern.toLowerCase();
  return matches(lower, name.toLowerCase()) || matches(lower, `${namespace}.${name}`.toLowerCase());
}
