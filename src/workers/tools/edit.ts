import { z } from 'zod';
import { PawlError } from '../../shared/failure.ts';
import { defineTool, type ToolContext } from '../../shared/tool.ts';

const MAX_NAMED_LINES = 10;
const MAX_SHOWN_LENGTH = 160;

/**
 * Base tool `edit` (A16).
 *
 * Effects `probe`: a second run does not do the same again (the old text is gone, or, where the new text holds the old
 * one, it would be replaced twice), but the file itself tells whether the first one happened, because the file is
 * replaced in one step. So after a crash the worker looks instead of asking a person.
 */
export const edit = defineTool({
  name: 'edit',
  version: '1.0.0',
  description: [
    'Replaces a piece of text in a file of the workspace.',
    'old_string must stand in the file exactly as given, white space and indentation included, and exactly once unless replace_all is true; otherwise nothing is changed and the error says how often and where it was found.',
    'Read the file first, and take a line or two around the change into old_string when it is not unique.',
    'To delete text give an empty new_string. To create a file or replace all of it use write.',
  ].join(' '),
  tier: 'workspace',
  effects: 'probe',
  annotations: {
    readOnlyHint: false,
    destructiveHint: true,
    idempotentHint: false,
    openWorldHint: false,
    editHint: true,
  },
  needs: ['workspace:read', 'workspace:write'],
  input: z.object({
    path: z.string().min(1).describe('Path of the file, relative to the workspace root.'),
    old_string: z.string().min(1).describe('The text to replace, copied exactly from the file.'),
    new_string: z.string().describe('The text to put in its place. It must differ from old_string.'),
    replace_all: z
      .boolean()
      .default(false)
      .describe('Replace every occurrence, for example to rename something. Default false: the text must be unique.'),
  }),
  output: z.object({
    path: z.string(),
    replacements: z.int().nullable().describe('Null when the edit was found to be done after a crash.'),
  }),
  async run({ path, old_string: oldText, new_string: newText, replace_all: replaceAll }, ctx) {
    if (oldText === newText)
      throw new PawlError('INVALID_PARAMS', 'new_string is the same as old_string: there is nothing to change.');
    const content = await textOf(path, ctx);
    const { from, to } = inLineEndsOf(content, oldText, newText);
    const positions = positionsOf(content, from);
    if (positions.length === 0) throw new PawlError('PRECONDITION_FAILED', explainAbsent(path, content, from));
    if (positions.length > 1 && !replaceAll)
      throw new PawlError('PRECONDITION_FAILED', explainSeveral(path, content, positions));
    // Not String.replace: "$&" in the new text is text.
    await ctx.workspace.write(path, content.split(from).join(to));
    const count = positions.length;
    return {
      output: { path, replacements: count },
      display: `Edited ${path} (${count === 1 ? `line ${lineAt(content, positions[0] ?? 0)}` : `${count} places`})`,
      artifacts: [{ kind: 'file-modified', reference: path }],
    };
  },
  async probe({ path, old_string: oldText, new_string: newText }, ctx) {
    const content = await textOf(path, ctx);
    const { from, to } = inLineEndsOf(content, oldText, newText);
    const hasOld = content.includes(from);
    const hasNew = to !== '' && content.includes(to);
    if (hasOld && !hasNew) return { state: 'not-done' };
    if (!hasOld && (hasNew || to === '')) {
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
  preview: ({ path, old_string: oldText, new_string: newText, replace_all: replaceAll }) => ({
    summary: `Edit ${path}${replaceAll ? ', every occurrence' : ''}`,
    details: [
      ...oldText.split('\n').map((line) => `- ${line}`),
      ...newText.split('\n').map((line) => `+ ${line}`),
    ].join('\n'),
  }),
});

/** Writing back a text that was decoded with replacement characters would destroy the file: refused instead. */
async function textOf(path: string, ctx: ToolContext): Promise<string> {
  const bytes = await ctx.workspace.read(path);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw new PawlError('PRECONDITION_FAILED', `${JSON.stringify(path)} is not UTF-8 text and cannot be edited.`, {
      cause: error,
    });
  }
}

/** Models write line feeds; in a file whose lines end in CR LF they mean those. */
function inLineEndsOf(content: string, oldText: string, newText: string): { from: string; to: string } {
  const isMeant = !content.includes(oldText) && content.includes('\r\n') && !oldText.includes('\r');
  if (!isMeant) return { from: oldText, to: newText };
  const convert = (text: string): string => text.replaceAll(/\r?\n/g, '\r\n');
  return { from: convert(oldText), to: convert(newText) };
}

function positionsOf(content: string, text: string): number[] {
  const positions: number[] = [];
  for (let at = content.indexOf(text); at !== -1; at = content.indexOf(text, at + text.length)) positions.push(at);
  return positions;
}

function lineAt(content: string, position: number): number {
  let line = 1;
  for (let at = content.indexOf('\n'); at !== -1 && at < position; at = content.indexOf('\n', at + 1)) line += 1;
  return line;
}

function explainSeveral(path: string, content: string, positions: readonly number[]): string {
  const lines = positions.slice(0, MAX_NAMED_LINES).map((position) => lineAt(content, position));
  const more = positions.length > MAX_NAMED_LINES ? ' and more' : '';
  return `old_string was found ${positions.length} times in ${JSON.stringify(path)}, at lines ${lines.join(', ')}${more}; nothing was changed. Take more of the lines around it into old_string to make it unique, or set replace_all to true.`;
}

function explainAbsent(path: string, content: string, text: string): string {
  const head = `old_string was found 0 times in ${JSON.stringify(path)}; nothing was changed.`;
  const bare = (line: string): string => line.replaceAll(/\s+/g, '');
  const lines = content.split('\n');
  const wanted = text.split('\n').map(bare).filter(Boolean);
  const [first = ''] = wanted;
  const same = lines.findIndex((line) => bare(line) === first && first !== '');
  if (same !== -1) {
    const what = wanted.length > 1 ? 'Its first line stands' : 'It stands';
    return `${head} ${what} at line ${same + 1} when white space is left aside: ${shown(lines[same])}. Copy the text exactly from the file.`;
  }
  const { line, score } = lines.reduce<{ line: number; score: number }>(
    (best, candidate, index) => {
      const likeness = similarity(first, bare(candidate));
      return likeness > best.score ? { line: index, score: likeness } : best;
    },
    { line: -1, score: 0 },
  );
  if (score < 0.5) return `${head} No line resembles it: read the file again.`;
  return `${head} The nearest line is line ${line + 1}: ${shown(lines[line])}. Read the file again and copy the text exactly.`;
}

/** 0 to 1: the share of letter pairs that two lines have in common. */
function similarity(a: string, b: string): number {
  if (a.length < 2 || b.length < 2) return 0;
  const pairs = new Map<string, number>();
  for (let at = 0; at < a.length - 1; at += 1)
    pairs.set(a.slice(at, at + 2), (pairs.get(a.slice(at, at + 2)) ?? 0) + 1);
  let common = 0;
  for (let at = 0; at < b.length - 1; at += 1) {
    const pair = b.slice(at, at + 2);
    const left = pairs.get(pair) ?? 0;
    if (left === 0) continue;
    pairs.set(pair, left - 1);
    common += 1;
  }
  return (2 * common) / (a.length + b.length - 2);
}

function shown(line: string | undefined): string {
  const text = (line ?? '').replace(/\r$/, '');
  return JSON.stringify(text.length <= MAX_SHOWN_LENGTH ? text : `${text.slice(0, MAX_SHOWN_LENGTH)}…`);
}
