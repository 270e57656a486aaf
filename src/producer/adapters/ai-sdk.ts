/** `pawl/ai-sdk`: a session's tools for the AI SDK (`generateText`, `streamText`, agents). Its peer is `ai`, version 7. */
import '../../node-version.ts';
import type { dynamicTool, ModelMessage, ToolSet } from 'ai';
import { loadPeer } from '../../shared/errors/optional-packages.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import type { Session } from '../sessions/session.ts';
import { hasImages } from './model-content.ts';
import {
  type AdapterOptions,
  type CallNotice,
  type CallSource,
  functionCall,
  type ModelAnswer,
  type ModelContent,
  ModelTools,
} from './model-tools.ts';

export type { AdapterOptions, CallNotice, ModelContent } from './model-tools.ts';

type Execute = NonNullable<Parameters<typeof dynamicTool>[0]['execute']>;

/** The outputs of a call: preliminary results while it runs, and the result at its end. */
export type AiToolOutput =
  | CallNotice
  | {
      readonly type: 'result';
      readonly text: string;
      readonly isError: boolean;
      /** The whole result in order, if it has images. */
      readonly content?: readonly ModelContent[];
    };

export interface AiSdkOptions extends AdapterOptions {
  /** Whether news of a call come as preliminary results. Mastra, which takes the SDK's tools, takes none. Default: true. */
  readonly preliminary?: boolean;
}

/**
 * `tools` of a request. Progress and approvals that are asked for come as preliminary results; a call that waits for a person goes on
 * by itself when they decide. The model reads the last result's text, and sees its images.
 */
export async function aiSdkTools(session: Session, options: AiSdkOptions = {}): Promise<ToolSet> {
  const sdk = await loadPeer('pawl/ai-sdk', 'ai', () => import('ai'));
  // The SDK makes each provider's form itself, but leaves in what some of them refuse.
  const tools = await ModelTools.create(session, 'mcp', options);
  return Object.fromEntries(
    tools.exported.tools.map((exported) => {
      const name = String(exported['name']);
      const executeWithNotices: Execute = async function* (input, options) {
        yield outputOf(yield* tools.run(functionCall(name, input), sourceOf(options)));
      };
      const executeSilently: Execute = async (input, options) =>
        outputOf(await tools.answer(functionCall(name, input), sourceOf(options)));
      const sdkTool = sdk.dynamicTool({
        description: String(exported['description']),
        inputSchema: sdk.jsonSchema(tools.shownParameters(exported) as Parameters<typeof sdk.jsonSchema>[0]),
        execute: options.preliminary === false ? executeSilently : executeWithNotices,
        toModelOutput: (toolOutput) => {
          // Mastra passes the output itself.
          const result = ('output' in toolOutput ? toolOutput.output : toolOutput) as AiToolOutput;
          if (result.type !== 'result') return { type: 'text', value: '' };
          if (result.content !== undefined) return { type: 'content', value: result.content.map(contentPart) };
          return { type: result.isError ? 'error-text' : 'text', value: result.text };
        },
      });
      return [name, sdkTool];
    }),
  );
}

/** By the list of messages. A program's own loop may add to the same list. */
const responseNames = new WeakMap<object, { readonly last: unknown; readonly name: string | undefined }>();

/**
 * The name of a model's response is a digest of the messages before it. All calls of one response are given the same list. Lists of two
 * responses may be equal, such as those of a prompt that is sent twice, or of a history that is cut. An approved call has the name of
 * its approval, also when the history was cut meanwhile. Mastra may give no messages.
 */
function sourceOf({ toolCallId, abortSignal: signal, messages }: Parameters<Execute>[1]): CallSource {
  if (!Array.isArray(messages) || messages.length === 0) return { toolCallId, signal };
  const approvalId = approvalOf(toolCallId, messages);
  if (approvalId !== undefined) return { toolCallId, signal, responseName: approvalId };
  const last = messages.at(-1);
  const cached = responseNames.get(messages);
  const name = cached !== undefined && cached.last === last ? cached.name : digestOf(messages);
  responseNames.set(messages, { last, name });
  return { toolCallId, signal, responseName: name, callObject: messages };
}

/** The approval that the last message gives to a call. */
function approvalOf(toolCallId: string, messages: readonly ModelMessage[]): string | undefined {
  const last = messages.at(-1);
  if (last?.role !== 'tool') return undefined;
  const answered = new Set(last.content.map((part) => part.type === 'tool-approval-response' && part.approvalId));
  const parts = messages.flatMap(({ role, content }) =>
    role === 'assistant' && Array.isArray(content) ? content : [],
  );
  const request = parts.findLast(
    (part) => part.type === 'tool-approval-request' && part.toolCallId === toolCallId && answered.has(part.approvalId),
  );
  return request?.type === 'tool-approval-request' ? request.approvalId : undefined;
}

/** Undefined for messages that cannot be written as JSON. */
function digestOf(messages: readonly unknown[]): string | undefined {
  return orUndefined(() => digest(canonicalJson(JSON.parse(JSON.stringify(messages, withoutBytes)))));
}

function withoutBytes(_name: string, value: unknown): unknown {
  return value instanceof Uint8Array ? digest(Buffer.from(value)) : value;
}

function outputOf({ content, text, isError }: ModelAnswer): AiToolOutput {
  return { type: 'result', text, isError, ...(hasImages(content) ? { content } : {}) };
}

function contentPart(part: ModelContent) {
  if (part.type === 'text') return part;
  return { type: 'file' as const, data: { type: 'data' as const, data: part.data }, mediaType: part.mimeType };
}
