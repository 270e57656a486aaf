/**
 * Finding files and lines below the root. The walk goes through open folders, as every other way into the workspace does, follows
 * no symbolic link, and leaves out what `.gitignore` files leave out. Patterns run on RE2, whose time grows with the text only.
 * Where a scout has named the files worth a look (`ripgrep.ts`), the walk goes to these alone.
 */
import { constants } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import createIgnore, { type Ignore } from 'ignore';
import { RE2JS } from 're2js';
import { PawlError } from '../shared/failure.ts';
import { isLinear, linearPattern } from '../shared/pattern.ts';
import { nextTurn } from '../shared/time.ts';
import type { WorkspaceFinding, WorkspaceLine, WorkspaceSearch } from '../shared/tool.ts';
import { globFits, refuseCostlyGlob } from './glob.ts';
import { isProtected, isProtectedFile } from './protected-paths.ts';
import { ripgrep, type Scout } from './ripgrep.ts';
import { absent, at, descriptorPath, enter, entry, type Folder, hasDescriptorPaths, lookUp } from './workspace-walk.ts';

const DEFAULT_LIMIT = 1_000;
const MAX_FILE_BYTES = 8 * 1024 * 1024;
/** Every path is held against every line of an ignore file. */
const MAX_IGNORE_BYTES = 128 * 1024;
/** Of such a line. */
const MAX_IGNORE_LENGTH = 1_000;
/** How long the search may keep the event loop to itself between two files. */
const MAX_TURN_MS = 20;
/** Of folders in each other: all of them are open on the way. */
const MAX_DEPTH = 256;
const MAX_LINE_LENGTH = 500;
const MAX_LINES_WITH_CONTEXT = 5_000;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
/** Never of interest, and often large. */
const ALWAYS_LEFT_OUT = ['.git'];
/** Of two that disagree the first counts; of one name, that of the deeper folder. As in ripgrep. */
const IGNORE_FILES = ['.rgignore', '.ignore', '.gitignore'] as const;

/** Errors: `INVALID_PARAMS` for a pattern that RE2 does not know, `NOT_FOUND`, and the signal's reason. */
export async function searchWithin(
  root: string,
  search: WorkspaceSearch,
  signal: AbortSignal,
  scout: Scout = ripgrep,
): Promise<WorkspaceFinding> {
  const task = new SearchTask(search, signal);
  const path = search.path ?? '.';
  await at(root, path, 'keep', async (location) => {
    const { folder, name, stats, realRoot } = location;
    if (name !== undefined && stats === undefined) throw absent(path);
    const prefix = relative(realRoot, folder.path);
    if (name !== undefined && stats?.isFile()) return task.file(folder, name, join(prefix, name), stats);
    const start = await enter(location, path);
    try {
      const named = hasDescriptorPaths ? await scout(descriptorPath(start), search, signal) : undefined;
      if (named !== undefined) await task.lookOnlyAt(named);
      await task.folder(start, relative(realRoot, start.path), '', []);
    } finally {
      if (start !== folder) await start.handle.close();
    }
  });
  return task.finding();
}

/** An ignore file of one folder, whose patterns are relative to it. */
interface IgnoreLevel {
  readonly name: (typeof IGNORE_FILES)[number];
  readonly below: string;
  readonly rules: Ignore;
}

class SearchTask {
  readonly #search: WorkspaceSearch;
  readonly #signal: AbortSignal;
  readonly #pattern: RE2JS | undefined;
  readonly #limit: number;
  readonly #files: { path: string; bytes: number; modifiedAtMs: number }[] = [];
  readonly #lines: WorkspaceLine[] = [];
  #matches = 0;
  #truncated = false;
  /** Files, and the folders that lead to them, from where the search begins. */
  #only: ReadonlySet<string> | undefined;
  #turnSinceMs = performance.now();

  constructor(search: WorkspaceSearch, signal: AbortSignal) {
    this.#search = search;
    this.#signal = signal;
    this.#limit = search.limit ?? DEFAULT_LIMIT;
    if (search.glob !== undefined) refuseCostlyGlob(search.glob);
    this.#pattern = search.pattern === undefined ? undefined : compile(search.pattern, search);
  }

  async lookOnlyAt(paths: readonly string[]): Promise<void> {
    const { glob } = this.#search;
    const only = new Set<string>();
    for (const path of paths) {
      await this.#turn();
      if (glob !== undefined && !globFits(path, glob)) continue;
      for (let each = path; each !== '.' && !only.has(each); each = dirname(each)) only.add(each);
    }
    this.#only = only;
  }

  /** Lets others have a turn, and the search be ended, where names and patterns take long to compare. */
  async #turn(): Promise<void> {
    if (performance.now() - this.#turnSinceMs < MAX_TURN_MS) return;
    await nextTurn();
    this.#signal.throwIfAborted();
    this.#turnSinceMs = performance.now();
  }

