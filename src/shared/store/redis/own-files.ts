/**
 * Files that Pawl reads beside its code at run time: Lua scripts, pages, its `package.json`. A bundler leaves them out, so a bundled program
 * must keep Pawl external.
 */
import { readFileSync } from 'node:fs';
import { PawlError, reasonOf } from '../../errors/failure.ts';
import { orUndefined } from '../../util/or-undefined.ts';

/** Reads a file of Pawl's own. Throws `CONFIGURATION` when it is missing. */
export function readOwnFile(url: URL): string {
  try {
    return readFileSync(url, 'utf8');
  } catch (error) {
    throw bundleError(reasonOf(error), error);
  }
}

function bundleError(reason: string, cause?: unknown): PawlError {
  return new PawlError(
    'CONFIGURATION',
    `Pawl reads files beside its code and cannot run from a bundle (${reason}). Keep the package "pawl" external, as with esbuild's --external:pawl, and install it beside the bundle; docs/deployment.md says how.`,
    { cause },
  );
}

/** The version of Pawl. It is read at import, before any other file. */
export const PAWL_VERSION = ownVersion();

/** Throws `CONFIGURATION` when this module is in a user's bundle: then Pawl's `package.json` is not at its place. */
function ownVersion(): string {
  // In a CommonJS bundle, `import.meta.url` is undefined, and this throws, too.
  const read = () => JSON.parse(readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8'));
  const { name, version }: { readonly name?: string; readonly version?: string } = orUndefined(read) ?? {};
  if (name !== 'pawl' || version === undefined) throw bundleError('this module was put into a bundle');
  return version;
}
