/** `pawl/langchain`: a session's tools for LangChain and LangGraph agents. Its peer is `@langchain/core`, version 1. */
import '../../node-version.ts';
import type { DynamicStructuredTool } from '@langchain/core/tools';
import { loadPeer } from '../../shared/errors/optional-packages.ts';
import { digest } from '../../shared/schema/canonical-json.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import type { Session } from '../sessions/session.ts';
import { dataUrl, hasImages } from './model-content.ts';
import {
  type AdapterOptions,
  type CallSource,
  functionCall,
  type ModelAnswer,
  type ModelContent,
  ModelTools,
} from './model-tools.ts';

export type { AdapterOptions, CallNotice } from './model-tools.ts';

interface CallConfig {
  readonly signal?: AbortSignal;
  readonly toolCall?: { readonly id?: string };
  readonly configurable?: Readonly<Record<string, unknown>>;
  /** LangGraph makes one for each attempt of a task. */
  readonly executionInfo?: object;
}

interface CallBlock {
  readonly id?: string;
  readonly args?: unknown;
}

/** How many calls of each ID and arguments have ended in an attempt of a task. */
const endedCalls = new WeakMap<object, Map<string, number>>();

/**
 * LangGraph names each task of a graph's thread; a task that is run again from its checkpoint has the same name. A node may hold a whole
 * loop, so one task may run several responses. Then the calls that ended before distinguish them, because a task that is run again
 * repeats them in their order. `end` is to be called at the call's end.
 */
function sourceOf(
  call: CallBlock | undefined,
  input: unknown,
  { signal, configurable, executionInfo }: CallConfig = {},
): { readonly source: CallSource; readonly end: () => void } {
  const { id: toolCallId } = call ?? {};
  const task = configurable?.['checkpoint_ns'];
  if (typeof task !== 'string' || task === '')
    return { source: { toolCallId, signal, callObject: call }, end: () => {} };
  const counts = getOrInsert(endedCalls, executionInfo ?? {}, () => new Map<string, number>());
  const key = JSON.stringify([toolCallId, input]);
  const count = counts.get(key) ?? 0;
  const responseName = digest(count === 0 ? task : `${task}#${count}`);
  return { source: { toolCallId, signal, responseName }, end: () => counts.set(key, count + 1) };
}

/**
 * Tools for `bindTools` and agents. Progress, retries and approvals that are asked for come as custom events named `pawl`, beside
 * `onEvent`. A failed call is a `ToolMessage` with the status `error`.
 */
export async function langchainTools(session: Session, options: AdapterOptions = {}): Promise<DynamicStructuredTool[]> {
  const [{ ToolMessage }, langchain] = await loadPeer('pawl/langchain', '@langchain/core', () =>
    Promise.all([import('@langchain/core/messages'), import('@langchain/core/tools')]),
  );
  const tools = await ModelTools.create(session, 'mcp', options);
  return tools.exported.tools.map((exported) => {
    const name = String(exported['name']);
    const toToolMessage = ({ content: parts, text, isError }: ModelAnswer, toolCallId: string | undefined) => {
      const content = hasImages(parts) ? parts.map(contentBlock) : text;
      if (toolCallId === undefined) return content;
      return new ToolMessage({ content, tool_call_id: toolCallId, name, status: isError ? 'error' : 'success' });
    };
    const structuredTool = new langchain.DynamicStructuredTool({
      name,
      description: String(exported['description']),
      schema: tools.shownParameters(exported) as never,
      async func(input: Record<string, unknown>, runManager, config) {
        const { toolCall, ...rest } = (config ?? {}) as CallConfig;
        const toolCallId = toolCall?.id;
        const { source, end } = sourceOf(toolCall, [name, input], rest);
        const running = tools.run(functionCall(name, input), source);
        let next = await running.next();
        for (; next.done !== true; next = await running.next())
          runManager?.handleCustomEvent('pawl', next.value, runManager.runId).catch(() => {});
        end();
        return toToolMessage(next.value, toolCallId);
      },
    });
    // LangChain throws for wrong parameters; the model is to read what is wrong with them, as from everywhere else.
    const invoke = structuredTool.invoke.bind(structuredTool) as (
      input: unknown,
      config?: CallConfig,
    ) => Promise<unknown>;
    const invokeOrExplain = async (input: unknown, config?: CallConfig): Promise<unknown> => {
      try {
        return await invoke(input, config);
      } catch (error) {
        if (!(error instanceof langchain.ToolInputParsingException)) throw error;
        const call = isObject(input) && input['type'] === 'tool_call' ? (input as CallBlock) : { args: input };
        // Pawl may accept parameters that LangChain refuses, such as null for an optional one. The call then runs, once.
        const { source, end } = sourceOf(call, [name, call.args], config);
        const answer = await tools.answer(functionCall(name, call.args), source);
        end();
        return toToolMessage(answer, call.id);
      }
    };
    return Object.assign(structuredTool, { invoke: invokeOrExplain as typeof structuredTool.invoke });
  });
}

/** The form of an image that LangChain's models of all providers take. */
function contentBlock(part: ModelContent) {
  return part.type === 'text' ? part : { type: 'image_url' as const, image_url: { url: dataUrl(part) } };
}
