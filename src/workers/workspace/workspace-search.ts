/**
 * Finds files and lines below the root. The walk goes through open folders, as every other access to the workspace
 * does, follows no symbolic link, and excludes what `.gitignore` files exclude. Patterns run on RE2, whose time grows
 * only linearly with the text. Where ripgrep has named candidate files (`ripgrep.ts`), the walk visits these alone.
 */
import { constants } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative, sep } from 'node:path';
import type { RE2JS } from 're2js';
import { PawlError, reasonOf } from '../../shared/errors/failure.ts';
import type { WorkspaceFinding, WorkspaceLine, WorkspaceSearch } from '../../shared/tools/capabilities.ts';
import { utf16Of } from '../../shared/util/text/charset.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { yieldToEventLoop } from '../../shared/util/time.ts';
import { globMatches, hiddenNamesOf, normalizeGlob } from './glob.ts';
import { isProtected, isProtectedFile } from './protected-paths.ts';
import { type CandidateFinder, ripgrep } from './ripgrep.ts';
import {
  absentError,
  descriptorPath,
  entryPath,
  type Folder,
  hasDescriptorPaths,
  inFolder,
  MAX_DEPTH,
  statEntry,
  withLocation,
} from './safe-path.ts';
import {
  type IgnoreLevel,
  isBelowIgnored,
  isIgnored,
  readLevelsAboveRoot,
  readParentLevels,
  withIgnoreFile,
} from './workspace-ignore.ts';

const require = createRequire(import.meta.url);

const DEFAULT_LIMIT = 1_000;
const MAX_FILE_BYTES = 8 * 1024 * 1024;
/** How long the search may block the event loop. */
const MAX_BLOCK_MS = 20;
/**
 * At worst RE2 takes a step of up to 100 ns per instruction of the pattern and per character. This many steps pass
 * between two checks of the clock.
 */
const STEPS_BETWEEN_CHECKS = 200_000;
/** The most steps of one line, within which RE2 cannot be interrupted. */
const MAX_STEPS_OF_LINE = 2_000_000;
const MAX_INSTRUCTIONS = 5_000;
/** A program of at most this many instructions has so few states that RE2's table holds all of them; a character then takes one step. */
const SMALL_PROGRAM = 12;
/** Lines of at least this length are timed. */
const TIMED_LINE_LENGTH = 64;
const TRIAL_MS = 100;
const MAX_SLOW_TRIALS = 2;
const MAX_TABLE_STEP_MS = 20e-6;
/** The cost of a line beside its characters, in steps. */
const LINE_OVERHEAD = 16;
const MAX_LINE_LENGTH = 500;
const MAX_LINES_WITH_CONTEXT = 5_000;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
/** Folders that no search visits: they are never of interest, and often large. */
const ALWAYS_EXCLUDED = ['.git'];
/** Throws `INVALID_PARAMS` for a pattern that RE2 does not know, `NOT_FOUND`, and the signal's reason. */
export async function searchWithin(
  root: string,
  given: WorkspaceSearch,
  signal: AbortSignal,
  findCandidates: CandidateFinder = ripgrep,
): Promise<WorkspaceFinding> {
  const search = given.glob === undefined ? given : { ...given, glob: normalizeGlob(given.glob) };
  const task = new SearchTask(search, signal);
  const path = search.path ?? '.';
  await withLocation(root, path, 'keep', async (location) => {
    const { folder, name, stats, realRoot } = location;
    if (name !== undefined && stats === undefined) throw absentError(path);
    const prefix = relative(realRoot, folder.path);
    if (name !== undefined && stats?.isFile()) return task.namedFile(folder, name, join(prefix, name), stats);
    await inFolder(location, path, async (start) => {
      const inRoot = relative(realRoot, start.path);
      const rules = search.includeIgnored
        ? []
        : await readParentLevels(root, inRoot, await readLevelsAboveRoot(realRoot));
      // A caller that names an ignored folder wants to see its content.
      const above = isBelowIgnored(inRoot, rules) ? [] : rules;
      // ripgrep reads no rules from above. If those re-include something, it must not exclude anything.
      const ripgrepSearch = above.some(({ hasNegation }) => hasNegation) ? { ...search, includeIgnored: true } : search;
      const candidates = hasDescriptorPaths
        ? await findCandidates(descriptorPath(start), ripgrepSearch, signal)
        : undefined;
      if (candidates !== undefined) await task.restrictTo(candidates);
      await task.folder(start, inRoot, '', above);
    });
  });
  return task.result();
}

