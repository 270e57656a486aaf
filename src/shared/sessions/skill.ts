/**
 * Skills: instructions for the model that plans, with the tools that go with them. A skill is a record in the registry, or a `SKILL.md`.
 * `skill-rule.ts` applies them to a session.
 */
import { z } from 'zod';
import { type Issue, invalidInput, PawlError } from '../errors/failure.ts';
import { WITH_RECEIVED, zodIssues } from '../schema/zod-issues.ts';
import { isObject } from '../util/json/json-types.ts';
import { asText } from '../util/text/quote-value.ts';

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;
const NAME_RULE = 'letters, digits, _, . and -';

/** Names, qualified names or patterns with `*`; in a file also one text with commas or spaces. */
const toolNames = z
  .preprocess(
    (value) => (typeof value === 'string' ? value.split(/[\s,]+/).filter((name) => name !== '') : value),
    z.array(z.string().regex(/^[A-Za-z0-9_.*-]{1,256}$/, 'must be a tool’s name, or a pattern with *')).max(256),
  )
  .readonly();

/** The body of `PUT /v1/skills/{name}`. */
export const skillSchema = z.strictObject({
  description: z.string().min(1).max(2_048),
  instructions: z.string().max(262_144).default(''),
  /** False: no session can be opened with it. */
  enabled: z.boolean().default(true),
  /** False: it can be switched off and on, and otherwise neither changed nor removed. */
  mutable: z.boolean().default(true),
  /** The only tools of a session with this skill, beside those of its other skills. */
  allowedTools: toolNames.optional(),
  /** A session cannot be opened with this skill where one of these tools is missing. */
  requiredTools: toolNames.default([]),
  forbiddenTools: toolNames.default([]),
  /** A higher number comes first. */
  priority: z.number().int().min(-1_000).max(1_000).default(0),
  /** Words of a task that call for the skill. */
  triggers: z.array(z.string().min(1).max(256)).max(64).readonly().default([]),
});
export type PutSkill = z.input<typeof skillSchema>;

export interface SkillRecord extends Readonly<z.output<typeof skillSchema>> {
  readonly name: string;
  /** `registry`, or the file that it was read from. */
  readonly source: string;
  readonly updatedAtMs: number;
  /** The writer of the record; absent for a file. */
  readonly updatedBy?: string;
}

/** Throws `CONTRACT_INVALID` with every fault. */
export function skillRecord(
  name: string,
  input: unknown,
  origin: Pick<SkillRecord, 'source' | 'updatedAtMs' | 'updatedBy'>,
): SkillRecord {
  const parsed = skillSchema.safeParse(input, WITH_RECEIVED);
  if (NAME.test(name) && parsed.success) return { ...parsed.data, name, ...origin };
  const issues: Issue[] = parsed.success ? [] : zodIssues(parsed.error);
  if (!NAME.test(name)) issues.unshift({ path: 'name', message: `must be ${NAME_RULE}; got ${JSON.stringify(name)}` });
  throw invalidInput(`The skill ${JSON.stringify(name)} (${origin.source}) is not usable`, issues, 'the skill');
}

const FIELDS: Readonly<Record<string, keyof PutSkill>> = {
  description: 'description',
  enabled: 'enabled',
  mutable: 'mutable',
  priority: 'priority',
  triggers: 'triggers',
  'allowed-tools': 'allowedTools',
  'required-tools': 'requiredTools',
  'forbidden-tools': 'forbiddenTools',
};

/** The parts of a `SKILL.md`: front matter between two lines of `---`, then the instructions. Throws `CONTRACT_INVALID`. */
export function skillFileParts(
  text: string,
  source: string,
): { readonly front: string; readonly instructions: string } {
  const [, front, instructions = ''] =
    /^\uFEFF?---[ \t]*\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n([\s\S]*))?$/.exec(text) ?? [];
  if (front === undefined) throw invalidSkillFile(source, 'it must begin with front matter between two lines of ---');
  return { front, instructions: instructions.trim() };
}

/** A skill from a file's front matter, read as YAML, and its instructions. Throws `CONTRACT_INVALID`. */
export function skillFromFile(
  fields: unknown,
  instructions: string,
  origin: Pick<SkillRecord, 'source' | 'updatedAtMs'>,
): SkillRecord {
  if (!isObject(fields)) throw invalidSkillFile(origin.source, 'its front matter must name fields');
  const { name, ...rest } = fields;
  // Other programs keep fields of their own in the same file, so unknown fields are left out.
  const knownFields = Object.entries(rest).flatMap(([key, value]) => {
    const field = FIELDS[key.replaceAll('_', '-')];
    return field === undefined ? [] : [[field, value] as const];
  });
  return skillRecord(asText(name ?? ''), { ...Object.fromEntries(knownFields), instructions }, origin);
}

export function invalidSkillFile(source: string, message: string): PawlError {
  return new PawlError('CONTRACT_INVALID', `${source} is not a valid SKILL.md: ${message}.`, {
    issues: [{ path: source, message }],
  });
}

/** Compares skills: the highest priority first. */
export function byPriority(
  a: Pick<SkillRecord, 'name' | 'priority'>,
  b: Pick<SkillRecord, 'name' | 'priority'>,
): number {
  return b.priority - a.priority || (a.name < b.name ? -1 : 1);
}

/** The enabled skills with a trigger that occurs in a text, the highest priority first. */
export function triggeredBy(text: string, skills: readonly SkillRecord[]): readonly SkillRecord[] {
  const lower = text.toLowerCase();
  return skills
    .filter(({ enabled, triggers }) => enabled && triggers.some((trigger) => lower.includes(trigger.toLowerCase())))
    .sort(byPriority);
}
