/**
 * The tools that producers can call: a cached copy of the tools that workers publish, and a pushed copy of the tools that the registry
 * declares. The schema of each definition is compiled once, at its first call.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { type DeclaredToolRecord, isDeclaredTool, type RegistryRecord } from '../../shared/connectors/declared-tool.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { primaryName } from '../../shared/model-tools/names.ts';
import type { ToolPolicyRecord } from '../../shared/policy/policy-file.ts';
import { lazyValidator, type Validator } from '../../shared/schema/validator.ts';
import { declaredToolAsPublished, workersFor } from '../../shared/store/connectors/declared-offer.ts';
import { DeclaredToolCopy, type DeclaredToolRecords } from '../../shared/store/connectors/declared-tools.ts';
import {
  type Catalogue,
  type CatalogueContent,
  isAbandoned,
  type PublishedTool,
  publishedToolId,
} from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName, type ToolReference, toolNamed } from '../../shared/tools/tool.ts';
import { compareVersions } from '../../shared/tools/versions.ts';
import { capitalized, didYouMean, nearest } from '../../shared/util/text/nearest.ts';

const REFRESH_MS = 5_000;
/** An unknown name reads the catalogue again, but not more often than this. */
const MIN_REREAD_MS = 200;
/** The most known tools that an error lists. */
const MAX_LISTED = 20;

export interface ResolvedTool extends PublishedTool {
  readonly workers: number;
  readonly validate: Validator;
  /** The sandbox does not work on a worker that runs the tool. */
  readonly unconfined?: boolean;
}

export class ToolCatalogue {
  readonly #catalogue: Catalogue;
  readonly #onError: (error: Error) => void;
  /** This process's copy of the registry. */
  readonly specs: DeclaredToolCopy;
  /** Tools that workers publish, by full name. */
  #byName = new Map<string, ResolvedTool>();
  readonly #declared = new Map<string, ResolvedTool & { readonly spec: DeclaredToolRecord }>();
  #content: CatalogueContent = { tools: [], workers: [] };
  #validators = new Map<string, Validator>();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  #rereading: Promise<void> | undefined;
  readonly #timer: NodeJS.Timeout;

  constructor(catalogue: Catalogue, specs: Pick<DeclaredToolRecords, 'changesSince'>, onError: (error: Error) => void) {
    this.#catalogue = catalogue;
    this.specs = new DeclaredToolCopy(specs, (tool, record) => this.#learn(tool, record));
    this.#onError = onError;
    this.#timer = setInterval(() => this.refresh(), REFRESH_MS).unref();
  }

  /** Reads the catalogue again in the background. */
  refresh(): void {
    this.#joinRead().catch(this.#onError);
  }

  /** A read that is in progress may have begun before the change that the caller wants to see, so another one follows it. */
  async #read(): Promise<void> {
    await this.#reading?.catch(() => {});
    await this.#joinRead();
  }

