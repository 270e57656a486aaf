/** Applies the ignore files of a workspace to its searches. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { relative, sep } from 'node:path';
import createIgnore, { type Ignore } from 'ignore';
import { isLinear, linearPattern } from '../../shared/schema/linear-pattern.ts';
import { enterFolder, entryPath, type Folder, withLocation } from './safe-path.ts';

/** The largest ignore file. Every path is compared with every line of it. */
const MAX_IGNORE_BYTES = 128 * 1024;
/** The longest line of such a file. */
const MAX_IGNORE_LENGTH = 1_000;
/** The files in order of precedence; of two files of one name, the deeper folder's counts. Both as in ripgrep. */
const IGNORE_FILES = ['.rgignore', '.ignore', '.gitignore'] as const;

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** An ignore file of one folder, whose patterns are relative to it. */
export interface IgnoreLevel {
  readonly name: (typeof IGNORE_FILES)[number];
  /** The folder's path from the root. */
  readonly folder: string;
  readonly rules: Ignore;
  /** A rule begins with "!". */
  readonly hasNegation: boolean;
}

/** Whether the ignore files exclude a path from the root; undefined when no rule mentions it. */
export function isIgnored(path: string, isDirectory: boolean, levels: readonly IgnoreLevel[]): boolean | undefined {
  for (const file of IGNORE_FILES) {
    for (const { folder, rules } of levels.filter((level) => level.name === file).reverse()) {
      const { ignored, unignored } = rules.test(relative(folder, path) + (isDirectory ? '/' : ''));
      if (ignored || unignored) return ignored;
    }
  }
  return undefined;
}

/** Reads the ignore files of the root, and of the folders between it and `path`. */
export async function readParentLevels(root: string, path: string): Promise<readonly IgnoreLevel[]> {
  const names = path === '' ? [] : path.split(sep);
  const files = IGNORE_FILES.map((name) => ({ name }));
  let levels: readonly IgnoreLevel[] = [];
  for (const index of names.keys()) {
    const above = names.slice(0, index).join(sep);
    await withLocation(root, above || '.', 'keep', async (location) => {
      const folder = await enterFolder(location, above);
      try {
        levels = await withIgnoreFile(folder, above, files, levels);
      } finally {
        if (folder !== location.folder) await folder.handle.close();
      }
    });
  }
  return levels;
}

/** Adds a folder's own ignore files to the levels above. It opens only the files among `entries`. */
export async function withIgnoreFile(
  folder: Folder,
  folderPath: string,
  entries: readonly { readonly name: string }[],
  above: readonly IgnoreLevel[],
): Promise<readonly IgnoreLevel[]> {
  let levels = above;
  for (const name of IGNORE_FILES) {
    if (!entries.some((each) => each.name === name)) continue;
    const handle = await open(entryPath(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(() => undefined);
    if (handle === undefined) continue;
    try {
      if ((await handle.stat()).size > MAX_IGNORE_BYTES) continue;
      const text = await handle.readFile('utf8');
      levels = [...levels, { name, folder: folderPath, rules: ignoreRules(text), hasNegation: /^\s*!/m.test(text) }];
    } finally {
      await handle.close();
    }
  }
  return levels;
}

/** The library's rules, which its types do not show. `regex` is created at the first access. */
interface Rules {
  readonly _rules: { readonly _rules: readonly { readonly pattern: string; readonly regex: RegExp }[] };
}

/**
 * The authors of a workspace's files write its ignore files, too. With a few stars in one line, the library's own
 * expressions would backtrack for hours on one long name. Lines with several stars run on RE2; very long lines are
 * dropped.
 */
function ignoreRules(text: string): Ignore {
  const lines = text.split(/\r?\n/).filter((line) => line.length <= MAX_IGNORE_LENGTH);
  // Names that differ only in case are different files, as in ripgrep.
  const rules = createIgnore({ ignorecase: false }).add(lines);
  for (const rule of (rules as unknown as Rules)._rules._rules) {
    const { flags } = rule.regex;
    // The library takes `[!a]` for a class of two characters.
    const source = rule.regex.source.replaceAll(/(?<!\\)\[!/g, '[^/');
    if (source !== rule.regex.source)
      Object.defineProperty(rule, 'regex', { value: new RegExp(source, flags), configurable: true });
    if ((rule.pattern.match(/\*+/g)?.length ?? 0) < 2) continue;
    // The expression's lookahead stands at its end, where a group means the same.
    const pattern = `${flags === '' ? '' : `(?${flags})`}${source.replace(/\(\?=([^()]*)\)$/, '(?:$1)')}`;
    const expression = isLinear(pattern) ? linearPattern(pattern) : { test: () => false };
    Object.defineProperty(rule, 'regex', { value: expression });
  }
  return rules;
}
