/** The form of a tool for models: a function with JSON arguments, free text, or a tool that the provider offers itself. */
import type { Workspace } from './capabilities.ts';
import type { OperationCost } from './operation-cost.ts';

/** The format of a freeform tool's text. `grammar` binds models that can be bound; `diff` is the `*** Begin Patch` format. */
export type FreeformFormat =
  | { readonly type: 'text' }
  | { readonly type: 'grammar'; readonly syntax: 'lark' | 'regex'; readonly definition: string }
  | { readonly type: 'diff'; readonly definition: string };

export type ToolVariant =
  | { readonly type: 'function' }
  /**
   * One text instead of arguments. Where a provider has no such tools, it is a function with the parameter `input`. A tool that names
   * another `parameter` for the text, the only one that it requires, is a function unless the provider's own forms are requested.
   */
  | { readonly type: 'freeform'; readonly format: FreeformFormat; readonly parameter?: string }
  /** The provider's own shell tool where it has one, elsewhere a function. The tool needs a parameter `command`. */
  | { readonly type: 'local-shell' }
  /** The provider's own web search where it has one, which the provider runs; elsewhere a function. */
  | { readonly type: 'web-search'; readonly externalWebAccess?: boolean };

/** The variants of a tool with its own parameters. Free text must name its parameter. */
export type VariantWithParameters =
  | Exclude<ToolVariant, { readonly type: 'freeform' }>
  | (Extract<ToolVariant, { readonly type: 'freeform' }> & { readonly parameter: string });

export interface ToolIcon {
  /** An address of the scheme `https:` or `data:`. */
  readonly src: string;
  readonly mimeType?: string;
}

/** Parameters that show the intended use of the tool. The schema checks them when the tool is defined. */
export interface ToolExample {
  readonly params: Readonly<Record<string, unknown>>;
  readonly description?: string;
}

/** The cost of a call, and the most calls that are sensible. A fleet enforces them in the claim (`docs/budgets.md`). */
export interface ToolBudget {
  /** The cost in units of the operator's choice. Default 1. */
  readonly costUnits?: number;
  /** The costs of single operations. The fitting entry with the most conditions counts; of equal ones, the dearest. */
  readonly costs?: readonly OperationCost[];
  readonly maxCallsPerTurn?: number;
  readonly maxCallsPerSession?: number;
}

/** The preview on which a person decides: one line, and its details, such as a diff. */
export interface ToolPreview {
  readonly summary: string;
  readonly details?: string;
}

/** The context of a preview, through which it can read and change nothing. */
export interface PreviewContext {
  /** Throws `PERMISSION_DENIED` when the tool does not need the workspace or the session has none. */
  readonly workspace: Pick<Workspace, 'root' | 'read' | 'list'>;
  /** The signal is aborted when the preview's time is over. */
  readonly signal: AbortSignal;
  /** A unified diff of one file; `undefined` is a file that is not there. */
  diff(path: string, before: string | Uint8Array | undefined, after: string | Uint8Array | undefined): string;
}
