/** What the ignore files of a workspace leave out of its searches. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { relative, sep } from 'node:path';
import createIgnore, { type Ignore } from 'ignore';
import { isLinear, linearPattern } from '../../shared/schema/linear-pattern.ts';
import { at, enter, entry, type Folder } from './safe-path.ts';

/** Every path is held against every line of an ignore file. */
const MAX_IGNORE_BYTES = 128 * 1024;
/** Of such a line. */
const MAX_IGNORE_LENGTH = 1_000;
/** Of two that disagree the first counts; of one name, that of the deeper folder. As in ripgrep. */
const IGNORE_FILES = ['.rgignore', '.ignore', '.gitignore'] as const;

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** An ignore file of one folder, whose patterns are relative to it. */
export interface IgnoreLevel {
  readonly name: (typeof IGNORE_FILES)[number];
  /** The folder, from the root. */
  readonly below: string;
  readonly rules: Ignore;
  /** A rule begins with "!". */
  readonly bringsBack: boolean;
}

/** What the ignore files say of a path from the root; undefined when they say nothing. */
export function isIgnored(path: string, isDirectory: boolean, levels: readonly IgnoreLevel[]): boolean | undefined {
  for (const file of IGNORE_FILES) {
    for (const { below, rules } of levels.filter((level) => level.name === file).reverse()) {
      const { ignored, unignored } = rules.test(relative(below, path) + (isDirectory ? '/' : ''));
      if (ignored || unignored) return ignored;
    }
  }
  return undefined;
}

/** The ignore files of the root, and of the folders between it and a folder. */
export async function levelsAbove(root: string, path: string): Promise<readonly IgnoreLevel[]> {
  const names = path === '' ? [] : path.split(sep);
  const files = IGNORE_FILES.map((name) => ({ name }));
  let levels: readonly IgnoreLevel[] = [];
  for (const index of names.keys()) {
    const above = names.slice(0, index).join(sep);
    await at(root, above || '.', 'keep', async (location) => {
      const folder = await enter(location, above);
      try {
        levels = await withIgnoreFile(folder, above, files, levels);
      } finally {
        if (folder !== location.folder) await folder.handle.close();
      }
    });
  }
  return levels;
}

/** Those above, and the ignore files of a folder. Only those among `entries` are looked for. */
export async function withIgnoreFile(
  folder: Folder,
  below: string,
  entries: readonly { readonly name: string }[],
  above: readonly IgnoreLevel[],
): Promise<readonly IgnoreLevel[]> {
  let levels = above;
  for (const name of IGNORE_FILES) {
    if (!entries.some((each) => each.name === name)) continue;
    const handle = await open(entry(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(() => undefined);
    if (handle === undefined) continue;
    try {
      if ((await handle.stat()).size > MAX_IGNORE_BYTES) continue;
      const text = await handle.readFile('utf8');
      levels = [...levels, { name, below, rules: ignoreRules(text), bringsBack: /^\s*!/m.test(text) }];
    } finally {
      await handle.close();
    }
  }
  return levels;
}

/** What the library's types do not show of its rules. `regex` is made when it is asked for first. */
interface Rules {
  readonly _rules: { readonly _rules: readonly { readonly pattern: string; readonly regex: RegExp }[] };
}

/**
 * Whoever wrote the files of a workspace wrote its ignore files, too: with a few stars in one line, the library's own expressions
 * would try for hours on one long name. Lines with several run on RE2, very long ones not at all.
 */
function ignoreRules(text: string): Ignore {
  const lines = text.split(/\r?\n/).filter((line) => line.length <= MAX_IGNORE_LENGTH);
  const rules = createIgnore().add(lines);
  for (const rule of (rules as unknown as Rules)._rules._rules) {
    if ((rule.pattern.match(/\*+/g)?.length ?? 0) < 2) continue;
    const { source, flags } = rule.regex;
    // What it looks ahead for stands at its end.
    const pattern = `(?${flags})${source.replace(/\(\?=([^()]*)\)$/, '(?:$1)')}`;
    const expression = isLinear(pattern) ? linearPattern(pattern) : { test: () => false };
    Object.defineProperty(rule, 'regex', { value: expression });
  }
  return rules;
}
