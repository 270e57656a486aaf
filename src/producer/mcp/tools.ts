/** The fleet's tools as MCP shows them. Name, schemas and annotations come from the definition that workers run. */
import { answersParameter } from '../../shared/calls/elicitation.ts';
import type { FailureCode } from '../../shared/errors/failure-codes.ts';
import { flatRoot } from '../../shared/model-tools/object-root.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { withoutReference } from '../../shared/schema/schema-references.ts';
import type { PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import { DEFAULT_NAMESPACE } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { startOf, wellFormed } from '../../shared/util/text/text-cut.ts';
import type { Pawl } from '../client.ts';
import { resolveName } from '../tools/tool-catalogue.ts';
import { invalidParams } from './errors.ts';

export interface McpTool
  extends Pick<
    PublishedTool,
    'name' | 'namespace' | 'description' | 'tier' | 'annotations' | 'inputSchema' | 'outputSchema'
  > {
  /** The name by which clients call it. */
  readonly mcpName: string;
  /** The parameter that takes answers to the tool's questions. */
  readonly answersName: string | undefined;
}

/** The tools that a session may call, sorted by name, so that the same tools always give the same list. */
export async function publishedToolsFor(pawl: Pawl, sessionKey: string): Promise<readonly McpTool[]> {
  const { tools } = await pawl.catalogue(sessionKey);
  const newest = new Map<string, McpTool>();
  for (const { name, namespace } of tools) {
    const tool = pawl.published(namespace, name);
    if (tool === undefined) continue;
    const mcpName = namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`;
    newest.set(mcpName, { ...tool, mcpName, answersName: answersParameter(tool.inputSchema) });
  }
  return [...newest.values()].sort((a, b) => (a.mcpName < b.mcpName ? -1 : 1));
}

/** A tool that the session may call. Throws -32602 for any other. */
export async function publishedToolFor(pawl: Pawl, sessionKey: string, mcpName: string): Promise<McpTool> {
  const catalogue = await publishedToolsFor(pawl, sessionKey);
  const peek = (namespace: string, name: string) => pawl.published(namespace, name);
  const ownName = resolveName(DEFAULT_NAMESPACE, mcpName, { peek });
  const tool = catalogue.find((each) => each.mcpName === ownName);
  if (tool !== undefined) return tool;
  throw invalidParams(`Unknown tool: ${startOf(mcpName, 256)}`, {
    code: 'UNKNOWN_TOOL' satisfies FailureCode,
  });
}

export function toMcpTool(tool: McpTool, supportsTasks: boolean) {
  const { title, taskSupport, readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = tool.annotations;
  return wellFormed(
    defined({
      name: tool.mcpName,
      title,
      description: tool.description,
      inputSchema: objectRoot(withoutAnswers(tool)),
      outputSchema: declaredOutput(tool),
      annotations: defined({
        title,
        readOnlyHint: readOnlyHint ?? tool.tier === 'read-only',
        destructiveHint: destructiveHint ?? tool.tier !== 'read-only',
        idempotentHint,
        openWorldHint,
      }),
      execution: taskSupport === undefined || !supportsTasks ? undefined : { taskSupport },
      _meta: { 'pawl/tier': tool.tier },
    }),
  );
}

/** The input schema with an object at its root, as MCP requires. */
function objectRoot(schema: JsonSchema): JsonSchema {
  const root = withoutReference(schema, schema);
  return root['type'] === 'object' ? root : flatRoot(schema).schema;
}

/** The output schema, if it describes an object: clients validate the structured content against it. */
export function declaredOutput({ outputSchema }: McpTool): JsonSchema | undefined {
  const root = outputSchema && withoutReference(outputSchema, outputSchema);
  return root?.['type'] === 'object' && isForAllClients(root) ? root : undefined;
}

/** Official clients compile all output schemas with ECMAScript's `u` flag, and reject the whole list if one does not compile. */
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
  return orUndefined(() => new RegExp(pattern, 'u')) !== undefined;
}

function withoutAnswers({ inputSchema, answersName }: McpTool): JsonSchema {
  if (answersName === undefined) return inputSchema;
  const { [answersName]: _answers, ...properties } = inputSchema['properties'] as Record<string, unknown>;
  return { ...inputSchema, properties };
}