interface FileStats {
  readonly size: number;
  readonly mtimeMs: number;
}

interface LineTest {
  matches(line: string): boolean;
  /** The steps per character. */
  readonly steps: number;
  /** Longer lines are not searched. */
  readonly maxLength: number;
}

class SearchTask {
  readonly #search: WorkspaceSearch;
  readonly #signal: AbortSignal;
  readonly #test: LineTest | undefined;
  readonly #limit: number;
  /** Hidden names that the glob mentions. */
  readonly #hiddenNames: readonly string[];
  readonly #files: { path: string; bytes: number; modifiedAtMs: number }[] = [];
  readonly #lines: WorkspaceLine[] = [];
  #matches = 0;
  #truncated = false;
  /** A line was too long for the pattern, so it is unknown whether it matches. */
  #skippedLine = false;
  /** Steps since the last check of the clock. */
  #steps = 0;
  /** The files to visit, and the folders on the way to them, from the start of the search. */
  #candidates: ReadonlySet<string> | undefined;
  #blockStartedAtMs = performance.now();

  constructor(search: WorkspaceSearch, signal: AbortSignal) {
    this.#search = search;
    this.#hiddenNames = hiddenNamesOf(this.#search.glob);
    this.#signal = signal;
    this.#limit = search.limit ?? DEFAULT_LIMIT;
    this.#test = search.pattern === undefined ? undefined : lineTest(search.pattern, search);
  }

  async restrictTo(paths: readonly string[]): Promise<void> {
    const { glob } = this.#search;
    const candidates = new Set<string>();
    for (const path of paths) {
      await this.#yieldIfDue();
      if (glob !== undefined && !globMatches(path, glob)) continue;
      for (let each = path; each !== '.' && !candidates.has(each); each = dirname(each)) candidates.add(each);
    }
    this.#candidates = candidates;
  }

  /** Yields to the event loop and checks the signal, where names and patterns take long to compare. */
  async #yieldIfDue(): Promise<void> {
    if (performance.now() - this.#blockStartedAtMs < MAX_BLOCK_MS) return;
    await yieldToEventLoop();
    this.#signal.throwIfAborted();
    this.#blockStartedAtMs = performance.now();
  }

