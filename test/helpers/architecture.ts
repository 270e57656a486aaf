/**
 * Checks the dependency rules by reading sources: which file may import which, and which may touch the process, the clock and
 * chance. It reads text, not types, so a source that does not compile is checked as well. `folder-order.ts` has rule 6.
 */
import { posix } from 'node:path';

export interface Source {
  /** Relative to the checkout, with forward slashes: `src/shared/retries/retry.ts`. */
  readonly path: string;
  readonly text: string;
}

export interface Violation {
  readonly rule: 1 | 2 | 3 | 4 | 5;
  /** `src/shared/retries/retry.ts:12`. */
  readonly at: string;
  /** What stands there, why it may not, and where it may. */
  readonly message: string;
}

/** The libraries of the rules: they check values and do nothing else. */
const SCHEMA_LIBRARIES = ['zod', 'ajv', 'ajv-formats', 're2js', '@jmespath-community/jmespath', 'yaml', 'cron-parser'];
/** Node's modules that only compute; `node:module` makes `require`, which is looked at like an import. */
const PURE_NODE_MODULES = [
  'node:buffer',
  'node:crypto',
  'node:path',
  'node:url',
  'node:util',
  'node:assert',
  'node:module',
];
/** What a tool gets from its context instead. */
const MODULES_OF_EFFECTS = [
  'node:fs',
  'node:child_process',
  'node:net',
  'node:http',
  'node:https',
  'node:http2',
  'node:tls',
  'node:dgram',
  'node:dns',
  'node:worker_threads',
  'node:cluster',
  'undici',
];
const BULLMQ_USERS = [
  /^src\/shared\/store\/queues\//,
  /^src\/producer\/calls\//,
  /^src\/workers\/queue\//,
  /^src\/cli\/processes\/bull-board\.ts$/,
];
/** The OpenTelemetry SDK is started here, so the file is not pure. */
const TRACING = 'src/shared/telemetry/tracing.ts';
/** Computes in a thread what is too much for the event loop. To its callers it is a pure function. */
const SCHEMA_THREAD = /^src\/shared\/schema\/schema-thread(?:-main)?\.ts$/;
/** Runs without a fleet put both sides together in one process. */
const LOCAL = 'src/local/';
const COMPOSITION_ROOTS = [/^src\/cli\.ts$/, /^src\/cli\//, /^src\/local\//, /(^|\/)main\.ts$/];

const CLOCK_AND_DICE =
  /\bDate\.now\s*\(|\bnew Date\s*\(\s*\)|\bperformance\.now\s*\(|\bMath\.random\s*\(|\bset(?:Timeout|Interval|Immediate)\s*\(|\brandom(?:UUID|Bytes|Int)\s*\(|\bgetRandomValues\s*\(/g;
const PROCESS_ACCESS =
  /\bprocess\s*\.\s*(?:env\b|exit\s*\(|reallyExit\b|abort\s*\()|\bprocess\s*\.\s*(?:on|once|addListener|prependListener)\s*\(\s*['"`]SIG/g;
const PROCESS_NAMES = /\bimport\s+(?:type\s+)?(?<names>[^'";]*?)\s+from\s*['"](?:node:)?process['"]/g;
const GLOBAL_FETCH = /(?<![.\w$])fetch\s*\(/g;

export function findViolations(sources: readonly Source[]): readonly Violation[] {
  return sources.flatMap((source) => {
    const code = blank(source.text, { strings: false });
    const bare = blank(source.text, { strings: true });
    return [...checkImports(source.path, code), ...checkCalls(source.path, code, bare)];
  });
}

function checkImports(path: string, code: string): readonly Violation[] {
  return importsOf(code).flatMap(({ specifier, index }) => {
    const report = violationsAt(path, code, index);
    const target = targetOf(path, specifier);
    return [
      ...sidesStayApart(path, target, report),
      ...rulesStayPure(path, specifier, target, report),
      ...librariesStayHome(path, specifier, report),
      ...toolsStayPoor(path, specifier, target, report),
    ];
  });
}

type Report = (rule: Violation['rule'], message: string) => readonly [Violation];

function sidesStayApart(path: string, target: string | undefined, report: Report): readonly Violation[] {
  const [from, to] = [sideOf(path), target === undefined ? undefined : sideOf(target)];
  if (from !== undefined && target?.startsWith(LOCAL))
    return report(
      1,
      `src/${from}/ imports ${target}: ${LOCAL} puts the two sides together, and neither of them knows it`,
    );
  if (from === undefined || to === undefined || from === to) return [];
  return report(
    1,
    `src/${from}/ imports ${target}: producer and workers never import each other; share through src/shared/`,
  );
}

function rulesStayPure(
  path: string,
  specifier: string,
  target: string | undefined,
  report: Report,
): readonly Violation[] {
  if (!path.startsWith('src/shared/') || path === TRACING || SCHEMA_THREAD.test(path)) return [];
  if (isRecord(path)) {
    if (target === undefined || target.startsWith('src/shared/')) return [];
    return report(2, `a record imports ${target}: src/shared/store/ may import only src/shared/`);
  }
  if (target !== undefined) {
    if (target.startsWith('src/shared/') && !isRecord(target)) return [];
    return report(2, `a rule imports ${target}: the concepts of src/shared/ import only each other`);
  }
  const module = moduleOf(specifier);
  if (SCHEMA_LIBRARIES.includes(module) || PURE_NODE_MODULES.includes(module)) return [];
  return report(
    2,
    `a rule imports '${specifier}': the concepts of src/shared/ are pure and may use only ${SCHEMA_LIBRARIES.join(', ')}`,
  );
}

function librariesStayHome(path: string, specifier: string, report: Report): readonly Violation[] {
  const module = moduleOf(specifier);
  if (module === 'ioredis' && !isRecord(path)) return report(3, `'ioredis' is named only under src/shared/store/`);
  if (module === 'bullmq' && !BULLMQ_USERS.some((user) => user.test(path))) {
    return report(
      3,
      `'bullmq' is named only in src/shared/store/queues/jobs.ts, src/producer/calls/submit-call.ts, src/producer/calls/result-waiters.ts, ` +
        `src/workers/worker.ts, src/workers/queue/job-queue.ts, src/workers/queue/job-fetcher.ts and the operator's app`,
    );
  }
  return [];
}

function toolsStayPoor(
  path: string,
  specifier: string,
  target: string | undefined,
  report: Report,
): readonly Violation[] {
  if (!isTool(path)) return [];
  if (target !== undefined) {
    if ((target.startsWith('src/shared/') && !isRecord(target)) || isTool(target)) return [];
    return report(4, `a tool imports ${target}: of ours, src/workers/tools/* import only the concepts of src/shared/`);
  }
  if (!MODULES_OF_EFFECTS.includes(moduleOf(specifier))) return [];
  return report(4, `a tool imports '${specifier}': files, processes and the network arrive in ToolContext`);
}

function checkCalls(path: string, code: string, bare: string): readonly Violation[] {
  const found: Violation[] = [];
  const search = (text: string, pattern: RegExp, rule: Violation['rule'], reason: (match: string) => string) => {
    for (const match of text.matchAll(pattern)) {
      found.push(...violationsAt(path, text, match.index)(rule, reason(match[0])));
    }
  };
  if (
    path.startsWith('src/shared/') &&
    !isRecord(path) &&
    path !== 'src/shared/util/time.ts' &&
    !SCHEMA_THREAD.test(path)
  ) {
    search(
      bare,
      CLOCK_AND_DICE,
      2,
      (match) => `a rule calls ${match}…): time and chance are passed in, see src/shared/util/time.ts`,
    );
  }
  if (isTool(path)) {
    search(bare, GLOBAL_FETCH, 4, () => 'a tool calls the global fetch: use ctx.fetch');
  }
  if (COMPOSITION_ROOTS.some((root) => root.test(path))) return found;
  const home = 'belongs in a composition root (src/cli.ts, src/cli/, src/local/ or a main.ts); pass the value in';
  // Whether a handler is a signal's stands in a string; that the call is code and no text, in the bare source.
  for (const match of code.matchAll(PROCESS_ACCESS)) {
    if (!bare.startsWith('process', match.index)) continue;
    found.push(...violationsAt(path, code, match.index)(5, `${match[0].replace(/\s*\($/, '()')} ${home}`));
  }
  for (const match of code.matchAll(PROCESS_NAMES)) {
    if (!/\b(?:env|exit|on|once|abort)\b/.test(match.groups?.['names'] ?? '')) continue;
    found.push(...violationsAt(path, code, match.index)(5, `importing from 'process' ${home}`));
  }
  return found;
}

interface Import {
  readonly specifier: string;
  readonly index: number;
}

/** Static imports and re-exports, side-effect imports, `import()`, types included. */
export function importsOf(code: string): readonly Import[] {
  const patterns = [
    /\bfrom\s*(['"])(?<specifier>[^'"\n]+)\1/g,
    /\bimport\s*(['"])(?<specifier>[^'"\n]+)\1/g,
    /\bimport\s*\(\s*(['"`])(?<specifier>[^'"`\n]+)\1/g,
    /\brequire\s*\(\s*(['"`])(?<specifier>[^'"`\n]+)\1/g,
  ];
  return patterns.flatMap((pattern) =>
    [...code.matchAll(pattern)].map((match) => ({ specifier: match.groups?.['specifier'] ?? '', index: match.index })),
  );
}

/** The file of ours that a specifier means, or undefined for a library. */
function targetOf(path: string, specifier: string): string | undefined {
  if (specifier.startsWith('.')) return posix.join(posix.dirname(path), specifier);
  if (specifier === 'pawl' || specifier.startsWith('pawl/')) return 'src/index.ts';
  return undefined;
}

/** `ajv/dist/2020.js` is of `ajv`; `fs` and `fs/promises` are of `node:fs`. */
function moduleOf(specifier: string): string {
  const [first = '', second = ''] = specifier.split('/');
  const name = first.startsWith('@') ? `${first}/${second}` : first;
  return [...MODULES_OF_EFFECTS, ...PURE_NODE_MODULES].includes(`node:${name}`) ? `node:${name}` : name;
}

const sideOf = (path: string) => /^src\/(?<side>producer|workers)\//.exec(path)?.groups?.['side'];
const isRecord = (path: string) => path.startsWith('src/shared/store/');
const isTool = (path: string) => path.startsWith('src/workers/tools/');

function violationsAt(path: string, text: string, index: number): Report {
  const line = text.slice(0, index).split('\n').length;
  return (rule, message) => [{ rule, at: `${path}:${line}`, message }];
}

/**
 * The source with comments, and on wish the text of strings and regular expressions, turned into blanks; every
 * character keeps its place. What stands in `${…}` is code and stays.
 */
export function blank(text: string, { strings }: { strings: boolean }): string {
  const token =
    /\/\/[^\n]*|\/\*[\s\S]*?\*\/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|(?<=(?:^|[=(,:;!&|?{}[+\-*%<>~^\n]|\breturn|=>)\s*)\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[dgimsuvy]*|`|[{}]/g;
  const hide = (part: string) => part.replace(/[^\n]/g, ' ');
  let result = '';
  let position = 0;
  /** One entry per open template: how many braces are open inside its current `${`. */
  const templates: number[] = [];
  const copyTemplateText = () => {
    const end = /(?:\\[\s\S]|(?!\$\{)[^`\\])*/y;
    end.lastIndex = position;
    const part = end.exec(text)?.[0] ?? '';
    result += strings ? hide(part) : part;
    position += part.length;
    if (text.startsWith('${', position)) {
      result += '${';
      position += 2;
      templates.push(0);
    } else if (position < text.length) {
      result += '`';
      position += 1;
    }
  };
  for (;;) {
    token.lastIndex = position;
    const match = token.exec(text);
    if (match === null) return result + text.slice(position);
    const [part] = match;
    result += text.slice(position, match.index);
    position = match.index + part.length;
    const open = templates.at(-1);
    if (part === '`') {
      result += part;
      copyTemplateText();
    } else if (part === '{' || part === '}') {
      result += part;
      if (open === undefined) continue;
      if (part === '{') templates[templates.length - 1] = open + 1;
      else if (open > 0) templates[templates.length - 1] = open - 1;
      else {
        templates.pop();
        copyTemplateText();
      }
    } else if (part.startsWith('//') || part.startsWith('/*')) {
      result += hide(part);
    } else {
      result += strings ? hide(part) : part;
    }
  }
}
