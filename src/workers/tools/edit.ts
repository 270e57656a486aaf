import { z } from 'zod';
import { invalidPart, PawlError } from '../../shared/errors/failure.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { boundaryAt } from '../../shared/util/text/text-cut.ts';
import { findAll } from '../../shared/util/text/text-search.ts';
import { explainNoMatch } from './lib/explain-no-match.ts';
import { hashOf, readText } from './lib/text-file.ts';
import { editsFiles } from './lib/tool-presets.ts';

const MAX_NAMED_LINES = 10;
/** The most places that all edits of one call replace. */
const MAX_REPLACEMENTS = 1_000_000;
/** The longest content of an edited file: a longer one could not be read again. */
const MAX_LENGTH = 16 * 1024 * 1024;
/** How often an edit starts over because another writer changed the file. */
const MAX_TRIES = 20;
const BYTE_ORDER_MARK = '\ufeff';

/**
 * Tool `edit`.
 *
 * Its effects are `probe`. A second run must not repeat the edit: the old text is gone or, where the new text holds
 * the old one, would be replaced twice. But the file is replaced in one step and so shows whether the first run
 * succeeded; after a crash the worker looks at it instead of asking a person.
 */
export const edit = defineBaseTool({
  name: 'edit',
  version: '1.1.0',
  description: [
    'Replaces pieces of text in a file of the workspace.',
    'old_string must stand in the file exactly as given, white space and indentation included, and exactly once unless replace_all is true; otherwise nothing is changed and the error says how often and where it was found.',
    'For several changes of one file give edits instead: they are made in order, each on the result of the one before, and all or none.',
    'Read the file first, and take a line or two around the change into old_string when it is not unique.',
    'With expected_hash, the hash that read returned, the edit is refused when the file has changed since.',
    'To delete text give an empty new_string. To create a file or replace all of it use write; to change several files at once use apply_patch.',
  ].join(' '),
  ...editsFiles,
  input: z.object({
    path: z.string().min(1).describe('Path of the file, relative to the workspace root.'),
    old_string: z.string().min(1).optional().describe('The text to replace, copied exactly from the file.'),
    new_string: z.string().optional().describe('The text to put in its place. It must differ from old_string.'),
    replace_all: z
      .boolean()
      .default(false)
      .describe('Replace every occurrence, for example to rename something. Default false: the text must be unique.'),
    edits: z
      .array(
        z.object({
          old_string: z.string().min(1).describe('The text to replace, copied exactly from the file.'),
          new_string: z.string().describe('The text to put in its place.'),
          replace_all: z.boolean().default(false).describe('Replace every occurrence.'),
        }),
      )
      .min(1)
      .max(100)
      .optional()
      .describe('Several replacements in order, instead of old_string and new_string.'),
    expected_hash: z
      .string()
      .regex(/^[0-9a-f]{64}$/)
      .optional()
      .describe('The hash of the file as you read it. Default: the file is edited as it is now.'),
  }),
  output: z.object({
    path: z.string(),
    replacements: z.int().nullable().describe('Null when the edit was found to be done after a crash.'),
    hash: z.string().optional().describe('SHA-256 of the file after the edit.'),
  }),
  async run(params, ctx) {
    const edits = editsOf(params);
    const { path, expected_hash: expectedHash } = params;
    for (let tries = 1; ; tries += 1) {
      const { text, hash } = await readText(path, ctx);
      if (expectedHash !== undefined && expectedHash !== hash)
        throw new PawlError(
          'PRECONDITION_FAILED',
          `${JSON.stringify(path)} has changed since it was read (its hash is ${hash}); nothing was changed. Read it again.`,
        );
      const { content, lines } = applyEdits(path, text, edits);
      try {
        await ctx.workspace.write(path, content, { expected: hash });
      } catch (error) {
        // Another writer changed the file: the edit is repeated on the new content, unless the caller named a hash.
        const isRace = error instanceof PawlError && error.code === 'PRECONDITION_FAILED';
        if (!isRace || expectedHash !== undefined || tries === MAX_TRIES) throw error;
        continue;
      }
      return {
        output: { path, replacements: lines.length, hash: hashOf(Buffer.from(content)) },
        display: `Edited ${path} (${lines.length === 1 ? `line ${lines[0]}` : `${lines.length} places`})`,
        artifacts: [{ kind: 'file-modified', reference: path }],
      };
    }
  },
  async probe(params, ctx) {
    const { path } = params;
    const edits = editsOf(params);
    const { text, hash } = await readText(path, ctx);
    if (hash === params.expected_hash) return { state: 'not-done' };
    const resolved = edits.map((edit) => {
      const to = edit.new_string;
      return { old: occursIn(text, edit.old_string), fresh: to !== '' && occursIn(text, to), deletes: to === '' };
    });
    if (resolved.every(({ old, fresh }) => old && !fresh)) return { state: 'not-done' };
    if (resolved.every(({ old, fresh, deletes }) => !old && (fresh || deletes))) {
      return {
        state: 'done',
        result: {
          output: { path, replacements: null },
          display: `Edited ${path} (found done)`,
          artifacts: [{ kind: 'file-modified', reference: path }],
        },
      };
    }
    return { state: 'unknown' };
  },
  async preview(params, ctx) {
    const edits = editsOf(params);
    const scope = edits.length > 1 ? `, ${edits.length} places` : edits[0]?.replace_all ? ', every occurrence' : '';
    const { text } = await readText(params.path, ctx);
    return {
      summary: `Edit ${params.path}${scope}`,
      details: ctx.diff(params.path, text, applyEdits(params.path, text, edits).content),
    };
  },
});

