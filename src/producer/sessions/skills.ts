/** The skills of sessions: from records, and from `SKILL.md` files in the configured folders. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { PawlError, reasonOf } from '../../shared/errors/failure.ts';
import {
  byPriority,
  invalidSkillFile,
  type PutSkill,
  type SkillRecord,
  skillFileParts,
  skillFromFile,
  skillRecord,
  triggeredBy,
} from '../../shared/sessions/skill.ts';
import { matchesTool } from '../../shared/sessions/skill-rule.ts';
import type { SkillRecords } from '../../shared/store/sessions/skills.ts';
import type { ToolReference } from '../../shared/tools/tool.ts';
import { didYouMean } from '../../shared/util/text/nearest.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';

interface SkillsDeps {
  readonly records: SkillRecords;
  readonly folders: readonly string[];
  readonly audit: RecordAudit;
  now(): Promise<number>;
}

const MAX_FILE_BYTES = 512 * 1_024;

export class Skills {
  readonly #deps: SkillsDeps;

  constructor(deps: SkillsDeps) {
    this.#deps = deps;
  }

  /** All skills, the highest priority first; a record replaces a file of its name. Throws `CONTRACT_INVALID` for a broken file. */
  async list(): Promise<readonly SkillRecord[]> {
    const [files, records] = await Promise.all([skillFiles(this.#deps.folders), this.#deps.records.list()]);
    const byName = new Map([...files, ...records].map((skill) => [skill.name, skill]));
    return [...byName.values()].sort(byPriority);
  }

  async triggeredBy(task: string): Promise<readonly SkillRecord[]> {
    return triggeredBy(task, await this.list());
  }

  /** Throws `NOT_FOUND`. */
  async show(name: string): Promise<SkillRecord> {
    const skill = (await this.list()).find((each) => each.name === name);
    if (skill === undefined) throw new PawlError('NOT_FOUND', `There is no skill ${quoteValue(name)}.`);
    return skill;
  }

  /** The skills that a session names, the highest priority first. Throws `CONTRACT_INVALID` for one that does not exist, or is disabled. */
  async named(names: readonly string[]): Promise<readonly SkillRecord[]> {
    if (names.length === 0) return [];
    const skills = await this.list();
    return names.map((name, index) => enabledSkill(name, index, skills)).sort(byPriority);
  }

  /** Writes a skill's record. Throws `CONTRACT_INVALID`, and `PERMISSION_DENIED` for one that is protected. */
  async put(name: string, skill: PutSkill, by = 'local'): Promise<SkillRecord> {
    const origin = { source: 'registry', updatedAtMs: await this.#deps.now(), updatedBy: by };
    const record = skillRecord(name, skill, origin);
    const previous = await this.#deps.records.read(name);
    if (previous?.mutable === false && !isSwitch(previous, record)) throw isProtected(name);
    await this.#deps.records.write(record);
    await this.#recordChange(name, 'declared', by);
    return record;
  }

  /** Throws `NOT_FOUND`, and `PERMISSION_DENIED` for one that is protected. */
  async remove(name: string, by = 'local'): Promise<void> {
    if ((await this.#deps.records.read(name))?.mutable === false) throw isProtected(name);
    if (!(await this.#deps.records.remove(name)))
      throw new PawlError('NOT_FOUND', `There is no record of a skill ${quoteValue(name)}.`);
    await this.#recordChange(name, 'removed', by);
  }

  async #recordChange(skill: string, action: 'declared' | 'removed', by: string): Promise<void> {
    await this.#deps.audit({ type: 'registry-changed', tool: skill, kind: 'skill', action, by });
  }
}

/** Throws `CONTRACT_INVALID` when the session may not call a tool that its skills require. */
export function checkRequired(skills: readonly SkillRecord[], published: readonly ToolReference[]): void {
  const issues = skills.flatMap(({ name, requiredTools }) => {
    const missing = requiredTools.filter((pattern) => !published.some((tool) => matchesTool(pattern, tool)));
    return missing.length === 0 ? [] : [{ path: 'skills', message: `${name} requires ${missing.join(', ')}` }];
  });
  if (issues.length === 0) return;
  const listed = issues.map(({ message }) => message).join('; ');
  throw new PawlError('CONTRACT_INVALID', `The session may not call what its skills require: ${listed}.`, { issues });
}

function enabledSkill(name: string, index: number, skills: readonly SkillRecord[]): SkillRecord {
  const skill = skills.find((each) => each.name === name);
  if (skill?.enabled === true) return skill;
  const enabledNames = skills.filter(({ enabled }) => enabled).map((each) => each.name);
  const hint = didYouMean(name, enabledNames);
  const message =
    skill === undefined ? `is no skill: ${JSON.stringify(name)}${hint && `; ${hint}`}` : `is disabled: ${name}`;
  throw new PawlError('CONTRACT_INVALID', `The session cannot be opened: skills.${index} ${message}.`, {
    issues: [{ path: `skills.${index}`, message }],
  });
}

/** Whether only `enabled` differs. */
function isSwitch(before: SkillRecord, after: SkillRecord): boolean {
  const comparable = ({ enabled: _, updatedAtMs: __, updatedBy: ___, ...skill }: SkillRecord) => JSON.stringify(skill);
  return comparable(before) === comparable(after);
}

function isProtected(name: string): PawlError {
  return new PawlError('PERMISSION_DENIED', `The skill ${name} is protected from changes (mutable is false).`);
}

/** `FOLDER/SKILL.md` and `FOLDER/NAME/SKILL.md`, in order. */
async function skillFiles(folders: readonly string[]): Promise<readonly SkillRecord[]> {
  const skills: SkillRecord[] = [];
  for (const folder of folders) {
    const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
    // A symbolic link is resolved when its file is read.
    const subfolders = entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink()).map(({ name }) => name);
    for (const subfolder of ['', ...subfolders.sort()]) {
      const skill = await skillFile(join(folder, subfolder, 'SKILL.md'));
      if (skill !== undefined) skills.push(skill);
    }
  }
  return skills;
}

async function skillFile(file: string): Promise<SkillRecord | undefined> {
  const info = await stat(file).catch(() => undefined);
  if (info?.isFile() !== true) return undefined;
  if (info.size > MAX_FILE_BYTES)
    throw invalidSkillFile(file, `it has ${info.size} bytes; at most ${MAX_FILE_BYTES} are read`);
  const { front, instructions } = skillFileParts(await readFile(file, 'utf8'), file);
  // The YAML parser is loaded on demand: most processes read no skill file, and start faster without it.
  const { parse: parseYaml } = await import('yaml');
  let fields: unknown;
  try {
    fields = parseYaml(front, { maxAliasCount: 0 });
  } catch (error) {
    const [first = ''] = reasonOf(error).split('\n');
    throw invalidSkillFile(file, `its front matter is not YAML: ${first}`);
  }
  return skillFromFile(fields, instructions, { source: file, updatedAtMs: Math.round(info.mtimeMs) });
}
