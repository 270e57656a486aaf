/**
 * The machine's files as a program in the sandbox sees them: everything read-only, the workspace writable, temporary
 * folders of the run's own, and some paths read-only, unusable or empty. One rule orders the mounts: deeper paths are
 * mounted later, so that no mount exposes what another one has hidden.
 */
import { statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { liesIn } from '../../shared/util/file-path.ts';
import type { ExpectedMount } from './mount-check.ts';

/** The paths that a sandbox withholds from a program. The other isolation modes withhold nothing. */
export interface Confinement {
  readonly network: boolean;
  /** Real paths of folders and files that are shown empty: Pawl's own keys, data and configuration. */
  readonly hidden: readonly string[];
  /** Real paths in the workspace that stay unchanged. */
  readonly readOnly: readonly string[];
  /** Names in the workspace that a program cannot create: empty folders occupy them during the run. */
  readonly unusable: readonly string[];
  /** Real paths below /tmp that programs are installed in. They are mounted read-only. */
  readonly programs: readonly string[];
}

export const UNCONFINED: Confinement = { network: false, hidden: [], readOnly: [], unusable: [], programs: [] };

interface Mount {
  readonly path: string;
  readonly arguments: readonly string[];
}

const EMPTY_FOLDERS = ['/tmp', '/var/tmp', '/run'];
/** Through these, root could change the kernel's settings. */
const KERNEL_SETTINGS = ['sys', 'sysrq-trigger', 'irq', 'bus'].map((name) => `/proc/${name}`);

export function mountArguments(root: string, folder: string, confine: Confinement): readonly string[] {
  const mounts = mountsFor(root, confine).flatMap((mount) => mount.arguments);
  return [...mounts, ...['--setenv', 'TMPDIR', '/tmp', '--chdir', folder]];
}

/** The mounts that a program of the workspace could redirect while they are made: the workspace's own and those in it. */
export function expectedMounts(root: string, confine: Confinement): readonly ExpectedMount[] {
  return mountsFor(root, confine)
    .filter((mount) => liesIn(root, mount.path) && mount.arguments[0] !== '--ro-bind-try')
    .map(({ path, arguments: [, source, target] }) => ({ path, bindsItself: source === path && target === path }));
}

function mountsFor(root: string, confine: Confinement): readonly Mount[] {
  const { hidden, readOnly, unusable, programs } = confine;
  const protectedPaths = [...hidden, ...readOnly, ...unusable].filter((path) => path.startsWith(join(root, '/')));
  const mounts: readonly Mount[] = [
    { path: '/', arguments: ['--ro-bind', '/', '/'] },
    { path: '/dev', arguments: ['--dev', '/dev'] },
    { path: '/proc', arguments: ['--proc', '/proc'] },
    ...EMPTY_FOLDERS.map((path) => ({ path, arguments: ['--tmpfs', path] })),
    ...KERNEL_SETTINGS.map((path) => ({ path, arguments: ['--ro-bind-try', path, path] })),
    ...programs.map((path) => ({ path, arguments: ['--ro-bind-try', path, path] })),
    { path: root, arguments: ['--bind', root, root] },
    // A program that renamed a folder on the way would reach its protected content; a mount point cannot be renamed.
    ...protectedPaths
      .flatMap((path) => foldersBetween(root, path))
      .map((path) => ({ path, arguments: ['--bind', path, path] })),
    ...readOnly.map((path) => ({ path, arguments: ['--ro-bind', path, path] })),
    ...hidden.map(hide),
    ...unusable.map((path) => ({ path, arguments: ['--tmpfs', path, '--remount-ro', path] })),
  ];
  return sorted(mounts);
}

function hide(path: string): Mount {
  const isFile = statSync(path, { throwIfNoEntry: false })?.isFile() === true;
  return { path, arguments: isFile ? ['--ro-bind', '/dev/null', path] : ['--tmpfs', path] };
}

/** Sorts shallow paths first. Of several mounts of one path the last one, the strictest, remains. */
function sorted(mounts: readonly Mount[]): readonly Mount[] {
  const byPath = new Map(mounts.map((mount) => [mount.path, mount]));
  const depth = ({ path }: Mount) => path.split('/').filter(Boolean).length;
  return [...byPath.values()].sort((one, other) => depth(one) - depth(other));
}

function foldersBetween(root: string, path: string): readonly string[] {
  const parent = dirname(path);
  return parent === root ? [] : [...foldersBetween(root, parent), parent];
}
