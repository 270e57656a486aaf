/** The trust boundary (`protected-paths.ts`) of one workspace, in the form that a sandbox mounts. */
import { existsSync, readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { OWNER_FILES } from '../../shared/policy/read-only-paths.ts';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { isPlaceholder } from '../sandbox/placeholders.ts';
import { hardLinksTo } from './hard-links.ts';
import { foldersAbove } from './named-files.ts';
import { runsNothing } from './new-repository.ts';
import { BARE_HEAD, type FoundOwnerFiles, findOwnerFiles, isOwnerFile } from './owner-files.ts';
import {
  credentials,
  namedFiles,
  ownerFilePaths,
  protectedCode,
  protectedFiles,
  protectedFolders,
  protectedNames,
  realPaths,
  statsOf,
} from './protected-paths.ts';

interface Boundary {
  /** Real paths that are shown empty. */
  readonly hidden: readonly string[];
  /** Real paths below the root that stay unchanged. */
  readonly readOnly: readonly string[];
  /** Names below the root that do not exist and must not be created. */
  readonly absent: readonly string[];
  /** Finds the owner's files that a program has made, deepest first, when it has ended. */
  readonly findMade: () => Promise<MadeFiles>;
  /** Protected names below the root that are links. Nothing can be mounted over a link, so that a program could replace it. */
  readonly replaceable: readonly string[];
}

interface MadeFiles {
  readonly paths: readonly string[];
  /** False where not all folders could be searched, and all could be before. */
  readonly isComplete: boolean;
}

/** Git fails if one of these is a folder. */
const FILES_OF_GIT = new Set(['commondir', 'config.worktree', 'gitdir', 'HEAD']);
/** Git writes these itself at each step of a rebase or a cherry-pick, which programs may begin and continue. */
const STEPS_OF_GIT = /\/(?:rebase-merge|sequencer)$/;
/** Folders in which most files are not the owner's. */
const SHARED_FOLDERS = ['.agents', '.clinerules', '.config', '.github', '.vim'];
/**
 * Names of the owner's files that are no placeholders either, with the folders on their way: interpreters fail if theirs is a folder, and
 * a name without a dot would appear in every list of the workspace.
 */
const UNOCCUPIED = OWNER_FILES.flatMap(({ paths, isReadInSandbox }) => {
  const isVisible = (path: string) => !path.startsWith('.') || SHARED_FOLDERS.includes(path.split('/')[0] ?? '');
  return paths
    .filter((path) => isReadInSandbox || isVisible(path))
    .flatMap((path) => path.split('/').map((_, index, names) => `/${names.slice(0, index + 1).join('/')}`));
});

export async function findBoundary(root: string): Promise<Boundary> {
  const hiddenFiles = protectedFiles();
  const hidden = [...new Set([...protectedFolders(), ...realPaths(hiddenFiles.filter(exists)), ...credentials()])];
  const searchedAtMs = Date.now();
  const ownerFiles = withoutHarmlessSteps(await findOwnerFiles(root, ownerFilePaths()));
  const links = new Map(ownerFiles.present.map((path) => [path, linkAt(path)]));
  const repositories = ownerFiles.present
    .filter((path) => path.endsWith('/.git/config'))
    .map((path) => dirname(dirname(path)));
  const inRoot = (path: string) => liesIn(root, path) && path !== root;
  const dangling = [...links].flatMap(([path, target]) =>
    target === undefined || existsSync(path) ? [] : [resolve(dirname(path), target)],
  );
  const named = [...namedFiles([...foldersAbove(root), ...repositories]), ...dangling].filter(inRoot);
  const ownPaths = protectedNames().filter(inRoot);
  const present = [
    ...[...ownPaths, ...named].filter(exists),
    ...[...ownerFiles.present, ...ownerFiles.tooLarge],
    // A placeholder stands where there is no code, and its mark is a link of all others.
    ...(await hardLinksTo(protectedCode().filter(exists), root)),
  ].map(resolveLink);
  const readOnly = outermost(
    present.filter((path) => liesIn(root, path) && !hidden.includes(path) && existsSync(path)),
  );
  const missing = outermost([
    ...[...ownPaths, ...named].flatMap((path) => firstMissing(root, path) ?? []),
    ...ownerFiles.absent,
  ]);
  const covered = new Set([...readOnly, ...hidden]);
  const uncovered = missing.filter((path) => !covered.has(path) && !liesBelowOne(covered, path));
  const isOwn = (path: string) => ownPaths.some((each) => liesIn(path, each));
  const isRenamed = (path: string) =>
    !isOwn(path) && (FILES_OF_GIT.has(basename(path)) || named.some((each) => liesIn(path, each)));
  const isOccupied = (path: string) =>
    isOwn(path) || !(isRenamed(path) || UNOCCUPIED.some((name) => path.endsWith(name)));
  const isReplaced = (path: string) => statsOf(path) !== undefined && linkAt(path) !== links.get(path);
  const findMade = async (): Promise<MadeFiles> => {
    const { paths, isComplete } = await findMadeSince(root, ownerFiles, searchedAtMs);
    // Nothing can be mounted over a link itself.
    const replaced = ownerFiles.present.filter((path) => links.get(path) !== undefined && isReplaced(path));
    const made = new Set([...uncovered.filter(isRenamed).filter(exists), ...paths, ...replaced]);
    return {
      paths: [...made].sort((one, other) => other.length - one.length),
      isComplete: isComplete || !ownerFiles.isComplete,
    };
  };
  return { hidden, readOnly, absent: uncovered.filter(isOccupied), findMade, replaceable: replaceableLinks(root) };
}

function withoutHarmlessSteps({ present, absent, ...found }: FoundOwnerFiles): FoundOwnerFiles {
  return {
    ...found,
    present: present.filter((path) => !(STEPS_OF_GIT.test(path) && runsNothing(path))),
    absent: absent.filter((path) => !STEPS_OF_GIT.test(path)),
  };
}

/**
 * Git's own files are left in folders that the program made, where git runs nothing for them: it may clone a repository. In a folder that
 * was there before, git would find them at the owner's next command.
 */
async function findMadeSince(root: string, before: FoundOwnerFiles, searchedAtMs: number): Promise<MadeFiles> {
  const patterns = ownerFilePaths();
  const { present, bareRepositories, isComplete } = await findOwnerFiles(root, patterns, before.folders);
  const presentBefore = new Set(before.present);
  const notGit = patterns.filter((pattern) => !pattern.startsWith('.git/'));
  const isLeft = (path: string) =>
    !isOwnerFile(path, root, notGit, false) &&
    (STEPS_OF_GIT.test(path) || !before.folders.has(dirname(path))) &&
    runsNothing(path);
  const isNewRepository = (folder: string) => before.folders.has(folder) && !before.bareRepositories.has(folder);
  const heads = [...bareRepositories].filter(isNewRepository).map((folder) => join(folder, BARE_HEAD));
  // The first search may not have reached all of the owner's own files. Programs cannot set this time.
  const isOld = (path: string) => !before.isComplete && (statsOf(path)?.ctimeMs ?? 0) < searchedAtMs;
  const isNew = (path: string) =>
    !presentBefore.has(path) && !isOld(path) && !before.tooLarge.some((folder) => liesIn(folder, path));
  // Without their head, what stands beside it is no repository's.
  const made = present.filter((path) => isNew(path) && !heads.includes(join(dirname(path), BARE_HEAD)));
  return { paths: [...made.filter((path) => !isLeft(path)), ...heads], isComplete };
}

function replaceableLinks(root: string): readonly string[] {
  const names = protectedNames().filter((path) => liesIn(root, path) && path !== root);
  const links = names.filter((path) => statsOf(path)?.isSymbolicLink() === true);
  const mounted = links.length === 0 ? [] : names.filter((path) => statsOf(path)?.isDirectory() === true);
  return links.filter((link) => !mounted.some((folder) => liesIn(folder, link)));
}

function exists(path: string): boolean {
  const stats = statsOf(path);
  return stats !== undefined && !(stats.isDirectory() && isPlaceholder(path));
}

/** Resolves a link to its target, because nothing can be mounted over the link itself. */
function resolveLink(path: string): string {
  return orUndefined(() => realpathSync(path)) ?? path;
}

/** Drops the paths that lie in another one. */
function outermost(paths: readonly string[]): readonly string[] {
  const distinct = new Set(paths);
  return [...distinct].filter((path) => !liesBelowOne(distinct, path));
}

/** Whether one of the folders is above the path. All are absolute. */
function liesBelowOne(folders: ReadonlySet<string>, path: string): boolean {
  const folder = dirname(path);
  return folder !== path && (folders.has(folder) || liesBelowOne(folders, folder));
}

/** The target as a link states it; undefined for anything else. */
function linkAt(path: string): string | undefined {
  return orUndefined(() => readlinkSync(path));
}

function firstMissing(root: string, path: string): string | undefined {
  let folder = root;
  for (const name of relative(root, path).split(sep)) {
    folder = join(folder, name);
    if (!exists(folder)) return existsSync(dirname(folder)) ? folder : undefined;
  }
  return undefined;
}