  /** Reads for unknown names. Those that come before it begins share one read, so that each sees what was published before its call. */
  #reread(): Promise<void> {
    this.#rereading ??= (async () => {
      await sleep(Math.max(0, this.#readAtMs + MIN_REREAD_MS - performance.now()));
      this.#rereading = undefined;
      await this.#read();
    })();
    return this.#rereading;
  }

  #joinRead(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const [content] = await Promise.all([this.#catalogue.read(), this.specs.catchUp()]);
    const byName = new Map<string, ResolvedTool>();
    const validators = new Map<string, Validator>();
    const tools = content.tools.toSorted(byNameAndPreference);
    for (const published of tools) {
      const validate = this.#validators.get(published.definition) ?? lazyValidator(published.inputSchema);
      validators.set(published.definition, validate);
      const unconfined = content.workers.some(
        (worker) => worker.unconfined?.includes(publishedToolId(published)) === true,
      );
      const name = qualifiedName(published);
      if (!byName.has(name)) byName.set(name, { ...published, validate, unconfined });
    }
    this.#content = { ...content, tools };
    this.#byName = byName;
    this.#validators = validators;
    this.#readAtMs = performance.now();
  }

  /** The tool that calls of a name go to. Throws `UNKNOWN_TOOL` with the nearest names. */
  async find(namespace: string, name: string): Promise<ResolvedTool> {
    const found = this.peek(namespace, name);
    if (found !== undefined) return found;
    await this.#reread();
    const published = this.peek(namespace, name);
    if (published !== undefined) return published;
    throw unknownTool([...this.#byName.values(), ...this.#declared.values()], namespace, name);
  }

  /** The tool from the cache, without a round trip. */
  peek(namespace: string, name: string): ResolvedTool | undefined {
    const qualified = `${namespace}.${name}`;
    return this.#byName.get(qualified) ?? this.#declared.get(qualified);
  }

  toolPolicyFor(tool: ToolReference): ToolPolicyRecord | undefined {
    return this.specs.toolPolicyFor(tool);
  }

  #learn(tool: string, record: RegistryRecord | undefined): void {
    if (!isDeclaredTool(record)) {
      this.#declared.delete(tool);
      return;
    }
    const declared = this.#declared.get(tool);
    const validate = declared?.definition === record.definition ? declared.validate : lazyValidator(record.inputSchema);
    this.#declared.set(tool, { ...declaredToolAsPublished(record), workers: 0, validate, spec: record });
  }

  /** Declared tools, with the number of workers that can run them now. */
  #declaredNow(): ResolvedTool[] {
    const { workers } = this.#content;
    return [...this.#declared.values()]
      .filter((published) => !this.#byName.has(qualifiedName(published)))
      .map(({ spec, ...published }) => ({ ...published, workers: workersFor(spec, workers) }));
  }

  /** Reads the catalogue, sorted by name and preference. Tools that no worker has published for longer than `abandonedMs` are left out. */
  async all(abandonedMs = Number.POSITIVE_INFINITY): Promise<CatalogueContent> {
    await this.#read();
    const { tools, workers } = this.#content;
    const published = tools.filter((published) => !isAbandoned(published, workers, abandonedMs));
    return { ...this.#content, tools: [...published, ...this.#declaredNow()] };
  }

  async code(): Promise<readonly PublishedTool[]> {
    await this.#read();
    return this.#content.tools;
  }

  /** Reads the version of each tool that calls go to. Tools that no worker has published for longer than `abandonedMs` are left out. */
  async current(abandonedMs: number): Promise<readonly ResolvedTool[]> {
    await this.#read();
    const { workers } = this.#content;
    const published = [...this.#byName.values()].filter((published) => !isAbandoned(published, workers, abandonedMs));
    return [...published, ...this.#declaredNow()];
  }

  /** The full name (`namespace.name`) of the tool that a name means. Throws `UNKNOWN_TOOL`. */
  async qualifiedNameOf(name: string): Promise<string> {
    const { tools } = await this.all();
    const tool = toolNamed(tools, name);
    if (tool === undefined) throw new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(name)}.`);
    return qualifiedName(tool);
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

/** Replaces an alias of a base tool by its name, unless another tool has that name. */
export function resolveAlias(envelope: ToolCallEnvelope, catalogue: Pick<ToolCatalogue, 'peek'>): ToolCallEnvelope {
  const toolName = resolveName(envelope.toolNamespace, envelope.toolName, catalogue);
  return toolName === envelope.toolName ? envelope : { ...envelope, toolName };
}

/** The name of the base tool for its alias, unless another tool has that name. */
export function resolveName(namespace: string, name: string, catalogue: Pick<ToolCatalogue, 'peek'>): string {
  const canonicalName = primaryName(namespace, name);
  const isAlias = canonicalName !== undefined && catalogue.peek(namespace, name) === undefined;
  return isAlias && catalogue.peek(namespace, canonicalName) !== undefined ? canonicalName : name;
}

/** `UNKNOWN_TOOL`, with the nearest names among the known tools. */
export function unknownTool(
  catalogue: readonly Pick<PublishedTool, 'namespace' | 'name'>[],
  namespace: string,
  name: string,
): PawlError {
  const names = catalogue.map((published) =>
    published.namespace === namespace ? published.name : qualifiedName(published),
  );
  const exactMatch = catalogue.find((published) => qualifiedName(published) === name);
  const known =
    names.length === 0 ? 'No worker has published a tool yet: is one running?' : `Known tools: ${listed(names)}.`;
  const hint =
    // Repeating the requested name would be no help.
    exactMatch !== undefined
      ? `Call ${JSON.stringify(exactMatch.name)} in namespace ${JSON.stringify(exactMatch.namespace)}.`
      : capitalized(didYouMean(name, names)) || known;
  return new PawlError(
    'UNKNOWN_TOOL',
    `There is no tool ${JSON.stringify(name)} in namespace ${JSON.stringify(namespace)}. ${hint}`,
    { details: { suggestions: nearest(name, names) } },
  );
}

function listed(names: readonly string[]): string {
  const rest = names.length - MAX_LISTED;
  return `${names.toSorted().slice(0, MAX_LISTED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`;
}

/** By name, and of one name the version first that calls go to: the newest that a living worker runs. */
function byNameAndPreference(
  a: PublishedTool & { readonly workers: number },
  b: PublishedTool & { readonly workers: number },
): number {
  const [name, other] = [qualifiedName(a), qualifiedName(b)];
  if (name !== other) return name < other ? -1 : 1;
  return Number(b.workers > 0) - Number(a.workers > 0) || compareVersions(b.version, a.version);
}
