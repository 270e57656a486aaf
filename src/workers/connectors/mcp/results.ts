/** What an MCP tool answers, as a tool's result. */
import type { CallToolResult } from '@modelcontextprotocol/client';
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
    default:
      return {
        type: 'text',
        text: `[a block of the unknown type ${JSON.stringify((block as { type?: unknown }).type)}]`,
      };
  }
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
