/** What a tool looks like to a model (C4, C6): a function with JSON arguments, free text, or what a provider knows by itself. */
import type { Workspace } from './capabilities.ts';
import type { OperationCost } from './operation-cost.ts';

/** How a freeform tool's text is written. `grammar` binds models that can be bound; `diff` is the seed's patch format. */
export type FreeformFormat =
  | { readonly type: 'text' }
  | { readonly type: 'grammar'; readonly syntax: 'lark' | 'regex'; readonly definition: string }
  | { readonly type: 'diff'; readonly definition: string };

export type ToolVariant =
  | { readonly type: 'function' }
  /**
   * One text instead of arguments. Where a provider has no such tools, a function with the parameter `input`. A tool that names another
   * `parameter` for the text, the only one that it requires, is a function unless the provider's own forms are asked for.
   */
  | { readonly type: 'freeform'; readonly format: FreeformFormat; readonly parameter?: string }
  /** The provider's own shell tool where it has one; elsewhere the function that it is. Needs a parameter `command`. */
  | { readonly type: 'local-shell' }
  /** The provider's own web search where it has one, run by the provider; elsewhere the function that it is. */
  | { readonly type: 'web-search'; readonly externalWebAccess?: boolean };

/** Of a tool with parameters of its own choice: free text has to say which one it is. */
export type VariantWithParameters =
  | Exclude<ToolVariant, { readonly type: 'freeform' }>
  | (Extract<ToolVariant, { readonly type: 'freeform' }> & { readonly parameter: string });

export interface ToolIcon {
  /** `https:` or `data:`. */
  readonly src: string;
  readonly mimeType?: string;
}

/** Parameters that show how the tool is meant to be used. Checked against the schema when the tool is defined. */
export interface ToolExample {
  readonly params: Readonly<Record<string, unknown>>;
  readonly description?: string;
}

/** What a call costs, and how many are sensible. Enforced in the claim, by fleets: `docs/budgets.md`. */
export interface ToolBudget {
  /** In units of the operator's choice. Default 1. */
  readonly costUnits?: number;
  /** What single operations cost: of the entries that fit, the one with the most conditions; of equal ones, the dearest. */
  readonly costs?: readonly OperationCost[];
  readonly maxCallsPerTurn?: number;
  readonly maxCallsPerSession?: number;
}

/** What a person decides on (D4): one line, and all that stands behind it, such as a diff. */
export interface ToolPreview {
  readonly summary: string;
  readonly details?: string;
}

/** What a preview may look at. It changes nothing. */
export interface PreviewContext {
  /** Throws `PERMISSION_DENIED` when the tool does not need the workspace or the session has none. */
  readonly workspace: Pick<Workspace, 'root' | 'read' | 'list'>;
  /** Aborted when the preview's time is over. */
  readonly signal: AbortSignal;
  /** A unified diff of one file; `undefined` is a file that is not there. */
  diff(path: string, before: string | Uint8Array | undefined, after: string | Uint8Array | undefined): string;
}
