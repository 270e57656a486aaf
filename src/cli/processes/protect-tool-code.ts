/** Protects the code of tools files from the calls that workers run: `workers/workspace/protected-paths.ts` enforces it. */
import { resolve } from 'node:path';
import type { Settings } from '../../shared/config/config.ts';
import { liesIn } from '../../shared/util/file-path.ts';
import { loadsTypeScript } from '../../trust-boundary.ts';
import { codeNames, linksOnPath } from '../../workers/workspace/code-files.ts';
import { protectCode, realName } from '../../workers/workspace/protected-paths.ts';
import { usageError } from '../context.ts';

/**
 * Protects `files` by the paths that the operator named, and `sources` by the paths that were loaded. Throws `CONFIGURATION` for a path
 * through a link that calls could replace, because nothing can be mounted over a link.
 */
export function protectToolCode(
  files: readonly string[],
  sources: readonly string[],
  { workspaceRoot }: Pick<Settings, 'workspaceRoot'>,
  cwd: string,
): void {
  const namedFiles = files.map((file) => resolve(cwd, file));
  const root = realName(resolve(cwd, workspaceRoot ?? '.'));
  for (const file of namedFiles) {
    const link = linksOnPath(file).find((each) => liesIn(root, each));
    if (link !== undefined)
      throw usageError(
        `The tools file ${file} is reached through the link ${link}, which lies in the workspace and which calls can replace: name the target of the link instead.`,
      );
  }
  for (const name of codeNames([...namedFiles, ...sources], [], loadsTypeScript(process.env))) protectCode(name);
}
