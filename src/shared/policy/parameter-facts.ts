/** The hosts and paths that a call's parameters name. */
import { posix } from 'node:path';
import { parsePatch } from '../patches/patch.ts';
import { hostInUrl, hostNamesOf } from '../util/hosts.ts';
import { orUndefined } from '../util/or-undefined.ts';

/** Each host in the forms that a list may name: without its port, and with the port where that is known. */
export function hostsIn(
  params: Readonly<Record<string, unknown>>,
): { readonly name: string; readonly forms: readonly string[] }[] {
  return textsIn(params).flatMap(([name, value]) => {
    // Parsed as `fetch` would: `https:/host` names a host, too, with a tab in its scheme or a control character before it.
    const url = URL.canParse(value) ? new URL(value) : undefined;
    if (url?.href.startsWith(`${url.protocol}//`)) return [{ name, forms: hostNamesOf(url) }];
    if (!/^(?:host|hostname|domain)s?$/i.test(name)) return [];
    // A text that is more than a host, such as `evil.net/?.example.com`, is no host.
    const host = hostInUrl(value);
    return [{ name, forms: [...new Set([host.replace(/:\d+$/, ''), host])] }];
  });
}

const PATH_NAMES =
  /^(?:(?:path|file|file_?path|filename|dir|folder|source|target|destination)s?|directory|directories|cwd|workdir|from|to)$/i;

export function pathsIn(params: Readonly<Record<string, unknown>>): { readonly name: string; readonly path: string }[] {
  return textsIn(params).flatMap(([name, value]) => {
    const paths = name === 'patch' ? patchPaths(value) : PATH_NAMES.test(name) ? [value] : [];
    return paths.map((path) => ({ name, path: posix.normalize(path) }));
  });
}

/** The paths of the files in a patch. A patch that cannot be parsed cannot be applied either. */
function patchPaths(text: string): string[] {
  const patch = orUndefined(() => parsePatch(text)) ?? [];
  return patch.flatMap((file) =>
    file.kind === 'update' && file.moveTo !== undefined ? [file.path, file.moveTo] : [file.path],
  );
}

/** Calls with more deeply nested parameters are refused. */
const MAX_DEPTH = 128;

/** All texts of a value, those in lists and objects included: a tool that takes several paths takes each of them. */
function textsIn(value: unknown, name = '', depth = 0): (readonly [name: string, text: string])[] {
  if (typeof value === 'string') return [[name, value]];
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return [];
  const entries = Array.isArray(value) ? value.map((item) => [name, item] as const) : Object.entries(value);
  return entries.flatMap(([key, item]) => textsIn(item, key, depth + 1));
}
