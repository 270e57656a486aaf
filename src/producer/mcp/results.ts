/**
 * A call's outcome in MCP's terms. Failures that a model can react to (wrong parameters, a refusal, a failed tool) are results with
 * `isError`. Failures of the server are errors of the protocol.
 */
import {
  type CallToolResult,
  type ContentBlock,
  isCallToolResult,
  ProtocolError,
  ProtocolErrorCode,
} from '@modelcontextprotocol/server';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { type Output, reasonOfSoftFailure } from '../../shared/calls/outcome.ts';
import type { FailureCode } from '../../shared/errors/failure-codes.ts';
import { FAILURE_RESPONSES } from '../../shared/errors/failure-responses.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { withDigitsAsNumbers } from '../../shared/schema/long-integers.ts';
import { cachedValidator, lazyValidator } from '../../shared/schema/validator.ts';
import type { ContentBlock as ToolContentBlock } from '../../shared/tools/tool-result.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { wellFormed } from '../../shared/util/text/text-cut.ts';
import { listIssues } from '../calls/params.ts';
import type { Pawl } from '../client.ts';
import { declaredOutput, type McpTool } from './tools.ts';

/** Failures of the fleet, not of the call. */
function isProtocolError(code: string): boolean {
  return Object.hasOwn(FAILURE_RESPONSES, code) && FAILURE_RESPONSES[code as FailureCode].mcp === 'protocolError';
}

/**
 * The result of a call. The text of a truncated output is its shown part. If the tool declares its output, the structured content is
 * the whole output, because clients validate it. `tool` is undefined if it has left the fleet. Throws `ProtocolError` for a defect.
 */
export async function callToolResult(
  pawl: Pick<Pawl, 'output' | 'calls'>,
  envelope: ToolResultEnvelope,
  tool: McpTool | undefined,
): Promise<CallToolResult> {
  return wellFormed(await resultFor(pawl, envelope, tool));
}

async function resultFor(
  pawl: Pick<Pawl, 'output' | 'calls'>,
  envelope: ToolResultEnvelope,
  tool: McpTool | undefined,
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
      content: [{ type: 'text', text: `${code}: ${listIssues({ message, issues })}` }],
      _meta: { ..._meta, 'pawl/error': defined({ code, issues, retryAfterMs }) },
    };
  }
  const { content, metadata } = envelope.output;
  // The tool ran, and reports that it did not succeed.
  const toolError = metadata?.['success'] === false ? { isError: true } : {};
  const outputSchema = tool && declaredOutput(tool);
  if (isMcpResult(content))
    return {
      ...content,
      ...toolError,
      ...(outputSchema && {
        structuredContent: await fitting(outputSchema, content.structuredContent ?? { ...content }),
      }),
      _meta: { ...content._meta, ..._meta },
    };
  const isComplete = metadata?.['whole'] === undefined || callId === undefined || outputSchema === undefined;
  // The record holds the output as the tool returned it, so hooks must see the rest of it, too.
  const complete = isComplete ? envelope : await pawl.calls.withHooks(withContent(envelope, await pawl.output(callId)));
  if (complete.status !== 'success') return resultFor(pawl, complete, tool);
  const structured = complete.output.content;
  const blocks = contentBlocks(metadata?.['content']);
  return {
    content: withText(shownText(envelope.output, blocks), blocks),
    ...(isObject(structured) && { structuredContent: await fitting(outputSchema, structured) }),
    ...toolError,
    _meta,
  };
}

/** The output as text, and the blocks beside it. Blocks that say it all, as those of an imported tool do, stand alone. */
function withText(text: string, blocks: readonly ContentBlock[]): ContentBlock[] {
  const texts = blocks.flatMap((block) => (block.type === 'text' ? [block.text] : []));
  const isRepeated = blocks.length > 0 && texts.join('\n') === text;
  return isRepeated ? [...blocks] : [{ type: 'text', text }, ...blocks];
}

/** The output as text. A soft failure that says nothing has the text for people, which the model would not read otherwise. */
function shownText(output: Output, blocks: readonly ContentBlock[]): string {
  const { content, metadata } = output;
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  const isEmpty = text.trim() === '' && blocks.length === 0;
  return isEmpty && metadata?.['success'] === false ? reasonOfSoftFailure(output) : text;
}

/** Clients check the structured content by its schema, which a number as a text of digits would not fit. */
async function fitting<T extends object>(
  schema: JsonSchema | undefined,
  content: T,
): Promise<T & Record<string, unknown>> {
  if (schema === undefined || !/"-?\d{16,}"/.test(JSON.stringify(content)))
    return content as T & Record<string, unknown>;
  return (await withDigitsAsNumbers(cachedValidator(schema, lazyValidator), content)) as T & Record<string, unknown>;
}

function withContent(
  envelope: Extract<ToolResultEnvelope, { status: 'success' }>,
  content: unknown,
): ToolResultEnvelope {
  return { ...envelope, output: { ...envelope.output, content } };
}

/** Whether a tool returned a complete MCP result, content blocks included. */
function isMcpResult(value: unknown): value is CallToolResult {
  return isObject(value) && Array.isArray(value['content']) && value['content'].length > 0 && isCallToolResult(value);
}

/**
 * The content blocks that a tool returned beside its output, in MCP's shape: a resource is nested in a member of its own, and a resource
 * without contents is a link.
 */
function contentBlocks(value: unknown): ContentBlock[] {
  if (!Array.isArray(value)) return [];
  return value.map((block: { readonly type: string }) => {
    if (block.type !== 'resource') return block as ContentBlock;
    const { type, ...resource } = block as Extract<ToolContentBlock, { type: 'resource' }>;
    if (resource.text === undefined && resource.blob === undefined)
      return { type: 'resource_link', name: resource.uri, ...resource } as ContentBlock;
    return { type, resource } as ContentBlock;
  });
}