interface Edit {
  readonly old_string: string;
  readonly new_string: string;
  readonly replace_all: boolean;
}

/** Throws `INVALID_PARAMS` unless either one replacement or a list of them is given. */
function editsOf(params: {
  readonly old_string?: string | undefined;
  readonly new_string?: string | undefined;
  readonly replace_all: boolean;
  readonly edits?: readonly Edit[] | undefined;
}): readonly Edit[] {
  const { old_string: oldText, new_string: newText, edits } = params;
  const invalid = (path: string, message: string) => invalidPart(path, path, message, 'INVALID_PARAMS');
  if (edits !== undefined && (oldText !== undefined || newText !== undefined))
    throw invalid('edits', 'cannot be given together with old_string and new_string');
  if (edits !== undefined && params.replace_all)
    throw invalid('replace_all', 'belongs into each of edits that replaces every occurrence');
  if (edits === undefined && oldText === undefined) throw invalid('old_string', 'is required, unless edits is given');
  if (edits === undefined && newText === undefined) throw invalid('new_string', 'is required, unless edits is given');
  const list = edits ?? [{ old_string: oldText ?? '', new_string: newText ?? '', replace_all: params.replace_all }];
  if (list.some((edit) => edit.old_string === edit.new_string))
    throw new PawlError('INVALID_PARAMS', 'new_string is the same as old_string: there is nothing to change.');
  return list;
}

/** The new content, and the line of each replaced place. */
function applyEdits(path: string, text: string, edits: readonly Edit[]): { content: string; lines: readonly number[] } {
  let content = text;
  const lines: number[] = [];
  edits.forEach((edit, index) => {
    const replacements = findReplacements(content, edit);
    const label = edits.length === 1 ? '' : `Edit ${index + 1} of ${edits.length}: `;
    if (replacements.length === 0) {
      const head = `${label}old_string was found 0 times in ${JSON.stringify(path)}; nothing was changed.`;
      const expected = lineEndForms(content, edit.old_string).at(-1) ?? '';
      throw new PawlError('PRECONDITION_FAILED', `${head} ${explainNoMatch(content, expected)}`);
    }
    const positions = replacements.map(({ index }) => index);
    if (positions.length > 1 && !edit.replace_all)
      throw new PawlError('PRECONDITION_FAILED', label + explainManyMatches(path, content, positions));
    if (lines.length + positions.length > MAX_REPLACEMENTS)
      throw limitError(`${label}one call replaces at most ${MAX_REPLACEMENTS} places`);
    if (replacements.reduce((length, { from, to }) => length + to.length - from.length, content.length) > MAX_LENGTH)
      throw limitError(`${label}${JSON.stringify(path)} would have more than ${MAX_LENGTH} characters`);
    for (const line of lineNumbersOf(content, positions)) lines.push(line);
    // This is not String.replace, in which "$&" in the new text would have a meaning.
    let end = 0;
    const pieces: string[] = [];
    for (const { index, from, to } of replacements) {
      pieces.push(content.slice(end, index), to);
      end = index + from.length;
    }
    content = pieces.join('') + content.slice(end);
  });
  // The byte order mark stays, once, unless it is all that an edit names.
  const keepsMark = text.startsWith(BYTE_ORDER_MARK) && edits.every((edit) => edit.old_string !== BYTE_ORDER_MARK);
  return { content: keepsMark ? BYTE_ORDER_MARK + content.replace(/^\ufeff+/, '') : content, lines };
}

