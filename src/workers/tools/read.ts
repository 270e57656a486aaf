import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { PawlError } from '../../shared/errors/failure.ts';
import type { WorkspaceEntry } from '../../shared/tools/capabilities.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import { imageTypeOf } from '../../shared/util/image-type.ts';
import { utf16Of } from '../../shared/util/text/charset.ts';
import { capitalized, didYouMean } from '../../shared/util/text/nearest.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { escapeLine } from '../../shared/util/text/visible-text.ts';
import { hashOf, isBinary } from './lib/text-file.ts';
import { readsFiles } from './lib/tool-presets.ts';

const DEFAULT_LINES = 2_000;
const MAX_BYTES = 256 * 1024;
const MAX_LISTED_NAMES = 40;
/** How many folders of a missing path are looked for. */
const MAX_STEPS = 32;

export const read = defineBaseTool({
  name: 'read',
  version: '1.1.0',
  description: [
    'Reads a text file of the workspace.',
    `Returns its content exactly as it stands in the file, at most ${DEFAULT_LINES} lines and ${MAX_BYTES / 1024} KiB at once; a cut is marked at the end of the content, with the offset to go on from.`,
    'Read a file before you edit it, and again after another call may have changed it.',
    'For a folder or a missing file the error names what is there instead.',
  ].join(' '),
  ...readsFiles,
  input: z.object({
    path: z.string().min(1).describe('Path of the file, relative to the workspace root, for example "src/main.ts".'),
    offset: z
      .int()
      .min(1)
      .optional()
      .describe('First line to return, counted from 1. Leave it out to begin at the top.'),
    limit: z
      .int()
      .min(1)
      .optional()
      .describe(`How many lines to return. Default ${DEFAULT_LINES}. Give it only for files too long to read at once.`),
    line_numbers: z
      .boolean()
      .default(false)
      .describe(
        'Put the number of each line and a tab before it. They are not part of the file: leave them out of edits.',
      ),
  }),
  output: z.object({
    path: z.string(),
    content: z.string().describe('The lines, with their line ends.'),
    startLine: z.int().describe('Number of the first returned line; 0 for an empty file.'),
    endLine: z.int().describe('Number of the last returned line; 0 for an empty file.'),
    totalLines: z.int(),
    truncated: z.boolean().describe('Whether lines that were asked for are missing at the end.'),
    hash: z.string().describe('SHA-256 of the whole file, for expected_hash of edit and write.'),
  }),
  async run({ path, offset, limit, line_numbers: numbered }, ctx) {
    const bytes = await ctx.workspace.read(path).catch((error: unknown) => explainPathError(error, path, ctx));
    const image = imageTypeOf(bytes);
    const utf16 = utf16Of(bytes);
    if (image !== undefined || (utf16 === undefined && isBinary(bytes))) {
      const kind = image === undefined ? 'a binary file' : `an image (${image})`;
      const hint = image === undefined ? '' : ' Look at it with view_image.';
      throw new PawlError(
        'INVALID_PARAMS',
        `${JSON.stringify(path)} is ${kind} of ${bytes.length} bytes; only text can be read.${hint}`,
      );
    }
    const lines = linesOf(new TextDecoder(utf16 ?? 'utf-8', { ignoreBOM: true }).decode(bytes));
    if (offset !== undefined && offset > Math.max(lines.length, 1)) {
      throw new PawlError(
        'INVALID_PARAMS',
        `offset ${offset} is past the end: ${JSON.stringify(path)} has ${lines.length} lines.`,
      );
    }
    const first = (offset ?? 1) - 1;
    const selected = lines.slice(first, first + (limit ?? DEFAULT_LINES));
    const { returnedLines, cutBytes } = limitBytes(selected);
    const endLine = lines.length === 0 ? 0 : first + returnedLines.length;
    const truncated =
      cutBytes > 0 || returnedLines.length < selected.length || (limit === undefined && endLine < lines.length);
    const mark = truncated
      ? `\n[truncated: lines ${first + 1} to ${endLine} of ${lines.length}${cutBytes > 0 ? `, ${cutBytes} bytes of these lines left out` : ''}${endLine < lines.length ? `; go on with offset ${endLine + 1}` : ''}]\n`
      : '';
    const isLossy = utf16 === undefined && !isUtf8(bytes);
    const warning = isLossy
      ? '\n[not UTF-8: bytes that are no text are shown as \ufffd, and edit refuses this file]\n'
      : '';
    const count = returnedLines.length;
    return {
      output: {
        path,
        content:
          (numbered ? returnedLines.map((line, index) => `${first + index + 1}\t${line}`) : returnedLines).join('') +
          mark +
          warning,
        startLine: lines.length === 0 ? 0 : first + 1,
        endLine,
        totalLines: lines.length,
        truncated,
        hash: hashOf(bytes),
      },
      display: `Read ${plural(count, 'line')} of ${path}${count === lines.length ? '' : ` (${first + 1} to ${endLine} of ${lines.length})`}`,
    };
  },
});

