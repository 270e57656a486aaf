/** Compare-and-set for a field of a hash: a value that another writer stored meanwhile is not overwritten. */
import type { Redis } from './connection.ts';
import { Script } from './script.ts';

const replaceScript = new Script(new URL('./compare-and-set.lua', import.meta.url), [], 'once');

/** Replaces the expected value, or removes the field without a `value`. False when the field has another value. */
export async function replaceField(
  redis: Redis,
  hash: string,
  { field, expected, value }: { readonly field: string; readonly expected: string; readonly value?: string },
): Promise<boolean> {
  const [replaced] = await replaceScript.run(redis, [hash], [field, expected, ...(value === undefined ? [] : [value])]);
  return replaced === 1;
}
