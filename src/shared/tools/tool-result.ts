/** The result of a tool: `output` for the model, `display` for people, and the artifacts that it left. */
import { reasonOf } from '../errors/failure.ts';
import { describeUnknown } from '../schema/known-members.ts';
import { findUnserializable } from '../util/json/json-support.ts';
import { isObject } from '../util/json/json-types.ts';
import { wellFormed } from '../util/text/text-cut.ts';
import { isPending } from './pending.ts';

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
  /** Text, images, audio and resources for models, beside `output`. */
  readonly content?: readonly ContentBlock[];
  /** False when the tool did its work and the answer is "no", such as a failed test run. The call is a success all the same. */
  readonly success?: boolean;
  /** True when the result holds text from outside, which must not be trusted as an instruction. Default: the tool's `openWorldHint`. */
  readonly tainted?: boolean;
}

/** A probe's answer about an attempt that left no record. `not-done` lets the call run again. */
export type ProbeAnswer<Output> =
  | { readonly state: 'done'; readonly result: ToolResult<Output> }
  | { readonly state: 'not-done' }
  | { readonly state: 'unknown' };

const MEMBERS: readonly string[] = ['output', 'display', 'artifacts', 'content', 'success', 'tainted'];

/** A sentence about members that no result has, such as misspelt ones: they are left out of it. */
export function unknownMembers(toolName: string, result: unknown): string | undefined {
  const unknown = isObject(result) ? Object.keys(result).filter((name) => !MEMBERS.includes(name)) : [];
  return unknown.length === 0
    ? undefined
    : `A result ${describeUnknown(unknown, MEMBERS)}; ${toolName} returned one with it, which is left out.`;
}

const ARTIFACT_KINDS: readonly string[] = ['file-created', 'file-modified', 'file-deleted', 'memory-record', 'other'];

/**
 * Checks a tool's result and brings it into its form; no other place does. Text that is not well-formed Unicode is repaired, and
 * `undefined` becomes null. Returns a sentence about a value that cannot be a result.
 */
export function normalizeResult(toolName: string, value: unknown): ToolResult<unknown> | string {
  if (isPending(value)) return `${toolName} may return ctx.pending from run alone.`;
  if (typeof value !== 'object' || value === null || !('output' in value))
    return `${toolName} must return { output, display?, artifacts? }; it returned ${kindOf(value) === 'object' ? 'an object without output' : kindOf(value)}.`;
  const { output, display, artifacts, content, success, tainted } = value as ToolResult<unknown>;
  const fault = (field: string, expected: string, actual: unknown) =>
    `${toolName} must return ${expected} as ${field}; it returned ${kindOf(actual)}.`;
  for (const [field, member] of Object.entries({ output, artifacts, content })) {
    const unserializable = describeUnserializable(field, member);
    if (unserializable !== undefined)
      return `${toolName} must return a JSON-serializable value as ${field}; it returned ${unserializable}.`;
  }
  if (display !== undefined && typeof display !== 'string') return fault('display', 'a text', display);
  if (artifacts !== undefined && !Array.isArray(artifacts)) return fault('artifacts', 'a list', artifacts);
  if (content !== undefined && !Array.isArray(content)) return fault('content', 'a list', content);
  if (success !== undefined && typeof success !== 'boolean') return fault('success', 'true or false', success);
  if (tainted !== undefined && typeof tainted !== 'boolean') return fault('tainted', 'true or false', tainted);
  for (const [index, block] of (content ?? []).entries())
    if (!isContentBlock(block)) return fault(`content[${index}]`, 'text, image, audio or resource', block);
  for (const [index, artifact] of (artifacts ?? []).entries())
    if (!isArtifact(artifact)) return fault(`artifacts[${index}]`, 'a kind and a reference', artifact);
  return wellFormed({
    output: output ?? null,
    ...(display !== undefined && { display }),
    ...(artifacts !== undefined && { artifacts }),
    ...(content !== undefined && { content }),
    ...(success !== undefined && { success }),
    ...(tainted !== undefined && { tainted }),
  });
}

/** Finds values that JSON would drop in silence: the caller would get a success without its output, or without a part of it. */
function describeUnserializable(field: string, value: unknown): string | undefined {
  try {
    const found = findUnserializable(value);
    return found === undefined || found.path === '' ? found?.kind : `${found.kind} in ${field}${found.path}`;
  } catch (error) {
    return `one that throws: ${reasonOf(error)}`;
  }
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  return value === null ? 'null' : typeof value;
}

function isArtifact(value: unknown): value is Artifact {
  const { kind, reference } = (value ?? {}) as Partial<Artifact>;
  return typeof kind === 'string' && ARTIFACT_KINDS.includes(kind) && typeof reference === 'string';
}

function isContentBlock(value: unknown): value is ContentBlock {
  const block = (value ?? {}) as Partial<Record<string, unknown>>;
  switch (block['type']) {
    case 'text':
      return typeof block['text'] === 'string';
    case 'image':
    case 'audio':
      return typeof block['data'] === 'string' && typeof block['mimeType'] === 'string';
    case 'resource':
      return (
        typeof block['uri'] === 'string' && ['mimeType', 'text', 'blob'].every((name) => isTextOrAbsent(block[name]))
      );
    default:
      return false;
  }
}

function isTextOrAbsent(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

/** The members of `output.metadata` beside the content. */
export function resultMetadata(
  { display, artifacts = [], content = [], success, tainted }: ToolResult<unknown>,
  extra: { readonly outside: boolean; readonly diff: string },
): Readonly<Record<string, unknown>> {
  return {
    ...(display !== undefined && { display }),
    ...(artifacts.length === 0 ? {} : { artifacts }),
    ...(content.length === 0 ? {} : { content }),
    ...(success === false ? { success } : {}),
    ...((tainted ?? extra.outside) ? { tainted: true } : {}),
    ...(extra.diff === '' ? {} : { diff: extra.diff }),
  };
}
