/**
 * Named groups of tools, static or computed for each request, that can be filtered, prefixed, renamed and merged. A worker resolves its
 * toolsets when it starts; a producer resolves its own for each request of tools, so that a session sees the tools meant for it.
 */
import { PawlError, reasonOf } from '../errors/failure.ts';
import { checkObject } from '../schema/known-members.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { backgroundSchedule, type Clock, systemClock } from '../util/time.ts';
import { withinMs } from '../util/wait.ts';
import { TOOL_FORMS, type ToolReference } from './tool.ts';
import { describeValue } from './tool-answers.ts';

/** The request for tools. It has no session in a worker that starts. */
export interface ToolsetRequest<T> {
  readonly session?: {
    readonly sessionKey: string;
    readonly kind: string;
    readonly actorId: string;
    readonly agentId?: string;
    readonly tenantId?: string;
  };
  /** The tools that the fleet offers to the session; empty in a worker. */
  readonly published: readonly T[];
}

export interface Toolset<T extends ToolReference = ToolReference> {
  readonly name: string;
  /** The tools for one request. It runs for each request, so it should be fast, or wrapped in `cached`. */
  tools(request: ToolsetRequest<T>): Promise<readonly T[]> | readonly T[];
}

/** A toolset from a list, or from a function that finds the tools for a request. Throws `CONFIGURATION` for anything else. */
export function toolset<T extends ToolReference>(name: string, tools: readonly T[] | Toolset<T>['tools']): Toolset<T> {
  if (typeof tools === 'function') return { name, tools };
  if (Array.isArray(tools)) return { name, tools: () => tools };
  throw new PawlError(
    'CONFIGURATION',
    `Toolset ${quoteValue(name)}: its tools must be a list, or a function that finds them; got ${quoteValue(tools)}.`,
  );
}

export function isToolset(value: unknown): value is Toolset {
  if (typeof value !== 'object' || value === null) return false;
  const { name, tools } = value as Partial<Toolset>;
  return typeof name === 'string' && typeof tools === 'function';
}

export function filtered<T extends ToolReference>(set: Toolset<T>, keep: (tool: T) => boolean): Toolset<T> {
  checkObject('set', set);
  return { name: set.name, tools: async (request) => (await set.tools(request)).filter(keep) };
}

/** Adds a prefix to every name, so that two servers' `search` have different names. */
export function prefixed<T extends ToolReference>(set: Toolset<T>, prefix: string): Toolset<T> {
  return renamed(set, (name) => prefix + name);
}

/** Renames tools, by a table or by a function. Throws `CONFIGURATION` for a name that no tool can have. */
export function renamed<T extends ToolReference>(
  set: Toolset<T>,
  names: Readonly<Record<string, string>> | ((name: string) => string),
): Toolset<T> {
  checkObject('set', set);
  const nameOf = (name: string) => {
    const newName =
      typeof names === 'function' ? names(name) : ((Object.hasOwn(names, name) ? names[name] : undefined) ?? name);
    if (typeof newName !== 'string' || !TOOL_FORMS.name.form.test(newName))
      throw new PawlError('CONFIGURATION', `${quoteValue(newName)} cannot be the name of a tool.`);
    return newName;
  };
  return {
    name: set.name,
    tools: async (request) => (await set.tools(request)).map((tool) => ({ ...tool, name: nameOf(tool.name) })),
  };
}

/** Caches the tools of each session for `ttlMs`. */
export function cached<T extends ToolReference>(
  set: Toolset<T>,
  ttlMs: number,
  clock: Pick<Clock, 'monotonic'> = systemClock,
): Toolset<T> {
  checkObject('set', set);
  if (typeof ttlMs !== 'number' || Number.isNaN(ttlMs))
    throw new PawlError('CONFIGURATION', `cached() needs a time in milliseconds; got ${quoteValue(ttlMs)}.`);
  const cache = new Map<string, { readonly atMs: number; readonly tools: Promise<readonly T[]> }>();
  return {
    name: set.name,
    tools(request) {
      const key = request.session?.sessionKey ?? '';
      const nowMs = clock.monotonic();
      for (const [cachedKey, { atMs }] of cache) if (nowMs - atMs >= ttlMs) cache.delete(cachedKey);
      const cachedEntry = cache.get(key);
      if (cachedEntry !== undefined) return cachedEntry.tools;
      const tools = (async () => set.tools(request))();
      cache.set(key, { atMs: nowMs, tools });
      // A failure is not cached, so that the next request tries again.
      tools.catch(() => cache.delete(key));
      return tools;
    },
  };
}

/** A request for tools waits for a toolset no longer than this. */
const LIMIT_MS = 30_000;

/** Throws for anything but a list of tools, which toolsets without types may return. */
function listOf<T extends ToolReference>(tools: readonly T[] | undefined): readonly T[] {
  const isTool = (tool: Partial<T> | null) => typeof tool?.name === 'string' && typeof tool.namespace === 'string';
  if (Array.isArray(tools) && tools.every(isTool)) return tools;
  throw new Error(`it must return a list of tools within ${LIMIT_MS / 1_000} s; it returned ${describeValue(tools)}`);
}

/** The tools of all sets, in order. Throws `CONFIGURATION`, naming the toolset that failed or the two that offer one name. */
export async function resolveToolsets<T extends ToolReference>(
  sets: readonly Toolset<T>[],
  request: ToolsetRequest<T>,
): Promise<readonly T[]> {
  if (!Array.isArray(sets) || sets.some((set) => !isToolset(set)))
    throw new PawlError('CONFIGURATION', `Toolsets must be a list of what toolset() returns; got ${quoteValue(sets)}.`);
  const toolsetOf = new Map<string, string>();
  const all: T[] = [];
  for (const set of sets) {
    let tools: readonly T[];
    try {
      tools = listOf(await withinMs((async () => set.tools(request))(), LIMIT_MS, backgroundSchedule));
    } catch (error) {
      const reason = reasonOf(error);
      throw new PawlError('CONFIGURATION', `The toolset ${JSON.stringify(set.name)} failed: ${reason}`, {
        cause: error,
      });
    }
    for (const tool of tools) {
      const name = `${tool.namespace}.${tool.name}`;
      const otherSet = toolsetOf.get(name);
      if (otherSet !== undefined)
        throw new PawlError(
          'CONFIGURATION',
          `The toolsets ${otherSet} and ${set.name} both offer ${name}: prefix or rename one.`,
        );
      toolsetOf.set(name, set.name);
      all.push(tool);
    }
  }
  return all;
}
