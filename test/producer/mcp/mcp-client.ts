/** Clients of `/mcp` for tests, and a tool that asks its caller. */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { onTestFinished } from 'vitest';
import { z } from 'zod';
import { acceptedForm, callerAnswers, elicit } from '../../../src/shared/calls/elicitation.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import type { Rig } from '../http/rig.ts';

export const MODERN = '2026-07-28';
export const TASKS = 'io.modelcontextprotocol/tasks';
export const MODERN_META = {
  'io.modelcontextprotocol/protocolVersion': MODERN,
  'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': { elicitation: {}, extensions: { [TASKS]: {} } },
};

/** The official client of one era of the protocol, connected to `/mcp`. */
export async function connectClient(rig: Rig, era: 'legacy' | 'modern', token?: string): Promise<Client> {
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { ...(era === 'modern' ? { versionNegotiation: { mode: 'auto' } } : {}), capabilities: { elicitation: {} } },
  );
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  await client.connect(
    new StreamableHTTPClientTransport(new URL(`${rig.server.url}/mcp`), { requestInit: { headers } }),
  );
  onTestFinished(() => client.close());
  return client;
}

/** One request of the newest revision, as it stands on the wire. */
export function modern(rig: Rig) {
  let id = 0;
  return async (method: string, params: Record<string, unknown>, headers: Record<string, string> = {}) => {
    id += 1;
    const name = params['name'] ?? params['taskId'];
    const { status, body, text } = await rig.ask('/mcp', {
      method: 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': MODERN,
        'mcp-method': method,
        ...(name === undefined ? {} : { 'mcp-name': String(name) }),
        ...headers,
      },
      json: {
        jsonrpc: '2.0',
        id,
        method,
        params: {
          ...params,
          _meta: { ...MODERN_META, ...(params['_meta'] as object | undefined) },
        },
      },
    });
    const answer = body ?? JSON.parse(/^data: (\{.*"id".*\})$/m.exec(text)?.[1] ?? '{}');
    return { status, result: answer.result, error: answer.error };
  };
}

/** Asks for a name, once in a call that takes its time before. */
export function askingTool(release?: Promise<void>, question = 'who'): AnyTool {
  return defineTool({
    name: 'asking',
    version: '1.0.0',
    description: 'Asks for a name.',
    tier: 'read-only',
    annotations: { title: 'Asking' },
    input: z.object({ greeting: z.string(), answers: callerAnswers }),
    async run({ greeting, answers }) {
      const name = acceptedForm(answers, question)?.['name'];
      if (typeof name === 'string') return { output: `${greeting}, ${name}, ${String(answers?.state)}` };
      await release;
      const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
      return elicit(
        { [question]: { method: 'elicitation/create', params: { mode: 'form', message: 'Who?', requestedSchema } } },
        'kept',
      );
    },
  });
}
