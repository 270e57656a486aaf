/** Compare and set for a field of a hash: a value that was written in the meantime stays. */
import type { Redis } from './connection.ts';
import { Script } from './script.ts';

const replaceScript = new Script(new URL('./compare-and-set.lua', import.meta.url));

/** Removes the field when no `value` takes the place of what was seen. Answers whether it was still that. */
export async function replaceField(
  redis: Redis,
  hash: string,
  { field, seen, value }: { readonly field: string; readonly seen: string; readonly value?: string },
): Promise<boolean> {
  const [replaced] = await replaceScript.run(redis, [hash], [field, seen, ...(value === undefined ? [] : [value])]);
  return replaced === 1;
}
