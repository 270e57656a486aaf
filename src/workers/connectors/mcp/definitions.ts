/** The tool definitions of one MCP server: read, cached, and compared with the accepted ones. */
import type { Client } from '@modelcontextprotocol/client';
import { definitionDigest, type McpDefinition } from '../../../shared/connectors/mcp.ts';
import { asToolError } from '../../../shared/errors/classify-error.ts';
import { PawlError, ToolError } from '../../../shared/errors/failure.ts';
import { describeValue } from '../../../shared/tools/tool-answers.ts';
import { isObject } from '../../../shared/util/json/json-types.ts';
import { Remembered } from '../../../shared/util/remembered.ts';
import { systemClock } from '../../../shared/util/time.ts';
import { unlessAborted } from '../../../shared/util/wait.ts';
import { list } from './listing.ts';

const LIST_TIMEOUT_MS = 20_000;
/** Definitions are read again after this time, even from a server that announces no changes. */
const DEFINITIONS_FRESH_MS = 60_000;

/** A definition by its tool's name; `several` where the name occurs twice. */
type DefinitionsByName = ReadonlyMap<string, McpDefinition | 'several'>;

/** The definitions of one connection. They are read at the first use, and again when they are old or have changed. */
export class DefinitionCache {
  readonly #server: string;
  readonly #byName: Remembered<DefinitionsByName>;

  constructor(server: string, read: (signal: AbortSignal) => Promise<readonly McpDefinition[]>) {
    this.#server = server;
    // A reading has no call's signal, because other calls wait for the same list.
    this.#byName = new Remembered(
      async () => usableByName(await read(new AbortController().signal)),
      DEFINITIONS_FRESH_MS,
      systemClock,
    );
  }

  /** The server has announced a change. */
  clear(): void {
    this.#byName.forget();
  }

  /** Returns the definition of `tool`. Throws `DEFINITION_CHANGED` where it is not the accepted one. */
  async accepted(
    { tool, digest }: { readonly tool: string; readonly digest: string },
    signal: AbortSignal,
  ): Promise<McpDefinition> {
    const definition = (await this.#current(signal)).get(tool);
    if (definition === undefined) throw this.#changed(`does not offer ${tool} any more`);
    if (definition === 'several') throw this.#changed(`offers two tools named ${tool}`);
    if (definitionDigest(definition) !== digest) throw this.#changed(`has changed its definition of ${tool}`);
    return definition;
  }

  async #current(signal: AbortSignal): Promise<DefinitionsByName> {
    try {
      return await unlessAborted(this.#byName.get(), signal);
    } catch (error) {
      // The call was not sent, so its tool has not run, whatever the error is.
      throw signal.aborted ? error : asToolError(error, true);
    }
  }

  #changed(change: string): ToolError {
    return new ToolError(
      `The MCP server ${this.#server} ${change}. Nothing was run. To look at the change and accept it: pawl tools import-mcp ${this.#server} --accept`,
      { code: 'DEFINITION_CHANGED', nothingHappened: true },
    );
  }
}

function usableByName(definitions: readonly McpDefinition[]): DefinitionsByName {
  const byName = new Map<string, McpDefinition | 'several'>();
  for (const definition of definitions)
    if (definition.unusable === undefined)
      byName.set(definition.name, byName.has(definition.name) ? 'several' : definition);
  return byName;
}

/** Reads all definitions as the server lists them. A name can occur twice, and an invalid entry is marked as such. */
export async function readDefinitions(
  client: Client,
  server: string,
  signal: AbortSignal,
): Promise<readonly McpDefinition[]> {
  if (client.getServerCapabilities()?.tools === undefined) return [];
  const options = { timeout: LIST_TIMEOUT_MS, signal };
  const { entries, nextCursor } = await list(client, 'tools/list', undefined, options);
  if (nextCursor !== undefined)
    throw new PawlError('MCP_PROTOCOL', `The MCP server ${server} lists its tools on more pages than can be read.`);
  return entries.map(definitionOf);
}

/** Parses leniently: fields of a wrong type are left out of a definition. */
function definitionOf(entry: unknown, index: number): McpDefinition {
  if (!isObject(entry) || typeof entry['name'] !== 'string' || entry['name'] === '') {
    const actual = entry === null ? 'null' : isObject(entry) ? 'without a name' : 'no definition';
    return { name: `entry ${index + 1}`, inputSchema: {}, unusable: `it is ${actual}` };
  }
  const { name, title, description, inputSchema, outputSchema, annotations, execution } = entry;
  const isUsable = inputSchema === undefined || inputSchema === null || isObject(inputSchema);
  const { taskSupport } = isObject(execution) ? execution : {};
  return {
    name,
    title: typeof title === 'string' ? title : undefined,
    description: typeof description === 'string' ? description : undefined,
    inputSchema,
    outputSchema,
    annotations: isObject(annotations) ? annotations : undefined,
    taskSupport: typeof taskSupport === 'string' ? taskSupport : undefined,
    unusable: isUsable ? undefined : `its inputSchema is ${describeValue(inputSchema)}`,
  };
}
