/** Reads files as text, for tools. */
import { createHash } from 'node:crypto';
import { PawlError } from '../../../shared/errors/failure.ts';
import type { Workspace } from '../../../shared/tools/capabilities.ts';
import { utf16Of } from '../../../shared/util/text/charset.ts';

export interface TextFile {
  readonly text: string;
  /** SHA-256 (hex) of the bytes: what `expected` compares. */
  readonly hash: string;
}

export function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Throws for a file that is not UTF-8: writing back a text that was decoded with replacement characters would destroy the file. */
export async function readText(path: string, ctx: { readonly workspace: Pick<Workspace, 'read'> }): Promise<TextFile> {
  const bytes = await ctx.workspace.read(path);
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes), hash: hashOf(bytes) };
  } catch (error) {
    const encoding = utf16Of(bytes) === undefined ? 'not UTF-8 text' : 'UTF-16 text';
    throw new PawlError(
      'PRECONDITION_FAILED',
      `${JSON.stringify(path)} is ${encoding} and cannot be edited; a program such as iconv can convert it to UTF-8.`,
      { cause: error },
    );
  }
}

/** The media type of an image that models can see, detected by its first bytes. */
export function imageTypeOf(bytes: Uint8Array): 'image/png' | 'image/jpeg' | 'image/gif' | 'image/webp' | undefined {
  const starts = (...values: number[]) => values.every((value, index) => bytes[index] === value);
  if (starts(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return 'image/png';
  if (starts(0xff, 0xd8, 0xff)) return 'image/jpeg';
  if (starts(0x47, 0x49, 0x46, 0x38)) return 'image/gif';
  const ascii = (from: number, to: number) => String.fromCharCode(...bytes.subarray(from, to));
  return ascii(0, 4) === 'RIFF' && ascii(8, 12) === 'WEBP' ? 'image/webp' : undefined;
}

/** Binary by Git's rule: a NUL among the first bytes. */
export function isBinary(bytes: Uint8Array): boolean {
  return bytes.subarray(0, 8_192).includes(0);
}
