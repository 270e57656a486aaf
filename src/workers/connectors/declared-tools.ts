/**
 * The registry's tools, as this worker runs them. The executors are compiled in, one for each kind. A tool is created
 * from its record at its first call.
 */
import {
  type DeclaredToolKind,
  type DeclaredToolOf,
  type DeclaredToolRecord,
  isDeclaredTool,
} from '../../shared/connectors/declared-tool.ts';
import type { NamedLimit } from '../../shared/limits/concurrency-limit.ts';
import type { ToolPolicyRecord } from '../../shared/policy/policy-file.ts';
import { markValid } from '../../shared/schema/schema.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import { declaredToolAsPublished } from '../../shared/store/connectors/declared-offer.ts';
import { DeclaredToolCopy, type DeclaredToolRecords } from '../../shared/store/connectors/declared-tools.ts';
import type { PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import type { AnyTool, Tier, Tool, ToolOptions, ToolReference } from '../../shared/tools/tool.ts';
import { defineUntypedTool } from '../../shared/tools/tool-forms.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { LimitedMap } from '../../shared/util/limited-map.ts';
import { type RegisteredTool, registeredTool } from '../attempt/attempt-state.ts';

/** Makes the functions of a declared tool, one maker for each kind. */
export type ToolMakers = { readonly [Kind in DeclaredToolKind]?: (record: DeclaredToolOf<Kind>) => Executable };

/** The functions and limits that an executor gives a declared tool. */
export interface Executable
  extends Pick<
    ToolOptions<Readonly<Record<string, unknown>>, unknown>,
    'run' | 'probe' | 'needs' | 'resource' | 'preview'
  > {
  /** The fleet's limit that its calls count against. */
  readonly limit?: NamedLimit;
}

export type PolicyLookup = ToolPolicyRecord | undefined | Promise<ToolPolicyRecord | undefined>;

/** The most cached definitions; the least recently used are dropped. */
const MAX_CACHED = 2_000;

export class DeclaredTools {
  readonly #records: Pick<DeclaredToolRecords, 'changesSince' | 'withDefinition'>;
  readonly #makers: ToolMakers;
  readonly #copy: DeclaredToolCopy;
  readonly #cachedTools = new LimitedMap<string, RegisteredTool>(MAX_CACHED);

  constructor(records: Pick<DeclaredToolRecords, 'changesSince' | 'withDefinition'>, makers: ToolMakers) {
    this.#records = records;
    this.#makers = makers;
    this.#copy = new DeclaredToolCopy(records);
  }

  get kinds(): readonly string[] {
    return Object.keys(this.#makers);
  }

  catchUp(): Promise<void> {
    return this.#copy.catchUp();
  }

  /**
   * Returns the registry's policy for a tool. A call may arrive before the broadcast of a change, so a refusal is read
   * again before it counts.
   */
  toolPolicyFor(tool: ToolReference): PolicyLookup {
    const policy = this.#copy.toolPolicyFor(tool);
    return policy?.enabled === false ? this.catchUp().then(() => this.#copy.toolPolicyFor(tool)) : policy;
  }

  /** The newest declaration that this worker knows and can run. */
  toolNamed(namespace: string, name: string): RegisteredTool | undefined {
    const record = this.#copy.get(`${namespace}.${name}`);
    return isDeclaredTool(record) ? this.#registered(record) : undefined;
  }

  /** All declared tools, whether or not this worker can run them. */
  offers(): readonly PublishedTool[] {
    return [...this.#copy.all()].filter(isDeclaredTool).map(declaredToolAsPublished);
  }

  /** The tier in the newest declaration that this worker knows, whether or not it can run it. */
  tierOf(namespace: string, name: string): Tier | undefined {
    const record = this.#copy.get(`${namespace}.${name}`);
    return isDeclaredTool(record) ? record.tier : undefined;
  }

  /** The declaration that a call was validated with. It may be newer than the ones this worker knows, or older than the newest. */
  async toolOf({ envelope, tool }: StoredRequest): Promise<RegisteredTool | undefined> {
    const cached = this.#cachedTools.get(tool.definition);
    if (cached !== undefined) return cached;
    await this.#copy.catchUp();
    const name = `${envelope.toolNamespace}.${envelope.toolName}`;
    const newest = this.#copy.get(name);
    if (newest === undefined) return undefined;
    if (isDeclaredTool(newest) && newest.definition === tool.definition) return this.#registered(newest);
    const declared = await this.#records.withDefinition(name, tool.definition);
    return declared === undefined ? undefined : this.#registered(declared);
  }

  #registered(record: DeclaredToolRecord): RegisteredTool | undefined {
    const registered = this.#cachedTools.get(record.definition) ?? this.#make(record);
    if (registered === undefined) return undefined;
    this.#cachedTools.set(record.definition, registered);
    return registered;
  }

  #make(record: DeclaredToolRecord): RegisteredTool | undefined {
    const make = this.#makers[record.kind] as ((record: DeclaredToolRecord) => Executable) | undefined;
    if (make === undefined) return undefined;
    const executable = make(record);
    const registered = registeredTool(toolOf(record, executable), record.definition);
    return { ...registered, declared: true, ...(executable.limit !== undefined && { limit: executable.limit }) };
  }
}

function toolOf(record: DeclaredToolRecord, { limit: _, ...executable }: Executable): AnyTool {
  const { name, namespace, version, description, tier, effects, annotations, inputSchema, outputSchema } = record;
  const { trustClass, voters, timeoutMs, maxResultBytes, maxOutputBytes, budget, circuit } = record;
  // It was repaired and compiled when it was declared. Both could hold the event loop.
  markValid(inputSchema);
  const tool: Tool = defineUntypedTool({
    ...{ name, namespace, version, description, tier, effects, inputSchema, timeoutMs, trustClass },
    // A service's answers come from outside, whatever its declaration says.
    annotations: { openWorldHint: true, ...annotations } as AnyTool['annotations'],
    ...defined({ voters, maxResultBytes, maxOutputBytes }),
    ...(budget !== undefined && { budget: budget as NonNullable<AnyTool['budget']> }),
    circuit: circuit ?? {},
    ...executable,
  });
  return outputSchema === undefined ? tool : { ...tool, outputSchema };
}
