/** The folders in which Pawl finds the programs that it starts for itself. */
import { realpathSync } from 'node:fs';
import { delimiter, isAbsolute, resolve } from 'node:path';
import { variableText } from './shared/config/variables.ts';
import { forbiddenRoot } from './shared/policy/workspace-root.ts';
import { liesIn } from './shared/util/file-path.ts';
import { orUndefined } from './shared/util/or-undefined.ts';

/**
 * Removes folders from the PATH through which Pawl finds the programs that it starts: relative ones, and those inside the current
 * folder or the workspace, where calls may write. `npm run` puts such folders first. No call writes to a current folder that can be no
 * workspace, such as `/`, in which services and desktop programs start their processes.
 */
export function removeWorkspaceFolders(
  environment: NodeJS.ProcessEnv,
  cwd: string,
  root = variableText(environment, 'PAWL_WORKSPACE_ROOT'),
): void {
  const isWorkspace = forbiddenRoot(cwd, []) === undefined;
  const workspaces = [...(isWorkspace ? [cwd] : []), ...(root === undefined ? [] : [resolve(cwd, root)])].flatMap(
    namesOf,
  );
  const isOutside = (folder: string) =>
    isAbsolute(folder) && !namesOf(folder).some((name) => workspaces.some((each) => liesIn(each, name)));
  environment['PATH'] = (environment['PATH'] ?? '').split(delimiter).filter(isOutside).join(delimiter);
  const libraries = environment['LD_LIBRARY_PATH'];
  // The further processes of Pawl start in this folder, and an empty entry would stand for it.
  if (libraries !== undefined)
    environment['LD_LIBRARY_PATH'] = libraries.split(/[:;]/).filter(isAbsolute).join(delimiter);
}

/** A folder as it is written, and by its real path. */
function namesOf(folder: string): readonly string[] {
  return [folder, orUndefined(() => realpathSync(folder)) ?? []].flat();
}
