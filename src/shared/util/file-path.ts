import { relative, sep } from 'node:path';

/** Whether `path` is `folder` or lies below it, as both are written. The caller follows links first. */
export function liesIn(folder: string, path: string): boolean {
  return staysInside(relative(folder, path));
}

export function staysInside(fromFolder: string): boolean {
  return fromFolder !== '..' && !fromFolder.startsWith(`..${sep}`);
}
