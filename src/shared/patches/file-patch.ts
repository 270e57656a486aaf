/** Patches as data: one entry for each file, its changes as hunks. */

export type FilePatch =
  | { readonly kind: 'add'; readonly path: string; readonly content: string; readonly isExecutable?: boolean }
  | { readonly kind: 'delete'; readonly path: string }
  | {
      readonly kind: 'update';
      readonly path: string;
      readonly moveTo?: string;
      readonly hunks: readonly Hunk[];
      /** The file keeps its mode where this is absent. */
      readonly isExecutable?: boolean;
    };

export interface Hunk {
  /** Lines above the hunk, such as a class's and its function's head, the outer one first. The search starts below the last. */
  readonly headings: readonly string[];
  /** The line, counted from 1, at which a unified diff expects the hunk. The nearest match wins. */
  readonly nearLine?: number;
  readonly lines: readonly HunkLine[];
  readonly atEnd: boolean;
  readonly noLineEnd: boolean;
}

export interface HunkLine {
  readonly kind: 'keep' | 'remove' | 'add';
  readonly text: string;
}
