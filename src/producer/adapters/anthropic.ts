/** `pawl/anthropic`: a session's tools for the Messages API. Needs nothing of Anthropic's packages. */
import '../../node-version.ts';
import type { Session } from '../sessions/session.ts';
import { hasImages } from './model-content.ts';
import {
  type AdapterOptions,
  type CallSource,
  callIdOf,
  functionCall,
  type ModelCallOptions,
  type ModelContent,
  ModelTools,
} from './model-tools.ts';

export type { AdapterOptions, CallNotice } from './model-tools.ts';

/** A tool as a request takes it. */
export interface MessagesTool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: { type: 'object'; [keyword: string]: unknown };
  readonly strict?: boolean;
  readonly input_examples?: Record<string, unknown>[];
}

/** A content block of a message, as far as it matters here. */
export interface MessageBlock {
  readonly type: string;
  readonly id?: string;
  readonly name?: string;
  readonly input?: unknown;
}

export type ToolResultContent =
  | { type: 'text'; text: string }
  | {
      type: 'image';
      source: { type: 'base64'; media_type: 'image/jpeg' | 'image/png' | 'image/gif' | 'image/webp'; data: string };
    };

export interface ToolResultBlock {
  readonly type: 'tool_result';
  readonly tool_use_id: string;
  /** A text, or, where the result has images, all of it in order. */
  readonly content: string | ToolResultContent[];
  readonly is_error?: true;
}

export interface MessagesTools {
  /** `tools` of a request. */
  readonly tools: MessagesTool[];
  /** Runs the `tool_use` blocks of a message at the same time; the answers are the content of the next user message. */
  run(content: readonly MessageBlock[], options?: ModelCallOptions): Promise<ToolResultBlock[]>;
}

export async function messagesTools(session: Session, options?: AdapterOptions): Promise<MessagesTools> {
  const tools = await ModelTools.create(session, 'anthropic', options);
  const runOne = async (block: MessageBlock, source: CallSource): Promise<ToolResultBlock> => {
    const { name = '', input } = block;
    const id = callIdOf(block.id);
    const call = functionCall(name, input);
    const { content, text, isError } = await tools.answer(call, { ...source, toolCallId: id, callObject: block });
    // The API takes no images in what is marked as an error.
    const isInParts = hasImages(content);
    return {
      type: 'tool_result',
      tool_use_id: id,
      content: isInParts ? content.map(contentBlock) : text,
      ...(isError && !isInParts ? { is_error: true } : {}),
    };
  };
  return {
    tools: [...tools.exported.tools] as object[] as MessagesTool[],
    run: (content, options) =>
      tools.respond('content', content, options, (block, source) =>
        block.type === 'tool_use' ? runOne(block, source) : undefined,
      ),
  };
}

function contentBlock(part: ModelContent): ToolResultContent {
  if (part.type === 'text') return part;
  return { type: 'image', source: { type: 'base64', media_type: part.mimeType as 'image/png', data: part.data } };
}
