/** Converts the result of an MCP tool into a Pawl tool result. */
import { isUtf8 } from 'node:buffer';
import type { CallToolResult } from '@modelcontextprotocol/client';
import { ToolError } from '../../../shared/errors/failure.ts';
import { canonicalJson } from '../../../shared/schema/canonical-json.ts';
import type { ContentBlock, ToolResult } from '../../../shared/tools/tool-result.ts';
import { parseWithLongNumbersAsText } from '../../../shared/util/json/exact-json.ts';
import { membersIn } from '../../../shared/util/json/json-types.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { orUndefined } from '../../../shared/util/or-undefined.ts';
import { asText } from '../../../shared/util/text/quote-value.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';

/**
 * The output is the structured content, or else the text, or else what the result says in members that are not the protocol's. Images,
 * audio, resources and text that is not in the structured content stand beside it. Throws `MCP_TOOL_ERROR` with the server's text when the
 * tool reports a failure.
 */
export function toolResult(result: CallToolResult, declaresOutput = false): ToolResult<unknown> {
  const stated = result.structuredContent ?? result['structure'];
  const blocks = result.content.map(blockOf);
  const text = blocks.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
  if (result.isError === true)
    throw new ToolError(failureText(blocks, [stated, result['others']], result['meta']), {
      code: 'MCP_TOOL_ERROR',
    });
  // A server of another draft of the protocol may answer in members of its own alone.
  const structured = stated ?? (blocks.length === 0 ? result['others'] : undefined);
  const content = structured === undefined ? blocks : withoutRepetitions(blocks, structured);
  const isMore = content.some(({ type }) => type !== 'text' || structured !== undefined);
  return {
    output: structured ?? (declaresOutput ? parseJsonOrText(text) : text),
    ...(text === '' ? {} : { display: text }),
    ...(isMore ? { content } : {}),
  };
}

/** How deep a part of the structured content may be that a server writes as text, such as an item of a list in a member of its own. */
const REPEATED_DEPTH = 2;

/** Leaves out texts that repeat the structured content or a part of it, for clients that read text alone. */
function withoutRepetitions(blocks: readonly ContentBlock[], structured: unknown): readonly ContentBlock[] {
  const parts = new Set(partsOf(structured, REPEATED_DEPTH).map(comparable));
  const isRepeated = (text: string) =>
    text.trim() === '' || parts.has(comparable(text)) || parts.has(comparable(parseJsonOrText(text)));
  return blocks.filter((block) => block.type !== 'text' || !isRepeated(block.text));
}

/** A value that is nested too deeply to be sorted is compared as it is. */
function comparable(value: unknown): string {
  return orUndefined(() => canonicalJson(value)) ?? JSON.stringify(value);
}

function partsOf(value: unknown, depth: number): readonly unknown[] {
  if (depth === 0 || typeof value !== 'object' || value === null) return [value];
  return [value, ...Object.values(value).flatMap((part) => partsOf(part, depth - 1))];
}

/** Older servers return their declared output as text alone. */
function parseJsonOrText(text: string): unknown {
  try {
    return parseWithLongNumbersAsText(text);
  } catch {
    return text;
  }
}

/** Joins everything that a failed tool reports into one text. Its metadata counts when it says nothing else. */
function failureText(blocks: readonly ContentBlock[], members: readonly unknown[], meta: unknown): string {
  const texts = blocks.map(blockText).filter((text) => text.trim() !== '');
  for (const member of members) {
    const reported = reportedText(member);
    if (reported !== '' && !texts.some((text) => repeatsStructured(text, member))) texts.push(reported);
  }
  return texts.join('\n') || reportedText(meta) || 'The tool failed without a reason.';
}

/** Empty for a value that says nothing. */
function reportedText(value: unknown): string {
  if (value === undefined || value === null) return '';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text === '{}' || text === '[]' ? '' : text.trim();
}

function blockText(block: ContentBlock): string {
  switch (block.type) {
    case 'text':
      return block.text;
    case 'image':
    case 'audio':
      return `[${block.mimeType}]`;
    case 'resource':
      return resourceText(block);
  }
}

/** Some servers send text as data in Base64. */
function resourceText({ uri, text, blob, mimeType = '' }: Extract<ContentBlock, { type: 'resource' }>): string {
  if (text !== undefined) return `${uri}: ${text}`;
  const bytes = blob === undefined || MEDIA.test(mimeType) ? undefined : Buffer.from(blob, 'base64');
  return bytes === undefined || !isUtf8(bytes) || bytes.includes(0) ? `[${uri}]` : `${uri}: ${bytes.toString()}`;
}