  finding(): WorkspaceFinding {
    return { files: this.#files, lines: this.#lines, truncated: this.#truncated };
  }

  /** `path` from the root, `below` from where the search begins. */
  async folder(folder: Folder, path: string, below: string, above: readonly IgnoreLevel[]): Promise<void> {
    this.#signal.throwIfAborted();
    const entries = await readdir(hasDescriptorPaths ? descriptorPath(folder) : folder.path, { withFileTypes: true });
    const levels = this.#search.includeIgnored ? above : await withIgnoreFile(folder, below, entries, above);
    for (const each of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (this.#truncated) return;
      await this.#turn();
      const [from, inRoot] = [join(below, each.name), join(path, each.name)];
      if (this.#only?.has(from) === false) continue;
      if (this.#isLeftOut(each.name, from, each.isDirectory(), levels)) continue;
      if (each.isDirectory()) {
        if (isProtected(join(folder.path, each.name)) || from.split(sep).length > MAX_DEPTH) continue;
        const next = await open(entry(folder, each.name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(() => undefined);
        if (next === undefined) continue; // gone, or something else, since the folder was read
        try {
          await this.folder({ handle: next, path: join(folder.path, each.name) }, inRoot, from, levels);
        } finally {
          await next.close();
        }
      } else if (each.isFile() && !isProtectedFile(join(folder.path, each.name))) {
        const { glob } = this.#search;
        if (glob !== undefined && !globFits(from, glob)) continue;
        const stats = await lookUp(folder, each.name);
        if (stats?.isFile()) await this.file(folder, each.name, inRoot, stats);
      }
    }
  }

  #isLeftOut(name: string, from: string, isDirectory: boolean, levels: readonly IgnoreLevel[]): boolean {
    if (ALWAYS_LEFT_OUT.includes(name)) return true;
    if (this.#search.includeIgnored) return false;
    if (name.startsWith('.')) return true;
    for (const file of IGNORE_FILES) {
      for (const { below, rules } of levels.filter((level) => level.name === file).reverse()) {
        const { ignored, unignored } = rules.test(relative(below, from) + (isDirectory ? '/' : ''));
        if (ignored || unignored) return ignored;
      }
    }
    return false;
  }

  async file(folder: Folder, name: string, path: string, stats: { size: number; mtimeMs: number }): Promise<void> {
    const found = { path, bytes: stats.size, modifiedAtMs: Math.round(stats.mtimeMs) };
    if (this.#pattern === undefined) {
      this.#add(() => this.#files.push(found));
      return;
    }
    if (stats.size > MAX_FILE_BYTES) return;
    const handle = await open(entry(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(() => undefined);
    if (handle === undefined) return;
    try {
      const bytes = await handle.readFile();
      if (!bytes.subarray(0, 8_192).includes(0)) this.#grep(found, bytes.toString('utf8'));
    } finally {
      await handle.close();
    }
  }

  #grep(file: { path: string; bytes: number; modifiedAtMs: number }, text: string): void {
    const pattern = this.#pattern;
    if (pattern === undefined) return;
    const lines = text.split(/\r?\n/);
    if (lines.at(-1) === '') lines.pop();
    const context = this.#search.contextLines ?? 0;
    let told = -1;
    let hits = 0;
    for (const [index, line] of lines.entries()) {
      if (!pattern.matcher(line).find()) continue;
      if (this.#matches >= this.#limit || this.#lines.length > MAX_LINES_WITH_CONTEXT) {
        this.#truncated = true;
        break;
      }
      this.#matches += 1;
      hits += 1;
      for (let at = Math.max(told + 1, index - context); at <= Math.min(index + context, lines.length - 1); at += 1) {
        // A line told as context of an earlier match that matches itself is told once, as a match.
        const isMatch = at === index || pattern.matcher(lines[at] ?? '').find();
        if (at > index && isMatch) break;
        this.#lines.push({ path: file.path, line: at + 1, text: clipped(lines[at] ?? ''), isMatch });
        told = at;
      }
    }
    if (hits > 0) this.#files.push(file);
  }

  #add(push: () => void): void {
    if (this.#files.length >= this.#limit) this.#truncated = true;
    else push();
  }
}

async function withIgnoreFile(
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
      if ((await handle.stat()).size <= MAX_IGNORE_BYTES)
        levels = [...levels, { name, below, rules: ignoreRules(await handle.readFile('utf8')) }];
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

function compile(pattern: string, { ignoreCase, literal }: WorkspaceSearch): RE2JS {
  try {
    return RE2JS.compile(literal ? RE2JS.quote(pattern) : pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new PawlError(
      'INVALID_PARAMS',
      `${JSON.stringify(pattern)} is not a pattern of RE2 (no look-around, no back-references): ${why}.`,
      {
        issues: [{ path: 'pattern', message: why }],
        cause: error,
      },
    );
  }
}

function clipped(line: string): string {
  return line.length <= MAX_LINE_LENGTH
    ? line
    : `${line.slice(0, MAX_LINE_LENGTH)}… [${line.length - MAX_LINE_LENGTH} more characters]`;
}
