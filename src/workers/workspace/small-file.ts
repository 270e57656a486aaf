import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { orUndefined } from '../../shared/util/or-undefined.ts';

/**
 * The text of a file that a call may have made; undefined for what is missing, longer than `maxBytes`, or no regular file: to open a pipe
 * could wait for ever. `flags` are further flags of the open.
 */
export function readSmallFile(path: string, maxBytes: number, flags = 0): string | undefined {
  return orUndefined(() => {
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | flags);
    try {
      const stats = fstatSync(file);
      return stats.isFile() && stats.size <= maxBytes ? readFileSync(file, 'utf8') : undefined;
    } finally {
      closeSync(file);
    }
  });
}