/** Splits a text into lines with their ends. A line end at the end of the text does not begin another line. */
function linesOf(text: string): string[] {
  const lines = text.split(/(?<=\n)/);
  return lines.at(-1) === '' ? lines.slice(0, -1) : lines;
}

/** Returns as many whole lines as fit. A first line that is too long by itself is cut, so that every call makes progress. */
function limitBytes(lines: readonly string[]): { returnedLines: string[]; cutBytes: number } {
  const returnedLines: string[] = [];
  let bytes = 0;
  for (const line of lines) {
    const length = Buffer.byteLength(line);
    if (bytes + length > MAX_BYTES) {
      if (returnedLines.length > 0) return { returnedLines, cutBytes: 0 };
      const start = Buffer.from(line).subarray(0, MAX_BYTES);
      return {
        returnedLines: [new TextDecoder('utf-8', { ignoreBOM: true }).decode(start, { stream: true })],
        cutBytes: length - MAX_BYTES,
      };
    }
    returnedLines.push(line);
    bytes += length;
  }
  return { returnedLines, cutBytes: 0 };
}

/** Adds the content of the folder, or of the nearest one above that is there, to errors that a look at it would help to correct. */
async function explainPathError(error: unknown, path: string, ctx: ToolContext): Promise<never> {
  if (!(error instanceof PawlError) || (error.code !== 'NOT_FOUND' && error.code !== 'INVALID_PARAMS')) throw error;
  for (const { folder, missing } of error.code === 'NOT_FOUND' ? foldersAbove(path) : [{ folder: path }]) {
    const entries = await ctx.workspace.list(folder).catch(() => undefined);
    if (entries !== undefined)
      throw new PawlError(error.code, `${error.message} ${folderHint(folder, entries, missing)}`, { cause: error });
  }
  throw error;
}

/** The folders above a path, the nearest first, each with the name of the path that is missing in it. */
function foldersAbove(path: string): readonly { readonly folder: string; readonly missing?: string }[] {
  const steps = path.split('/').slice(0, MAX_STEPS);
  return steps.map((missing, depth) => ({ folder: steps.slice(0, depth).join('/') || '.', missing })).reverse();
}

/** The name that was probably meant, or else what the folder holds. */
function folderHint(folder: string, entries: readonly WorkspaceEntry[], missing: string | undefined): string {
  const names = entries.map(({ path, kind }) => `${path.split('/').at(-1)}${kind === 'directory' ? '/' : ''}`);
  if (missing !== undefined && names.includes(missing))
    return missing.includes('\ufffd')
      ? 'Its name holds bytes that are not UTF-8, so no path leads to it; a program can rename it.'
      : `${JSON.stringify(missing)} is a symbolic link, and what it leads to does not exist.`;
  const similar = missing === undefined ? '' : didYouMean(missing, names);
  if (similar !== '') return escapeLine(capitalized(similar));
  const listed =
    names.slice(0, MAX_LISTED_NAMES).map(escapeLine).join(', ') +
    (names.length > MAX_LISTED_NAMES ? ` and ${names.length - MAX_LISTED_NAMES} more` : '');
  return `${JSON.stringify(folder)} holds: ${listed || 'nothing'}.`;
}
