/** Maps tools to names that every provider accepts. */
import { digest } from '../schema/canonical-json.ts';
import { DEFAULT_NAMESPACE, qualifiedName, type ToolReference } from '../tools/tool.ts';

export const MAX_NAME_LENGTH = 64;
const SUFFIX_LENGTH = 8;

/**
 * Exported names for tools, in the order given: `^[A-Za-z_][A-Za-z0-9_-]{0,63}$`, with the namespace in front unless it is the default one.
 * A name that is too long, or would collide, ends in a digest of the qualified name, which does not depend on the other tools.
 */
export function exportedNames(tools: readonly ToolReference[]): readonly string[] {
  return distinctNames(tools.map(plainName), tools.map(qualifiedName));
}

function plainName({ namespace, name }: ToolReference): string {
  const full = namespace === DEFAULT_NAMESPACE ? name : `${namespace}__${name}`;
  const mapped = full.replaceAll(/[.:/]/g, '__').replaceAll(/[^A-Za-z0-9_-]/g, '_');
  return /^[A-Za-z_]/.test(mapped) ? mapped : `_${mapped}`;
}

/** The names, of which each that is too long, or is another's too, ends in a digest of its original. `keyOf`: what two names share. */
export function distinctNames(
  names: readonly string[],
  originals: readonly string[],
  keyOf = (name: string) => name,
): readonly string[] {
  const repeated = repeatedIn(names.map(keyOf));
  return names.map((name, index) => {
    if (!repeated.has(keyOf(name)) && name.length <= MAX_NAME_LENGTH) return name;
    const suffix = digest(originals[index] ?? '').replaceAll(/[^A-Za-z0-9]/g, '');
    return `${name.slice(0, MAX_NAME_LENGTH - SUFFIX_LENGTH - 1)}_${suffix.slice(0, SUFFIX_LENGTH)}`;
  });
}

/** The names that occur more than once. */
export function repeatedIn(names: readonly string[]): ReadonlySet<string> {
  const once = new Set<string>();
  return new Set(names.filter((name) => once.has(name) || !once.add(name)));
}

/** Names of base tools in other systems, which models may use. They are not exported; policies see the tool's own name. */
const ALIASES: ReadonlyMap<string, string> = new Map([['read_file', 'read']]);

/** The name of the base tool behind an alias; undefined for any other name. */
export function primaryName(namespace: string, name: string): string | undefined {
  return namespace === DEFAULT_NAMESPACE ? ALIASES.get(name) : undefined;
}