  result(): WorkspaceFinding {
    return { files: this.#files, lines: this.#lines, truncated: this.#truncated || this.#skippedLine };
  }

  /** `path` begins at the root, `below` at the start of the search. */
  async folder(folder: Folder, path: string, below: string, above: readonly IgnoreLevel[]): Promise<void> {
    this.#signal.throwIfAborted();
    const entries = await readdir(hasDescriptorPaths ? descriptorPath(folder) : folder.path, { withFileTypes: true });
    const levels = this.#search.includeIgnored ? above : await withIgnoreFile(folder, path, entries, above);
    for (const each of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (this.#truncated) return;
      await this.#yieldIfDue();
      const [pathInSearch, inRoot] = [join(below, each.name), join(path, each.name)];
      if (this.#candidates?.has(pathInSearch) === false) continue;
      if (this.#isExcluded(each.name, inRoot, each.isDirectory(), levels)) continue;
      if (each.isDirectory()) {
        if (isProtected(join(folder.path, each.name)) || pathInSearch.split(sep).length > MAX_DEPTH) continue;
        const next = await open(entryPath(folder, each.name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(
          () => undefined,
        );
        if (next === undefined) continue; // gone, or something else, since the folder was read
        try {
          await this.folder({ handle: next, path: join(folder.path, each.name) }, inRoot, pathInSearch, levels);
        } finally {
          await next.close();
        }
      } else if (each.isFile() && !isProtectedFile(join(folder.path, each.name))) {
        const { glob } = this.#search;
        if (glob !== undefined && !globMatches(pathInSearch, glob)) continue;
        const stats = await statEntry(folder, each.name);
        if (stats?.isFile()) await this.file(folder, each.name, inRoot, stats);
      }
    }
  }

  #isExcluded(name: string, path: string, isDirectory: boolean, levels: readonly IgnoreLevel[]): boolean {
    if (ALWAYS_EXCLUDED.includes(name)) return true;
    if (this.#search.includeIgnored) return false;
    if (name.startsWith('.') && !this.#hiddenNames.some((glob) => globMatches(name, glob))) return true;
    return isIgnored(path, isDirectory, levels) ?? false;
  }

  /** Its lines are searched whatever its name is, but a search for names finds it only if its name fits. */
  async namedFile(folder: Folder, name: string, path: string, stats: FileStats): Promise<void> {
    const { glob, pattern } = this.#search;
    if (glob === undefined || pattern !== undefined || globMatches(name, glob))
      await this.file(folder, name, path, stats);
  }

  async file(folder: Folder, name: string, path: string, stats: FileStats): Promise<void> {
    const match = { path, bytes: stats.size, modifiedAtMs: Math.round(stats.mtimeMs) };
    if (this.#test === undefined) {
      this.#add(() => this.#files.push(match));
      return;
    }
    if (stats.size > MAX_FILE_BYTES) return;
    const handle = await open(entryPath(folder, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(() => undefined);
    if (handle === undefined) return;
    const bytes = await handle.readFile().finally(() => handle.close());
    const utf16 = utf16Of(bytes);
    if (utf16 === undefined && bytes.subarray(0, 8_192).includes(0)) return;
    // The decoder drops the byte order mark, which is no part of the first line, as in ripgrep.
    await this.#grep(this.#test, match, new TextDecoder(utf16).decode(bytes));
  }

  async #grep(
    test: LineTest,
    file: { path: string; bytes: number; modifiedAtMs: number },
    text: string,
  ): Promise<void> {
    const context = this.#search.contextLines ?? 0;
    const add = (line: number, content: string, isMatch: boolean) =>
      this.#lines.push({ path: file.path, line, text: clipped(content), isMatch });
    /** The lines of context before the next match. */
    let contextBefore: string[] = [];
    /** How many lines of context the last match still needs. */
    let contextAfter = 0;
    let hits = 0;
    let line = 0;
    for (const content of linesOf(text)) {
      line += 1;
      this.#steps += (content.length + LINE_OVERHEAD) * test.steps;
      if (this.#steps > STEPS_BETWEEN_CHECKS) {
        this.#steps = 0;
        await this.#yieldIfDue();
      }
      if (this.#matchesLine(test, content)) {
        if (this.#matches >= this.#limit || this.#lines.length > MAX_LINES_WITH_CONTEXT) {
          this.#truncated = true;
          break;
        }
        this.#matches += 1;
        hits += 1;
        for (const [index, each] of contextBefore.entries()) add(line - contextBefore.length + index, each, false);
        add(line, content, true);
        contextBefore = [];
        contextAfter = context;
      } else if (contextAfter > 0) {
        add(line, content, false);
        contextAfter -= 1;
      } else if (context > 0) {
        contextBefore.push(content);
        if (contextBefore.length > context) contextBefore.shift();
      }
    }
    if (hits > 0) this.#files.push(file);
  }

  #matchesLine(test: LineTest, line: string): boolean {
    if (line.length <= test.maxLength) return test.matches(line);
    this.#skippedLine = true;
    return false;
  }

  #add(push: () => void): void {
    if (this.#files.length >= this.#limit) this.#truncated = true;
    else push();
  }
}

/** Yields one line at a time, because a file can have millions. */
function* linesOf(text: string): Generator<string> {
  for (let start = 0; start < text.length; ) {
    const end = text.indexOf('\n', start);
    if (end === -1) return yield text.slice(start);
    yield text.slice(start, text[end - 1] === '\r' && end > start ? end - 1 : end);
    start = end + 1;
  }
}

/** Whether a pattern holds a line feed, or its escape outside of a class. No single line contains one. */
function matchesLineEnd(pattern: string, literal: boolean | undefined): boolean {
  if (pattern.includes('\n')) return true;
  return !literal && /\\n/.test(pattern.replaceAll(/\\[^n]|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]/g, ''));
}

function lineTest(pattern: string, search: WorkspaceSearch): LineTest {
  const { ignoreCase, literal } = search;
  if (matchesLineEnd(pattern, literal)) {
    const reason =
      'each line is matched by itself, so none holds a line end; search for one of its lines, with context for those around it';
    throw invalidPattern(pattern, 'matches no line', reason);
  }
  if (!ignoreCase && (literal || re2().quote(pattern) === pattern))
    return { matches: (line) => line.includes(pattern), steps: 1, maxLength: Number.POSITIVE_INFINITY };
  const compiled = compile(pattern, search);
  const steps = compiled.programSize();
  if (steps > MAX_INSTRUCTIONS) {
    const reason = `it compiles to ${steps} instructions, and at most ${MAX_INSTRUCTIONS} are allowed; use smaller counts in {…}`;
    throw invalidPattern(pattern, 'is too complex a pattern', reason);
  }
  if (steps <= SMALL_PROGRAM)
    return { matches: (line) => compiled.test(line), steps, maxLength: Number.POSITIVE_INFINITY };
  return { matches: matcherOf(compiled, steps), steps, maxLength: Math.floor(MAX_STEPS_OF_LINE / steps) };
}

/**
 * RE2 decides whether a line matches by a table of states, many times faster than it finds where. But a few patterns
 * reach new states all the time: the table is then rebuilt again and again, and finding the position is faster.
 */
function matcherOf(compiled: RE2JS, steps: number): (line: string) => boolean {
  let spentMs = 0;
  let doneSteps = 0;
  let slowTrials = 0;
  return (line) => {
    if (slowTrials === MAX_SLOW_TRIALS) return compiled.matcher(line).find();
    if (line.length < TIMED_LINE_LENGTH) return compiled.test(line);
    const sinceMs = performance.now();
    const isMatch = compiled.test(line);
    spentMs += performance.now() - sinceMs;
    doneSteps += line.length * steps;
    if (spentMs >= TRIAL_MS) {
      slowTrials = spentMs / doneSteps > MAX_TABLE_STEP_MS ? slowTrials + 1 : 0;
      spentMs = 0;
      doneSteps = 0;
    }
    return isMatch;
  };
}

/** RE2 is loaded with the first search. */
function re2(): typeof RE2JS {
  return (require('re2js') as typeof import('re2js')).RE2JS;
}

function compile(pattern: string, { ignoreCase, literal }: WorkspaceSearch): RE2JS {
  try {
    const RE2JS = re2();
    return RE2JS.compile(literal ? RE2JS.quote(pattern) : pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0);
  } catch (error) {
    const fault = 'is not a pattern of RE2 (no look-around, no back-references)';
    throw invalidPattern(pattern, fault, reasonOf(error), { cause: error });
  }
}

function clipped(line: string): string {
  return line.length <= MAX_LINE_LENGTH
    ? line
    : `${startOf(line, MAX_LINE_LENGTH)}… [${line.length - MAX_LINE_LENGTH} more characters]`;
}

function invalidPattern(pattern: string, fault: string, reason: string, options: ErrorOptions = {}): PawlError {
  const issues = [{ path: 'pattern', message: reason }];
  return new PawlError('INVALID_PARAMS', `${JSON.stringify(pattern)} ${fault}: ${reason}.`, { issues, ...options });
}
