/** What a tool returns (A12, D2): `output` for the model, `display` for people, and what it left behind. */

export interface Artifact {
  readonly kind: 'file-created' | 'file-modified' | 'file-deleted' | 'memory-record' | 'other';
  readonly reference: string;
}

/** One piece of content for models that take more than text, in the shape of MCP's content blocks. */
export type ContentBlock =
  | { readonly type: 'text'; readonly text: string }
  /** `data` is base64. */
  | { readonly type: 'image' | 'audio'; readonly data: string; readonly mimeType: string }
  | {
      readonly type: 'resource';
      readonly uri: string;
      readonly mimeType?: string;
      readonly text?: string;
      /** base64. */
      readonly blob?: string;
    };

export interface ToolResult<Output> {
  readonly output: Output;
  readonly display?: string;
  readonly artifacts?: readonly Artifact[];
  /** Beside `output`, for models: text, images, audio, resources. */
  readonly content?: readonly ContentBlock[];
  /** False: the tool did its work and the answer is "no", such as a failed test run. The call is a success all the same (C15). */
  readonly success?: boolean;
  /** The result holds text from outside: not to be trusted as an instruction. Default: the tool's `openWorldHint`. */
  readonly tainted?: boolean;
}

/** A probe's answer about an attempt that left no record. `not-done` lets the call run again. */
export type ProbeAnswer<Output> =
  | { readonly state: 'done'; readonly result: ToolResult<Output> }
  | { readonly state: 'not-done' }
  | { readonly state: 'unknown' };
