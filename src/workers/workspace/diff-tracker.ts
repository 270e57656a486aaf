/** Tracks the changes that one call makes in the workspace, while it runs. */
import { createRequire } from 'node:module';
import type { DiffTracker, FileChange } from '../../shared/tools/capabilities.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';

/** Comparing larger files line by line would take longer than the write. */
const MAX_DIFF_BYTES = 256 * 1024;
/** The most removed and added lines. The time to find them grows with the square of their number. */
const MAX_EDITS = 2_000;
/** The time for all files of a call together. */
const MAX_DIFF_MS = 500;

/** The library is loaded with the first diff, because few calls ask for one. */
const require = createRequire(import.meta.url);

interface TrackedFile {
  before: Uint8Array | undefined;
  after: Uint8Array | undefined;
}

export class CallDiffTracker implements DiffTracker {
  readonly #byPath = new Map<string, TrackedFile>();

  note({ path, before, after }: FileChange): void {
    const tracked = this.#byPath.get(path);
    if (tracked === undefined) this.#byPath.set(path, { before, after });
    else tracked.after = after;
  }

  changes(): readonly FileChange[] {
    return [...this.#byPath].flatMap(([path, { before, after }]) => {
      if (isSameContent(before, after)) return [];
      return [{ path, ...(before !== undefined && { before }), ...(after !== undefined && { after }) }];
    });
  }

  unified(): string {
    const untilMs = performance.now() + MAX_DIFF_MS;
    return this.changes()
      .map(({ path, before, after }) =>
        performance.now() > untilMs
          ? tooDifferent(...diffNames(path, before, after))
          : unifiedDiff(path, before, after),
      )
      .join('');
  }
}

/**
 * Returns a unified diff of one file, with `/dev/null` for an absent file. Binary files, very large ones, and files
 * that differ in very many lines are only named.
 */
export function unifiedDiff(
  path: string,
  before: Uint8Array | string | undefined,
  after: Uint8Array | string | undefined,
): string {
  const [from, to] = diffNames(path, before, after);
  const [oldText, newText] = [textOf(before), textOf(after)];
  if (oldText === undefined || newText === undefined) return `Binary or large files ${from} and ${to} differ\n`;
  // A diff against nothing takes no time.
  const limit = oldText === '' || newText === '' ? {} : { maxEditLength: MAX_EDITS };
  const { createTwoFilesPatch } = require('diff') as typeof import('diff');
  const patch = createTwoFilesPatch(from, to, oldText, newText, undefined, undefined, { context: 3, ...limit });
  // The library begins with a line of "=", which is no part of the format.
  return patch === undefined ? tooDifferent(from, to) : patch.slice(patch.indexOf('\n') + 1);
}

function diffNames(path: string, before: unknown, after: unknown): readonly [from: string, to: string] {
  return [before === undefined ? '/dev/null' : `a/${path}`, after === undefined ? '/dev/null' : `b/${path}`];
}

function tooDifferent(from: string, to: string): string {
  return `Files ${from} and ${to} differ in too many lines to be shown\n`;
}

function textOf(content: Uint8Array | string | undefined): string | undefined {
  if (content === undefined) return '';
  if (typeof content === 'string') return content.length > MAX_DIFF_BYTES ? undefined : content;
  if (content.byteLength > MAX_DIFF_BYTES || content.includes(0)) return undefined;
  return orUndefined(() => new TextDecoder('utf-8', { fatal: true }).decode(content));
}

function isSameContent(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return Buffer.compare(a, b) === 0;
}