function limitError(reason: string): PawlError {
  return new PawlError('INVALID_PARAMS', `${reason}; nothing was changed.`);
}

function occursIn(content: string, text: string): boolean {
  return [text, withCrLf(text)].some((form) => findAll(content, form, 1).length > 0);
}

interface Replacement {
  readonly index: number;
  readonly from: string;
  readonly to: string;
}

/** The places of the old text in ascending order, each with its replacement. */
function findReplacements(
  content: string,
  { old_string: oldText, new_string: newText, replace_all: replaceAll }: Edit,
): Replacement[] {
  const lineEndAt = lineEndChooser(content);
  const newForms = { '\n': newText, '\r\n': withCrLf(newText) };
  // A copied CR LF stays one, unless the line ends are all that the edit changes.
  const keepsCrLf = oldText.includes('\r\n') && withCrLf(newText) !== withCrLf(oldText);
  const replacements = lineEndForms(content, oldText).flatMap((from) =>
    findAll(content, from, MAX_REPLACEMENTS + 1, replaceAll ? 'skip' : 'count')
      // Half of a CR LF is no line end, and half of an emoji no character.
      .filter((index) => !(from.startsWith('\n') && content[index - 1] === '\r'))
      .filter((index) => [index, index + from.length].every((end) => boundaryAt(content, end) === end))
      .map((index) => ({
        index,
        from,
        to: from === oldText && !keepsCrLf ? newForms[lineEndAt(index, from)] : newForms['\r\n'],
      })),
  );
  return replacements.sort((one, other) => one.index - other.index);
}

/** The forms in which a text may occur in a file. Models write line feeds and mean the line ends of the file, which may mix both kinds. */
function lineEndForms(content: string, text: string): readonly string[] {
  const keepsLineEnds = text.includes('\r') || !text.includes('\n') || !content.includes('\r\n');
  return keepsLineEnds ? [text] : [text, withCrLf(text)];
}

function withCrLf(text: string): string {
  return text.replaceAll(/\r?\n/g, '\r\n');
}

/**
 * Returns a function that chooses the line ends for ascending places of a text. A text without line ends follows its
 * own line, else the line above; a text with line ends is used as given.
 */
function lineEndChooser(content: string): (index: number, text: string) => '\n' | '\r\n' {
  const lastLineEnd = content.includes('\r\n') ? content.lastIndexOf('\n') : -1;
  let nextLineEnd = 0;
  return (index, text) => {
    if (lastLineEnd === -1 || /[\r\n]/.test(text)) return '\n';
    const end = index + text.length;
    if (nextLineEnd < end && end <= lastLineEnd) nextLineEnd = content.indexOf('\n', end);
    return content[(end <= lastLineEnd ? nextLineEnd : lastLineEnd) - 1] === '\r' ? '\r\n' : '\n';
  };
}

/** The lines of ascending positions, found in one pass. */
function lineNumbersOf(content: string, positions: readonly number[]): number[] {
  let line = 1;
  let lineEnd = content.indexOf('\n');
  return positions.map((position) => {
    for (; lineEnd !== -1 && lineEnd < position; lineEnd = content.indexOf('\n', lineEnd + 1)) line += 1;
    return line;
  });
}

function explainManyMatches(path: string, content: string, positions: readonly number[]): string {
  const lines = lineNumbersOf(content, positions.slice(0, MAX_NAMED_LINES));
  const suffix = positions.length > MAX_NAMED_LINES ? ' and more' : '';
  return `old_string was found ${positions.length} times in ${JSON.stringify(path)}, at lines ${lines.join(', ')}${suffix}; nothing was changed. Take more of the lines around it into old_string to make it unique, or set replace_all to true.`;
}
