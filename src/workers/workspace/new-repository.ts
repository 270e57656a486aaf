/**
 * Whether git's own files that a program made name nothing that git would run. A program may clone a repository and make worktrees, and a
 * shell prompt or an editor then starts git in it. Only what git itself writes there is known to be harmless; all else is not.
 */
import { constants, lstatSync, readdirSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { readSmallFile } from './small-file.ts';

const MAX_BYTES = 64 * 1_024;

/** Settings that name no program. `*` stands for all settings of a section. */
const HARMLESS_SETTINGS = new Set(
  `core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase core.precomposeunicode core.symlinks
  core.autocrlf core.eol core.safecrlf core.worktree core.sparsecheckout core.sparsecheckoutcone core.longpaths remote.url remote.pushurl
  remote.fetch remote.push remote.tagopt remote.prune remote.promisor remote.partialclonefilter remote.mirror branch.remote
  branch.pushremote branch.merge branch.rebase branch.description submodule.url submodule.active submodule.branch submodule.ignore
  user.name user.email lfs.repositoryformatversion lfs.url gc.auto init.defaultbranch extensions.* pull.* push.* advice.* color.*
  rerere.* index.* feature.* options.*`.split(/\s+/),
);

/** Whether the file or folder with this path, one of git's own by its name, makes git run nothing. */
export function runsNothing(path: string): boolean {
  try {
    switch (basename(path)) {
      case 'config':
      case 'config.worktree':
        return areHarmlessSettings(textOf(path));
      case 'hooks':
        return lstatSync(path).isDirectory() && readdirSync(path).every((name) => name.endsWith('.sample'));
      case 'commondir':
        return /\/\.git\/worktrees\/[^/]+\/commondir$/.test(path) && textOf(path).trim() === '../..';
      case 'gitdir':
        return lstatSync(path).isFile();
      case 'rebase-merge':
      case 'sequencer':
        return lstatSync(path).isDirectory() && readdirSync(path).every((name) => stepRunsNothing(join(path, name)));
      case '.git':
        return leadsToRepository(path);
      default:
        return false;
    }
  } catch {
    return false;
  }
}

/** A rebase runs the commands of its list; any merge runs the program that its strategy names, which may be a path. */
function stepRunsNothing(path: string): boolean {
  switch (basename(path)) {
    case 'git-rebase-todo':
      return !/^\s*(?:x|exec)(?!\S)/m.test(textOf(path));
    case 'strategy':
      return /^[a-z]+\n?$/.test(textOf(path));
    case 'opts':
      return areHarmlessSettings(textOf(path)) && !/^\t?strategy = (?![a-z]+$)/im.test(textOf(path));
    default:
      return true;
  }
}

/** In a worktree and in a submodule, `.git` names a folder of the repository's own, whose settings are protected there. */
function leadsToRepository(path: string): boolean {
  const [, target] = /^gitdir: ([^\n]+)\n?$/.exec(textOf(path)) ?? [];
  if (target === undefined) return false;
  const [above = '', below, ...further] = realpathSync(resolve(dirname(path), target)).split('/.git/');
  return (
    further.length === 0 &&
    !/\/(?:node_modules|\.hg)(?:\/|$)/.test(above) &&
    /^(?:worktrees|modules)\/./.test(below ?? '')
  );
}

/** Takes the form alone that git writes, so that no line means more to git than it does here. */
function areHarmlessSettings(text: string): boolean {
  let section = '';
  return text.split('\n').every((line) => {
    const head = /^\[([a-z]+)(?: "(?:[^"\\]|\\.)*")?\]$/i.exec(line)?.[1];
    section = head?.toLowerCase() ?? section;
    if (head !== undefined || line === '') return true;
    const key = /^\t?([a-z][a-z\d-]*) = [^\p{Cc}\\]*$/iu.exec(line)?.[1]?.toLowerCase();
    return key !== undefined && [`${section}.${key}`, `${section}.*`].some((name) => HARMLESS_SETTINGS.has(name));
  });
}

/** Throws for what is no small file, or a link, whose target could be changed later. */
function textOf(path: string): string {
  const text = readSmallFile(path, MAX_BYTES, constants.O_NOFOLLOW);
  if (text === undefined) throw new Error(`${path} is no small file.`);
  return text;
}
