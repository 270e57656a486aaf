import { relative, sep } from 'node:path';

/** Whether `path` is `folder` or lies below it, as both are written: links are the caller's to follow. */
export function liesIn(folder: string, path: string): boolean {
  return staysInside(relative(folder, path));
}

/** Of a path from a folder: that it does not leave it. */
export function staysInside(fromFolder: string): boolean {
  return fromFolder !== '..' && !fromFolder.startsWith(`..${sep}`);
}
