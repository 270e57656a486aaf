/**
 * Files that Pawl reads beside its code while it runs: Lua scripts, pages, its `package.json`. A bundler leaves them out, and another
 * package's `package.json` may be in their place: a bundled program must keep Pawl external.
 */
import { readFileSync } from 'node:fs';
import { PawlError } from '../../errors/failure.ts';

/** The text of a file of Pawl's own. Throws `CONFIGURATION` where it was left behind. */
export function readOwnFile(url: URL): string {
  try {
    return readFileSync(url, 'utf8');
  } catch (error) {
    throw bundled(error instanceof Error ? error.message : String(error), error);
  }
}

/** The version of Pawl in its `package.json`. */
export function ownVersion(url: URL): string {
  const { name, version } = JSON.parse(readOwnFile(url)) as { readonly name?: string; readonly version: string };
  if (name !== 'pawl') throw bundled(`${url.pathname} is the package.json of ${name ?? 'another package'}`);
  return version;
}

function bundled(why: string, cause?: unknown): PawlError {
  return new PawlError(
    'CONFIGURATION',
    `Pawl reads files beside its code and cannot run from a bundle (${why}). Keep the package "pawl" external, as with esbuild's --external:pawl, and install it beside the bundle; docs/deployment.md says how.`,
    { cause },
  );
}

// Found at the start, before anything reads a file that is not there.
checkPlace();

/** Throws `CONFIGURATION` where this module is in a user's bundle: Pawl's `package.json` is not where it was. */
function checkPlace(): void {
  try {
    // A bundle of CommonJS has no address at all.
    ownVersion(new URL('../../../../package.json', import.meta.url));
  } catch {
    throw bundled('this module was put into a bundle');
  }
}
