/** What an MCP tool answers, as a tool's result. */
import type { CallToolResult, JSONRPCMessage } from '@modelcontextprotocol/client';
import { ToolError } from '../../../shared/failure.ts';
import type { ContentBlock, ToolResult } from '../../../shared/tool.ts';

/**
 * The structured content as the output, else the text. Images, audio and resources stand beside it. Throws `MCP_TOOL_ERROR` with
 * the server's words when the tool says that it failed.
 */
export function toolResult(result: CallToolResult): ToolResult<unknown> {
  const blocks = result.content.map(blockOf);
  const text = blocks.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
  if (result.isError === true)
    throw new ToolError(text.trim() === '' ? 'The tool failed and did not say why.' : text, { code: 'MCP_TOOL_ERROR' });
  const rich = blocks.some(({ type }) => type !== 'text');
  return {
    output: result.structuredContent ?? text,
    ...(text === '' ? {} : { display: text }),
    ...(rich ? { content: blocks } : {}),
  };
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
        ...(block.mimeType === undefined ? {} : { mimeType: block.mimeType }),
        text: block.description ?? block.title ?? block.name,
      };
  }
}

const KNOWN_TYPES: ReadonlySet<unknown> = new Set<Block['type']>([
  'text',
  'image',
  'audio',
  'resource',
  'resource_link',
]);

/**
 * Puts a word in the place of content whose kind the protocol does not know yet, in the message itself: the SDK would refuse the
 * whole result of a tool that has run.
 */
export function nameUnknownContent(message: JSONRPCMessage): void {
  const content = 'result' in message ? message.result['content'] : undefined;
  if (!Array.isArray(content)) return;
  content.forEach((block: unknown, index) => {
    const { type } = (block ?? {}) as { readonly type?: unknown };
    if (typeof type !== 'string' || KNOWN_TYPES.has(type)) return;
    content[index] = { type: 'text', text: `[a block of the unknown type ${JSON.stringify(type)}]` };
  });
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
    ...(mimeType === undefined ? {} : { mimeType }),
    ...(text === undefined ? {} : { text }),
    ...(blob === undefined ? {} : { blob }),
  };
}
