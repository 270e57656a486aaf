/** Maps tools to names that every provider accepts. */
import { digest } from '../schema/canonical-json.ts';
import { DEFAULT_NAMESPACE } from '../tools/tool.ts';

const MAX_LENGTH = 64;

export interface ToolReference {
  readonly namespace: string;
  readonly name: string;
}

/**
 * Exported names for tools, in the order given: `^[A-Za-z_][A-Za-z0-9_-]{0,63}$`, with the namespace in front unless it is the default one.
 * A name that is too long, or would collide, ends in a digest of the qualified name, which does not depend on the other tools.
 */
export function exportedNames(tools: readonly ToolReference[]): readonly string[] {
  const plain = tools.map((tool) => plainName(tool));
  return tools.map((tool, index) => {
    const name = plain[index] ?? '';
    const collides = plain.some((other, otherIndex) => other === name && otherIndex !== index);
    return collides || name.length > MAX_LENGTH ? distinctName(tool, name) : name;
  });
}

function plainName({ namespace, name }: ToolReference): string {
  const full = namespace === DEFAULT_NAMESPACE ? name : `${namespace}__${name}`;
  const mapped = full.replaceAll(/[.:/]/g, '__').replaceAll(/[^A-Za-z0-9_-]/g, '_');
  return /^[A-Za-z_]/.test(mapped) ? mapped : `_${mapped}`;
}

function distinctName({ namespace, name }: ToolReference, mapped: string): string {
  const suffix = digest(`${namespace}.${name}`)
    .replaceAll(/[^A-Za-z0-9]/g, '')
    .slice(0, 8);
  return `${mapped.slice(0, MAX_LENGTH - suffix.length - 1)}_${suffix}`;
}

/** Names of base tools in other systems, which models may use. They are not exported; policies see the tool's own name. */
const ALIASES: ReadonlyMap<string, string> = new Map([['read_file', 'read']]);

/** The name of the base tool behind an alias; undefined for any other name. */
export function primaryName(namespace: string, name: string): string | undefined {
  return namespace === DEFAULT_NAMESPACE ? ALIASES.get(name) : undefined;
}
