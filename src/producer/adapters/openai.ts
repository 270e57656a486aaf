/**
 * `pawl/openai`: a session's tools for the Responses API, for Chat Completions and for the Agents SDK. The first two need nothing of
 * OpenAI's packages; the third takes the SDK's own `tool`.
 */
import '../../node-version.ts';
import type { ProviderCall } from '../../shared/model-tools/decode.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { Session } from '../sessions/session.ts';
import { dataUrl, hasImages } from './model-content.ts';
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

/** A tool as a request takes it; those after the first for free text, and with `native: true`. */
export type ResponsesTool =
  | {
      readonly type: 'function';
      readonly name: string;
      readonly description: string;
      readonly parameters: Record<string, unknown>;
      readonly strict: boolean;
    }
  | {
      readonly type: 'custom';
      readonly name: string;
      readonly description: string;
      readonly format:
        | { readonly type: 'text' }
        | { readonly type: 'grammar'; readonly syntax: 'lark' | 'regex'; readonly definition: string };
    }
  | { readonly type: 'local_shell' }
  | { readonly type: 'web_search'; readonly external_web_access?: boolean };

/** An item of a response's `output`, as far as it matters here. */
export interface ResponseItem {
  readonly type: string;
  readonly call_id?: string | null;
  readonly name?: string;
  readonly arguments?: unknown;
  readonly input?: unknown;
  readonly action?: unknown;
  readonly status?: string | null;
}

export type ToolOutputContent =
  | { type: 'input_text'; text: string }
  | { type: 'input_image'; image_url: string; detail: 'auto' };

/** `output` is a text, or, where the result has images, all of it in order. */
export type ToolOutput =
  | {
      type: 'function_call_output' | 'custom_tool_call_output';
      call_id: string;
      output: string | ToolOutputContent[];
    }
  | { type: 'local_shell_call_output'; id: string; call_id: string; output: string };

export interface ResponsesTools {
  /** `tools` of a request. */
  readonly tools: ResponsesTool[];
  /** Runs the calls among a response's output items, at the same time; the answers are input of the next request. */
  run(output: readonly ResponseItem[], options?: ModelCallOptions): Promise<ToolOutput[]>;
}

/** The answer to a call of a response that was cut off: what came of its text or arguments may look complete. */
const UNFINISHED =
  'INVALID_PARAMS: The response was cut off before this call was complete, and nothing was run. Call again, with less in one call.';

export async function responsesTools(session: Session, options?: AdapterOptions): Promise<ResponsesTools> {
  const tools = await ModelTools.create(session, 'openai', options);
  const runOne = async (item: ResponseItem, call: ProviderCall, source: CallSource): Promise<ToolOutput> => {
    const id = callIdOf(item.call_id);
    const { content, text } =
      item.status === 'incomplete'
        ? { content: [], text: UNFINISHED }
        : await tools.answer(call, { ...source, toolCallId: id, callObject: item });
    if (call.kind === 'local-shell') return { type: 'local_shell_call_output', id, call_id: id, output: text };
    const type = call.kind === 'custom' ? 'custom_tool_call_output' : 'function_call_output';
    return { type, call_id: id, output: hasImages(content) ? content.map(outputContent) : text };
  };
  return {
    tools: [...tools.exported.tools] as object[] as ResponsesTool[],
    run: (output, options) =>
      tools.respond('output', output, options, (item, source) => {
        const call = callOf(item);
        return call === undefined ? undefined : runOne(item, call, source);
      }),
  };
}

function outputContent(part: ModelContent): ToolOutputContent {
  if (part.type === 'text') return { type: 'input_text', text: part.text };
  return { type: 'input_image', image_url: dataUrl(part), detail: 'auto' };
}

function callOf({
  type,
  name = '',
  arguments: rawArguments,
  input = '',
  action = {},
}: ResponseItem): ProviderCall | undefined {
  switch (type) {
    case 'function_call':
      // Gateways hand on an object instead of its text, and null for nothing.
      return functionCall(name, rawArguments);
    case 'custom_tool_call':
      return { kind: 'custom', name, input: input as string };
    case 'local_shell_call':
      return { kind: 'local-shell', action: action as Readonly<Record<string, unknown>> };
    default:
      return undefined;
  }
}

