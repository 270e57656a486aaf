/**
 * The words of the project, one for each thing. Finds other words in comments, in texts that people read, in pages and in the titles
 * of tests, and says which word to use instead.
 *
 *   node test/helpers/glossary.ts [FOLDER…]   lists what stands below these folders; default: src docs README.md test
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

interface Word {
  readonly found: RegExp;
  readonly instead: string;
}

/** Words of a dialect that readers would have to learn, each with the field's own word. */
const WORDS: readonly Word[] = [
  { found: /\bhand(?:s|ed|ing)? (?:it |them |a call |calls |the call )?in\b/i, instead: 'submit' },
  { found: /\bhand(?:s|ed|ing)? (?:it |them |the job |a job )?back\b/i, instead: 'release' },
  { found: /\bunspent\b/i, instead: 'without consuming an attempt' },
  { found: /\bput(?:s|ting)? (?:it |them |the job )?aside\b/i, instead: 'park' },
  { found: /\bset(?:s|ting)? (?:it |them )?aside\b/i, instead: 'quarantine (a poison call) or park' },
  { found: /\b(?:stands?|stood|standing|wait(?:s|ing)?) in (?:a )?lines?\b/i, instead: 'is queued' },
  { found: /\btravels? straight\b/i, instead: 'direct dispatch' },
  { found: /\bpass(?:es|ed|ing)?[ -]on to (?:a|another|other) workers?\b/i, instead: 'skip' },
  { found: /\bwoken\b|\bwakes? (?:it|them|the call|a call|calls)\b/i, instead: 'promote or resume' },
  { found: /\bverdicts?\b/i, instead: 'outcome' },
  { found: /\blast words?\b/i, instead: 'outcome or final' },
  { found: /\bhandovers?\b/i, instead: 'client call' },
  { found: /\bamendments?\b/i, instead: 'standing approval' },
  { found: /\bremembered approvals?\b/i, instead: 'standing approval' },
  { found: /\bunbelieved\b|\bbelieve[sd]?\b/i, instead: 'verify or trust' },
  { found: /\bseal(?:s|ed|ing)?\b/i, instead: 'sign, signature, or chained (audit)' },
  { found: /\bunsayable\b/i, instead: 'not serializable' },
  { found: /\bmisfits?\b/i, instead: 'incompatible' },
  { found: /\bpatiently\b/i, instead: 'retries until the lease is lost' },
  { found: /\btake(?:s|n)? turns at\b|\bturn at a resource\b/i, instead: 'resource lock' },
  { found: /\b(?:re)?asked about anew\b|\banew\b/i, instead: 'again' },
  { found: /\bwhoever\b|\bwhosoever\b|\bwhomever\b/i, instead: 'the caller, the worker, the operator' },
  { found: /\bnobody\b|\bsomebody\b/i, instead: 'the actor: no caller, no worker, a person' },
  { found: /\bthat which\b/i, instead: 'the thing itself' },
  { found: /\btold\b/i, instead: 'emit, notify, or report' },
];

/** A sentence that begins so has no subject. */
const HEADLESS = /^(?:Who|Whoever|Whose|Whom|What|Whatever|Where|Which|Whichever|Of)\b(?![^.]*\?)/;
/** Rules and documents that a reader of the repository cannot look up. */
const CITATION =
  /\b(?:[ARCID]\d{1,2}\b(?!-)|TR-\d+|DESIGN\b|INTERFACE\b|FACTS\.md|ruling \d+|decision \d+|the seeds?\b)/;

export interface Finding {
  /** `src/shared/retries/retry.ts:12`. */
  readonly at: string;
  readonly text: string;
  readonly instead: string;
}

interface Passage {
  readonly line: number;
  readonly text: string;
  readonly kind: 'comment' | 'string' | 'page' | 'title';
}

/** The texts of a source that people read: its comments, and the strings that are sentences. */
export function passagesOf(source: string): readonly Passage[] {
  const lineAt = (index: number) => source.slice(0, index).split('\n').length;
  const comments = [...source.matchAll(/^[ \t]*(?:\/\*\*?([\s\S]*?)\*\/|((?:[ \t]*(?:\/\/|--).*\n?)+))/gm)].map(
    (match) => ({
      line: lineAt(match.index),
      kind: 'comment' as const,
      text: (match[1] ?? match[2] ?? '')
        .replace(/^[ \t]*(?:\*|\/\/+|--)[ \t]?/gm, '')
        .replace(/\s+/g, ' ')
        .trim(),
    }),
  );
  const strings = [...source.matchAll(/'((?:\\.|[^'\\\n])*)'|`((?:\\.|[^`\\])*)`/g)]
    .map((match) => ({ line: lineAt(match.index), kind: 'string' as const, text: match[1] ?? match[2] ?? '' }))
    .filter(({ text }) => text.split(' ').length > 2);
  return [...comments, ...strings];
}

function titlesOf(source: string): readonly Passage[] {
  return [...source.matchAll(/\b(?:test|describe)(?:\.\w+(?:\([^)]*\))?)*\(\s*(['"`])(.*?)\1/g)].map((match) => ({
    line: source.slice(0, match.index).split('\n').length,
    kind: 'title',
    text: match[2] ?? '',
  }));
}

function pagePassages(page: string): readonly Passage[] {
  const prose = page.replace(/```[\s\S]*?```/g, (block) => block.replace(/[^\n]/g, ''));
  return prose
    .split('\n')
    .map((text, index) => ({ line: index + 1, kind: 'page', text: text.replace(/`[^`]*`/g, '`…`') }));
}

/** Words of another dialect in one file; `path` decides how it is read. */
export function dialectIn(path: string, text: string): readonly Finding[] {
  const passages = path.endsWith('.md')
    ? pagePassages(text)
    : path.startsWith('test/')
      ? titlesOf(text)
      : passagesOf(text);
  return passages.flatMap(({ line, text: words, kind }) => {
    const at = `${path}:${line}`;
    const found = WORDS.filter(({ found }) => found.test(words)).map(({ found, instead }) => ({
      at,
      text: found.exec(words)?.[0] ?? '',
      instead,
    }));
    if (kind !== 'comment') return found;
    const headless = HEADLESS.test(words)
      ? [{ at, text: words.slice(0, 60), instead: 'a sentence with a subject' }]
      : [];
    const cites = CITATION.exec(words);
    return [...found, ...headless, ...(cites === null ? [] : [{ at, text: cites[0], instead: 'the reason itself' }])];
  });
}

export function filesBelow(root: string, folders: readonly string[]): readonly { path: string; text: string }[] {
  const paths = folders.flatMap((folder) =>
    statSync(join(root, folder)).isFile()
      ? [folder]
      : readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`),
  );
  return paths
    .filter((path) => /\.(?:ts|lua|md)$/.test(path) && !/node_modules|docs\/decisions|helpers\/glossary/.test(path))
    .map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folders = process.argv.slice(2);
  const findings = filesBelow(
    process.cwd(),
    folders.length > 0 ? folders : ['src', 'docs', 'README.md', 'test'],
  ).flatMap(({ path, text }) => dialectIn(path, text));
  for (const { at, text, instead } of findings) console.log(`${at}  ${text}  →  ${instead}`);
  console.log(`${findings.length} findings`);
}
