/**
 * A call's ending in MCP's terms. What the model can react to (wrong parameters, a refusal, a failed tool) is a result with
 * `isError`; what is wrong with the server is an error of the protocol.
 */
import {
  type CallToolResult,
  type ContentBlock,
  isCallToolResult,
  ProtocolError,
  ProtocolErrorCode,
} from '@modelcontextprotocol/server';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { FailureCode } from '../../shared/errors/failure-codes.ts';
import { FAILURE_RESPONSES } from '../../shared/errors/failure-responses.ts';
import type { ContentBlock as ToolContentBlock } from '../../shared/tools/tool-result.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { wellFormed } from '../../shared/util/text/text-cut.ts';
import { listed } from '../calls/params.ts';
import type { Pawl } from '../client.ts';
import { declaredOutput, type McpTool } from './tools.ts';

/** Failures of the fleet, not of the call. */
function isProtocolError(code: string): boolean {
  return Object.hasOwn(FAILURE_RESPONSES, code) && FAILURE_RESPONSES[code as FailureCode].mcp === 'protocolError';
}

/**
 * Of an output that is shown in part, the text is that part; where the tool declares its output, the structured content is the whole,
 * because clients hold it against the schema. Without an offer, its tool is gone. Throws `ProtocolError` for a defect.
 */
export async function callToolResult(
  pawl: Pick<Pawl, 'output' | 'calls'>,
  envelope: ToolResultEnvelope,
  published: McpTool | undefined,
): Promise<CallToolResult> {
  return wellFormed(await resultFor(pawl, envelope, published));
}

async function resultFor(
  pawl: Pick<Pawl, 'output' | 'calls'>,
  envelope: ToolResultEnvelope,
  published: McpTool | undefined,
): Promise<CallToolResult> {
  const { callId, status, fromCache, attempts } = envelope;
  const _meta = defined({
    'pawl/callId': callId,
    'pawl/status': status,
    'pawl/fromCache': fromCache,
    'pawl/attempts': attempts,
  });
  if (envelope.status !== 'success') {
    const { code, message, issues, retryAfterMs } = envelope.error;
    if (isProtocolError(code))
      throw new ProtocolError(ProtocolErrorCode.InternalError, message, defined({ code, callId }));
    return {
      isError: true,
      content: [{ type: 'text', text: `${code}: ${listed({ message, issues })}` }],
      _meta: { ..._meta, 'pawl/error': defined({ code, issues, retryAfterMs }) },
    };
  }
  const { content, metadata } = envelope.output;
  // The tool did its work, and the answer is no.
  const soft = metadata?.['success'] === false ? { isError: true } : {};
  const declaresOutput = () => published !== undefined && declaredOutput(published) !== undefined;
  if (isMcpResult(content))
    return {
      ...content,
      ...soft,
      ...(declaresOutput() ? { structuredContent: content.structuredContent ?? { ...content } } : {}),
      _meta: { ...content._meta, ..._meta },
    };
  const isWhole = metadata?.['whole'] === undefined || callId === undefined || !declaresOutput();
  // The record holds what the tool returned: hooks that have seen a part of it have not seen the rest.
  const whole = isWhole ? envelope : await pawl.calls.withHooks(wholeOf(envelope, await pawl.output(callId)));
  if (whole.status !== 'success') return resultFor(pawl, whole, published);
  const structured = whole.output.content;
  const text: ContentBlock = { type: 'text', text: typeof content === 'string' ? content : JSON.stringify(content) };
  return {
    content: [text, ...blocksOf(metadata?.['content'])],
    ...(isObject(structured) ? { structuredContent: structured } : {}),
    ...soft,
    _meta,
  };
}

function wholeOf(envelope: Extract<ToolResultEnvelope, { status: 'success' }>, content: unknown): ToolResultEnvelope {
  return { ...envelope, output: { ...envelope.output, content } };
}

/** A tool that speaks MCP itself returns what a client is to get, content blocks and all. */
function isMcpResult(value: unknown): value is CallToolResult {
  return isObject(value) && Array.isArray(value['content']) && value['content'].length > 0 && isCallToolResult(value);
}

/**
 * The blocks that a tool returned beside its output, in MCP's shape: a resource stands in a member of its own, and one without contents
 * is a link.
 */
function blocksOf(value: unknown): ContentBlock[] {
  if (!Array.isArray(value)) return [];
  return value.map((block: { readonly type: string }) => {
    if (block.type !== 'resource') return block as ContentBlock;
    const { type, ...resource } = block as Extract<ToolContentBlock, { type: 'resource' }>;
    if (resource.text === undefined && resource.blob === undefined)
      return { type: 'resource_link', name: resource.uri, ...resource } as ContentBlock;
    return { type, resource } as ContentBlock;
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