const MEDIA = /^(?:image|audio|video|font)\//i;

/** Whether a text repeats the structured content. Servers write it as text, too, for clients that read text alone. */
function repeatsStructured(text: string, structured: unknown): boolean {
  try {
    return canonicalJson(parseWithLongNumbersAsText(text)) === canonicalJson(structured);
  } catch {
    return text === structured;
  }
}

type Block = CallToolResult['content'][number];

function blockOf(block: Block): ContentBlock {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'image':
    case 'audio':
      return { type: block.type, data: block.data, mimeType: block.mimeType };
    case 'resource':
      return resourceBlock(block.resource);
    case 'resource_link':
      return {
        type: 'resource',
        uri: block.uri,
        ...(block.mimeType !== undefined && { mimeType: block.mimeType }),
        text: [block.title ?? block.name, block.description].filter((text) => text !== undefined).join(': '),
      };
  }
}

/** Returns a block in the protocol's form, without unused fields. A short text replaces an unreadable block. */
export function readableBlock(block: unknown): Block {
  if (typeof block === 'string') return { type: 'text', text: block };
  const { type, text, data, mimeType, resource, uri, name, title, description } = membersIn(block);
  switch (type) {
    case 'text':
      return typeof text === 'string' ? { type, text } : omittedBlock(`a text block without text${membersOf(block)}`);
    case 'image':
    case 'audio':
      return isBase64(data) && typeof mimeType === 'string'
        ? { type, data, mimeType }
        : omittedBlock(
            `an ${type} block without data in Base64 or without its media type${membersOf(withoutData(block))}`,
          );
    case 'resource': {
      const contents = contentsOf(resource);
      return contents === undefined
        ? omittedBlock(`a resource block without an address, or without text or data in Base64${membersOf(block)}`)
        : { type, resource: contents };
    }
    case 'resource_link': {
      const details = stringMembers({ title, description, mimeType });
      return typeof uri === 'string'
        ? { type, uri, name: typeof name === 'string' ? name : uri, ...details }
        : omittedBlock(`a link without an address${membersOf(block)}`);
    }
    default:
      return typeof type === 'string'
        ? { type: 'text', text: `[a block of the unknown type ${JSON.stringify(type)}${membersOf(block)}]` }
        : omittedBlock(`a block that is ${block === null ? 'null' : `none${membersOf(block)}`}`);
  }
}

/** The members of a block beside its type, because a failed tool may explain itself there alone. */
function membersOf(block: unknown): string {
  const { type: _, ...members } = membersIn(block);
  if (Object.keys(members).length > 0) return `: ${startOf(JSON.stringify(members), MAX_MEMBERS_LENGTH)}`;
  return typeof block === 'object' ? '' : `: ${JSON.stringify(block)}`;
}

function withoutData(block: unknown): object {
  const { data: _, ...members } = membersIn(block);
  return members;
}

const MAX_MEMBERS_LENGTH = 2_000;

function omittedBlock(content: string): Extract<Block, { type: 'text' }> {
  return { type: 'text', text: `[left out: ${content}]` };
}

type Contents = { readonly uri: string; readonly mimeType?: string } & (
  | { readonly text: string }
  | { readonly blob: string }
);

/** Returns one entry of a resource's contents. A short text replaces an unreadable one. */
export function readableContents(contents: unknown): Contents {
  const { uri, ...members } = typeof contents === 'string' ? { text: contents } : membersIn(contents);
  const { text } = omittedBlock(`contents without text or data in Base64${membersOf(contents)}`);
  return contentsOf({ ...members, uri: typeof uri === 'string' ? uri : '' }) ?? { uri: asText(uri ?? ''), text };
}

function contentsOf(contents: unknown): Contents | undefined {
  const { uri, text, blob, mimeType } = membersIn(contents);
  if (typeof uri !== 'string') return undefined;
  const base = { uri, ...stringMembers({ mimeType }) };
  if (typeof text === 'string') return { ...base, text };
  return isBase64(blob) ? { ...base, blob } : undefined;
}

function stringMembers(members: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(members).filter((member): member is [string, string] => typeof member[1] === 'string'),
  );
}

function isBase64(value: unknown): value is string {
  return typeof value === 'string' && orUndefined(() => atob(value)) !== undefined;
}

export function resourceBlock(resource: {
  readonly uri: string;
  readonly mimeType?: string | undefined;
  readonly text?: string | undefined;
  readonly blob?: string | undefined;
}): Extract<ContentBlock, { type: 'resource' }> {
  const { uri, mimeType, text, blob } = resource;
  return {
    type: 'resource',
    uri,
    ...defined({ mimeType, text, blob }),
  };
}
