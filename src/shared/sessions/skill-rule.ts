/**
 * What skills do to a session (I5, I6): they leave it fewer tools, and never more. The rule is fixed when the session is opened, and
 * signed with it; the sessions below have it, too.
 */

import { matches } from '../util/wildcard.ts';
import type { SkillRecord } from './skill.ts';

export interface SkillRule {
  /** The skills that it comes from. */
  readonly skills: readonly string[];
  /** Absent: all but what is forbidden. */
  readonly allowed?: readonly string[];
  readonly forbidden: readonly string[];
}

type Named = { readonly namespace?: string | undefined; readonly name: string };

/** What a session with these skills may call at most; undefined when they say nothing about it. */
export function skillRule(skills: readonly SkillRecord[]): SkillRule | undefined {
  const allowing = skills.filter(({ allowedTools }) => allowedTools !== undefined);
  const forbidden = skills.flatMap(({ forbiddenTools }) => forbiddenTools);
  if (allowing.length === 0 && forbidden.length === 0) return undefined;
  const allowed = allowing.flatMap(({ allowedTools = [] }) => allowedTools);
  const required = skills.flatMap(({ requiredTools }) => requiredTools);
  return {
    skills: skills.map(({ name }) => name),
    ...(allowing.length === 0 ? {} : { allowed: [...allowed, ...required] }),
    forbidden,
  };
}

/** Why a session's skills refuse a tool; undefined when they do not. Every rule holds. */
export function refusedBySkills(rules: readonly SkillRule[] | undefined, tool: Named): string | undefined {
  for (const { skills, allowed, forbidden } of rules ?? []) {
    const named = `the session’s skills (${skills.join(', ')})`;
    if (forbidden.some((pattern) => names(pattern, tool))) return `${named} forbid it`;
    if (allowed !== undefined && !allowed.some((pattern) => names(pattern, tool))) return `${named} do not allow it`;
  }
  return undefined;
}

/** Files of other programs write `Read` and `Shell` for what is `read` and `shell` here (A20). */
export function names(pattern: string, { namespace = 'tools', name }: Named): boolean {
  const lower = pattern.toLowerCase();
  return matches(lower, name.toLowerCase()) || matches(lower, `${namespace}.${name}`.toLowerCase());
}
