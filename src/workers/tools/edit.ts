import { z } from 'zod';
import { PawlError } from '../../shared/failure.ts';
import { placesOf } from '../../shared/text-search.ts';
import { defineTool } from '../../shared/tool.ts';
import { explainAbsent } from './absent-text.ts';
import { editsFiles } from './kinds.ts';
import { hashOf, readText } from './text.ts';

const MAX_NAMED_LINES = 10;
/** Of one call, all its edits together. */
const MAX_PLACES = 1_000_000;
/** What a file may grow to: a longer one could not be read again. */
const MAX_LENGTH = 16 * 1024 * 1024;
/** How often an edit starts over because somebody else wrote the file meanwhile. */
const MAX_TRIES = 20;

/**
 * Base tool `edit` (A16).
 *
 * Effects `probe`: a second run does not do the same again (the old text is gone, or, where the new text holds the old
 * one, it would be replaced twice), but the file itself tells whether the first one happened, because the file is
 * replaced in one step. So after a crash the worker looks instead of asking a person.
 */
export const edit = defineTool({
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
      const { content, lines } = replaced(path, text, edits);
      try {
        await ctx.workspace.write(path, content, { expected: hash });
      } catch (error) {
        // Somebody wrote the file meanwhile: the edit is made on what it holds now, unless the caller named a state.
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
    const found = edits.map((edit) => {
      const { from, to } = inLineEndsOf(text, edit.old_string, edit.new_string);
      return { old: stands(text, from), fresh: to !== '' && stands(text, to), deletes: to === '' };
    });
    if (found.every(({ old, fresh }) => old && !fresh)) return { state: 'not-done' };
    if (found.every(({ old, fresh, deletes }) => !old && (fresh || deletes))) {
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
    const what = edits.length > 1 ? `, ${edits.length} places` : edits[0]?.replace_all ? ', every occurrence' : '';
    const { text } = await readText(params.path, ctx);
    return {
      summary: `Edit ${params.path}${what}`,
      details: ctx.diff(params.path, text, replaced(params.path, text, edits).content),
    };
  },
});

interface Edit {
  readonly old_string: string;
  readonly new_string: string;
  readonly replace_all: boolean;
}

/** Throws `INVALID_PARAMS` unless either one replacement is given or a list of them. */
function editsOf(params: {
  readonly old_string?: string | undefined;
  readonly new_string?: string | undefined;
  readonly replace_all: boolean;
  readonly edits?: readonly Edit[] | undefined;
}): readonly Edit[] {
  const { old_string: oldText, new_string: newText, edits } = params;
  const wrong = (path: string, message: string): PawlError =>
    new PawlError('INVALID_PARAMS', `${path} ${message}.`, { issues: [{ path, message }] });
  if (edits !== undefined && (oldText !== undefined || newText !== undefined))
    throw wrong('edits', 'cannot be given together with old_string and new_string');
  if (edits === undefined && oldText === undefined) throw wrong('old_string', 'is required, unless edits is given');
  if (edits === undefined && newText === undefined) throw wrong('new_string', 'is required, unless edits is given');
  const list = edits ?? [{ old_string: oldText ?? '', new_string: newText ?? '', replace_all: params.replace_all }];
  if (list.some((edit) => edit.old_string === edit.new_string))
    throw new PawlError('INVALID_PARAMS', 'new_string is the same as old_string: there is nothing to change.');
  return list;
}

/** The new content, and the line of each place that was replaced. */
function replaced(path: string, text: string, edits: readonly Edit[]): { content: string; lines: readonly number[] } {
  let content = text;
  const lines: number[] = [];
  edits.forEach((edit, index) => {
    const { from, to } = inLineEndsOf(content, edit.old_string, edit.new_string);
    const positions = placesOf(content, from, MAX_PLACES + 1);
    const which = edits.length === 1 ? '' : `Edit ${index + 1} of ${edits.length}: `;
    if (positions.length === 0) {
      const head = `${which}old_string was found 0 times in ${JSON.stringify(path)}; nothing was changed.`;
      throw new PawlError('PRECONDITION_FAILED', `${head} ${explainAbsent(content, from)}`);
    }
    if (positions.length > 1 && !edit.replace_all)
      throw new PawlError('PRECONDITION_FAILED', which + explainSeveral(path, content, positions));
    if (lines.length + positions.length > MAX_PLACES)
      throw tooMuch(`${which}one call replaces at most ${MAX_PLACES} places`);
    if (content.length + positions.length * (to.length - from.length) > MAX_LENGTH)
      throw tooMuch(`${which}${JSON.stringify(path)} would have more than ${MAX_LENGTH} characters`);
    for (const line of linesAt(content, positions)) lines.push(line);
    // Not String.replace: "$&" in the new text is text.
    content = positions
      .map((at, place) => content.slice(place === 0 ? 0 : (positions[place - 1] ?? 0) + from.length, at))
      .concat(content.slice((positions.at(-1) ?? 0) + from.length))
      .join(to);
  });
  return { content, lines };
}

function tooMuch(why: string): PawlError {
  return new PawlError('INVALID_PARAMS', `${why}; nothing was changed.`);
}

function stands(content: string, text: string): boolean {
  return placesOf(content, text, 1).length > 0;
}

/** Models write line feeds; in a file whose lines end in CR LF they mean those. */
function inLineEndsOf(content: string, oldText: string, newText: string): { from: string; to: string } {
  const convert = (text: string): string => text.replaceAll(/\r?\n/g, '\r\n');
  // A text without a line end stands in any file: there only a file that has no other line ends says what is meant.
  const isMeant = () => !/(?<!\r)\n/.test(content) || !stands(content, oldText);
  if (oldText.includes('\r') || !content.includes('\r\n') || !isMeant()) return { from: oldText, to: newText };
  return { from: convert(oldText), to: convert(newText) };
}

/** The lines of ascending positions, in one walk. */
function linesAt(content: string, positions: readonly number[]): number[] {
  let line = 1;
  let lineEnd = content.indexOf('\n');
  return positions.map((position) => {
    for (; lineEnd !== -1 && lineEnd < position; lineEnd = content.indexOf('\n', lineEnd + 1)) line += 1;
    return line;
  });
}

function explainSeveral(path: string, content: string, positions: readonly number[]): string {
  const lines = linesAt(content, positions.slice(0, MAX_NAMED_LINES));
  const more = positions.length > MAX_NAMED_LINES ? ' and more' : '';
  return `old_string was found ${positions.length} times in ${JSON.stringify(path)}, at lines ${lines.join(', ')}${more}; nothing was changed. Take more of the lines around it into old_string to make it unique, or set replace_all to true.`;
}
