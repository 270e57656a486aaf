/** `pawl/ai-sdk`: a session's tools for the AI SDK (`generateText`, `streamText`, agents). Its peer is `ai`, version 7. */
import { dynamicTool, jsonSchema, type ToolSet } from 'ai';
import type { Session } from '../session.ts';
import { type AdapterOptions, type CallNews, ModelTools } from './model-tools.ts';

export type { AdapterOptions, CallNews } from './model-tools.ts';

/** What a call gives while it runs (preliminary results), and at its end. */
export type AiToolOutput = CallNews | { readonly type: 'result'; readonly text: string; readonly isError: boolean };

/**
 * `tools` of a request. Progress and approvals that are asked for come as preliminary results; a call that waits for a person goes on
 * by itself when they decide. The model reads the last result's text.
 */
export async function aiSdkTools(session: Session, options?: AdapterOptions): Promise<ToolSet> {
  // The SDK makes each provider's form itself: it gets the canonical schema.
  const tools = await ModelTools.of(session, 'mcp', options);
  return Object.fromEntries(
    tools.exported.tools.map((exported) => {
      const name = String(exported['name']);
      const made = dynamicTool({
        description: String(exported['description']),
        inputSchema: jsonSchema(exported['inputSchema'] as Parameters<typeof jsonSchema>[0]),
        async *execute(input, { toolCallId, abortSignal }): AsyncGenerator<AiToolOutput> {
          const call = { kind: 'function', name, arguments: input as Record<string, unknown> } as const;
          const { text, isError } = yield* tools.run(call, { toolCallId, signal: abortSignal });
          yield { type: 'result', text, isError };
        },
        toModelOutput: ({ output }) => {
          const result = output as AiToolOutput;
          if (result.type !== 'result') return { type: 'text', value: '' };
          return { type: result.isError ? 'error-text' : 'text', value: result.text };
        },
      });
      return [name, made];
    }),
  );
}
