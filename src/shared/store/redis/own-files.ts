/**
 * Files that Pawl reads beside its code at run time: Lua scripts, pages, its `package.json`. A bundler leaves them out, so a bundled program
 * must keep Pawl external.
 */
import { readFileSync } from 'node:fs';
import { PawlError, reasonOf } from '../../errors/failure.ts';

/** Reads a file of Pawl's own. Throws `CONFIGURATION` when it is missing. */
export function readOwnFile(url: URL): string {
  try {
    return readFileSync(url, 'utf8');
  } catch (error) {
    throw bundleError(reasonOf(error), error);
  }
}

/** The version of Pawl in its `package.json`. */
export function ownVersion(url: URL): string {
  const { name, version } = JSON.parse(readOwnFile(url)) as { readonly name?: string; readonly version: string };
  if (name !== 'pawl') throw bundleError(`${url.pathname} is the package.json of ${name ?? 'another package'}`);
  return version;
}

function bundleError(reason: string, cause?: unknown): PawlError {
  return new PawlError(
    'CONFIGURATION',
    `Pawl reads files beside its code and cannot run from a bundle (${reason}). Keep the package "pawl" external, as with esbuild's --external:pawl, and install it beside the bundle; docs/deployment.md says how.`,
    { cause },
  );
}

// Checked at import, before any file is read.
checkLocation();

/** Throws `CONFIGURATION` when this module is in a user's bundle: then Pawl's `package.json` is not at its place. */
function checkLocation(): void {
  try {
    // In a CommonJS bundle, `import.meta.url` is undefined, and this throws, too.
    ownVersion(new URL('../../../../package.json', import.meta.url));
  } catch {
    throw bundleError('this module was put into a bundle');
  }
}
