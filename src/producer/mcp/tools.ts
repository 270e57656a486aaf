/** The fleet's tools as MCP shows them (A2, A22): name, schemas and annotations come from the one definition that workers run. */

import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { answersParameter } from '../../shared/calls/elicitation.ts';
import type { FailureCode } from '../../shared/errors/failure-codes.ts';
import { ownName } from '../../shared/model-tools/names.ts';
import { flatRoot } from '../../shared/model-tools/object-root.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { withoutReference } from '../../shared/schema/schema-references.ts';
import { DEFAULT_NAMESPACE, type Tier, type ToolAnnotations } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { startOf, wellFormed } from '../../shared/util/text/text-cut.ts';
import type { Pawl } from '../client.ts';

export interface McpTool {
  /** As clients call it. */
  readonly mcpName: string;
  readonly name: string;
  readonly namespace: string;
  readonly description: string;
  readonly tier: Tier;
  readonly annotations: ToolAnnotations;
  readonly inputSchema: JsonSchema;
  readonly outputSchema?: JsonSchema;
  /** The parameter that takes answers to the tool's questions. */
  readonly answersName: string | undefined;
}

/** What a session may call, by name, so that the same tools always read the same. */
export async function publishedToolsFor(pawl: Pawl, sessionKey: string): Promise<readonly McpTool[]> {
  const { tools } = await pawl.catalogue(sessionKey);
  const newest = new Map<string, McpTool>();
  for (const { name, namespace } of tools) {
    const published = pawl.published(namespace, name);
    if (published === undefined) continue;
    const mcpName = namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`;
    newest.set(mcpName, { ...published, mcpName, answersName: answersParameter(published.inputSchema) });
  }
  return [...newest.values()].sort((a, b) => (a.mcpName < b.mcpName ? -1 : 1));
}

/** Throws -32602: a tool that this session does not have is unknown to it. */
export async function publishedToolFor(pawl: Pawl, sessionKey: string, mcpName: string): Promise<McpTool> {
  const catalogue = await publishedToolsFor(pawl, sessionKey);
  const named = (name: string | undefined) => catalogue.find((each) => each.mcpName === name);
  const published = named(mcpName) ?? named(ownName(DEFAULT_NAMESPACE, mcpName));
  if (published !== undefined) return published;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${startOf(mcpName, 256)}`, {
    code: 'UNKNOWN_TOOL' satisfies FailureCode,
  });
}

export function toolView(published: McpTool, knowsTasks: boolean) {
  const { title, taskSupport, readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = published.annotations;
  return wellFormed(
    defined({
      name: published.mcpName,
      title,
      description: published.description,
      inputSchema: objectRoot(withoutAnswers(published)),
      outputSchema: declaredOutput(published),
      annotations: defined({
        title,
        readOnlyHint: readOnlyHint ?? published.tier === 'read-only',
        destructiveHint: destructiveHint ?? published.tier !== 'read-only',
        idempotentHint,
        openWorldHint,
      }),
      execution: taskSupport === undefined || !knowsTasks ? undefined : { taskSupport },
      _meta: { 'pawl/tier': published.tier },
    }),
  );
}

/** MCP takes no parameters but those of an object, and that with all that JSON Schema says of it. */
function objectRoot(schema: JsonSchema): JsonSchema {
  const root = withoutReference(schema, schema);
  return root['type'] === 'object' ? root : flatRoot(schema).schema;
}

/** Clients hold a result against it, as structured content; that is an object, or there is none. */
export function declaredOutput({ outputSchema }: McpTool): JsonSchema | undefined {
  const root = outputSchema && withoutReference(outputSchema, outputSchema);
  return root?.['type'] === 'object' && isForAllClients(root) ? root : undefined;
}

/** Official clients compile all output schemas at once, with ECMAScript's `u`: one that they cannot compile takes the whole list. */
function isForAllClients(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return true;
  const { pattern, patternProperties } = schema as { readonly pattern?: unknown; readonly patternProperties?: unknown };
  const patterns = [
    ...(typeof pattern === 'string' ? [pattern] : []),
    ...(typeof patternProperties === 'object' && patternProperties !== null ? Object.keys(patternProperties) : []),
  ];
  return patterns.every(isUnicodePattern) && Object.values(schema).every(isForAllClients);
}

function isUnicodePattern(pattern: string): boolean {
  try {
    new RegExp(pattern, 'u');
    return true;
  } catch {
    return false;
  }
}

function withoutAnswers({ inputSchema, answersName }: McpTool): JsonSchema {
  if (answersName === undefined) return inputSchema;
  const { [answersName]: _answers, ...properties } = inputSchema['properties'] as Record<string, unknown>;
  return { ...inputSchema, properties };
}
