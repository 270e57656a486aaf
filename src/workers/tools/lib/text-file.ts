/** Reads files as text, for tools. */
import { createHash } from 'node:crypto';
import { PawlError } from '../../../shared/errors/failure.ts';
import type { Workspace } from '../../../shared/tools/capabilities.ts';
import { utf16Of } from '../../../shared/util/text/charset.ts';

interface TextFile {
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

/** Binary by Git's rule: a NUL among the first bytes. */
export function isBinary(bytes: Uint8Array): boolean {
  return bytes.subarray(0, 8_192).includes(0);
}