/** A tool as a request of Chat Completions takes it. */
export interface ChatTool {
  readonly type: 'function';
  readonly function: {
    readonly name: string;
    readonly description: string;
    readonly parameters: Record<string, unknown>;
    readonly strict: boolean;
  };
}

/** One of a message's `tool_calls`, as far as it matters here. */
export interface ChatToolCall {
  readonly id?: string;
  readonly function?: { readonly name?: string; readonly arguments?: unknown };
}

export interface ChatToolMessage {
  role: 'tool';
  tool_call_id: string;
  content: string;
}

export interface ChatTools {
  /** `tools` of a request. */
  readonly tools: ChatTool[];
  /** Runs a message's `tool_calls` at the same time; the answers are the messages after it. */
  run(calls: readonly ChatToolCall[] | null | undefined, options?: ModelCallOptions): Promise<ChatToolMessage[]>;
}

/** Chat Completions refuses a whole request for one longer description. */
const MAX_CHAT_DESCRIPTION = 1_024;

/** For Chat Completions, which servers of other models speak as well: functions alone, and answers that are text. */
export async function chatTools(session: Session, options?: AdapterOptions): Promise<ChatTools> {
  const tools = await ModelTools.create(session, 'openai', options, { native: false, images: false });
  const runOne = async (toolCall: ChatToolCall, source: CallSource): Promise<ChatToolMessage> => {
    const { name = '', arguments: rawArguments } = toolCall.function ?? {};
    const id = callIdOf(toolCall.id);
    const call = functionCall(name, rawArguments);
    const { text } = await tools.answer(call, { ...source, toolCallId: id, callObject: toolCall });
    return { role: 'tool', tool_call_id: id, content: text };
  };
  return {
    tools: tools.exported.tools.map(({ type: _, ...definition }) => {
      const description = String(definition['description']);
      const isLong = description.length > MAX_CHAT_DESCRIPTION;
      const shown = isLong ? `${startOf(description, MAX_CHAT_DESCRIPTION - 1)}…` : description;
      return { type: 'function', function: { ...definition, description: shown } } as ChatTool;
    }),
    run: (calls, options) => tools.respond('calls', calls ?? [], options, runOne),
  };
}

/** The argument of the Agents SDK's `tool`. */
export interface AgentToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: never;
  readonly strict: never;
  execute(input: unknown, context?: unknown, details?: AgentCallDetails): Promise<string | AgentToolOutput[]>;
}

/** A part of a result that has images, as the Agents SDK takes it. */
export type AgentToolOutput = { type: 'text'; text: string } | { type: 'image'; image: string };

interface AgentCallDetails {
  readonly toolCall?: { readonly callId?: string };
  readonly signal?: AbortSignal;
}

/** Tools for `new Agent({ tools })`: `agentTools(session, tool)` with the `tool` of `@openai/agents`. */
export async function agentTools<AgentTool>(
  session: Session,
  tool: (definition: AgentToolDefinition) => AgentTool,
  options?: AdapterOptions,
): Promise<AgentTool[]> {
  const tools = await ModelTools.create(session, 'openai', options, { native: false });
  const functions = tools.exported.tools.filter(({ type }) => type === 'function');
  return functions.map((exported) =>
    tool({
      name: String(exported['name']),
      description: String(exported['description']),
      parameters: exported['parameters'] as never,
      strict: exported['strict'] as never,
      async execute(input, _context, details): Promise<string | AgentToolOutput[]> {
        const call = functionCall(String(exported['name']), input);
        const { content, text } = await tools.answer(call, {
          toolCallId: details?.toolCall?.callId,
          callObject: details?.toolCall,
          signal: details?.signal,
        });
        if (!hasImages(content)) return text;
        return content.map((part) => (part.type === 'text' ? part : { type: 'image', image: dataUrl(part) }));
      },
    }),
  );
}
