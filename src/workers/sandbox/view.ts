/**
 * What a program in the sandbox sees of the machine's files: all of it read-only, the workspace writable, temporary folders of the run's
 * own, and some paths read-only, unusable or empty. One rule orders the mounts: what lies deeper is mounted later, so that no folder
 * brings back what another one has taken away, whatever lies in what.
 */
import { statSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What a sandbox keeps from a program; the other means keep nothing from it. */
export interface Confinement {
  readonly network: boolean;
  /** Real paths of folders and files that are shown empty: Pawl's own keys, data and configuration. */
  readonly hidden: readonly string[];
  /** Real paths in the workspace that stay as they are. */
  readonly readOnly: readonly string[];
  /** Names in the workspace that nothing can be made under: empty folders stand there for the time of the run. */
  readonly unusable: readonly string[];
  /** Real paths below /tmp that programs are installed in: shown read-only. */
  readonly programs: readonly string[];
}

export const OPEN: Confinement = { network: false, hidden: [], readOnly: [], unusable: [], programs: [] };

interface Mount {
  readonly path: string;
  readonly arguments: readonly string[];
}

const EMPTY_FOLDERS = ['/tmp', '/var/tmp', '/run'];
/** As root a program could change the kernel's settings through these. */
const KERNEL_SETTINGS = ['sys', 'sysrq-trigger', 'irq', 'bus'].map((name) => `/proc/${name}`);

/** Arguments for bubblewrap. */
export function viewOf(root: string, folder: string, confine: Confinement): readonly string[] {
  const { hidden, readOnly, unusable, programs } = confine;
  const fixed = [...hidden, ...readOnly, ...unusable].filter((path) => path.startsWith(join(root, '/')));
  const mounts: readonly Mount[] = [
    { path: '/', arguments: ['--ro-bind', '/', '/'] },
    { path: '/dev', arguments: ['--dev', '/dev'] },
    { path: '/proc', arguments: ['--proc', '/proc'] },
    ...EMPTY_FOLDERS.map((path) => ({ path, arguments: ['--tmpfs', path] })),
    ...KERNEL_SETTINGS.map((path) => ({ path, arguments: ['--ro-bind-try', path, path] })),
    ...programs.map((path) => ({ path, arguments: ['--ro-bind-try', path, path] })),
    { path: root, arguments: ['--bind', root, root] },
    // A program that renamed a folder on the way would get at what lies in it; what is mounted cannot be renamed.
    ...fixed.flatMap((path) => foldersBetween(root, path)).map((path) => ({ path, arguments: ['--bind', path, path] })),
    ...readOnly.map((path) => ({ path, arguments: ['--ro-bind', path, path] })),
    ...hidden.map(hide),
    ...unusable.map((path) => ({ path, arguments: ['--tmpfs', path, '--remount-ro', path] })),
  ];
  return [...inOrder(mounts), ...['--setenv', 'TMPDIR', '/tmp', '--chdir', folder]];
}

function hide(path: string): Mount {
  const isFile = statSync(path, { throwIfNoEntry: false })?.isFile() === true;
  return { path, arguments: isFile ? ['--ro-bind', '/dev/null', path] : ['--tmpfs', path] };
}

/** The shallow first; of one path the last one, which is the strictest. */
function inOrder(mounts: readonly Mount[]): readonly string[] {
  const byPath = new Map(mounts.map((mount) => [mount.path, mount]));
  const depth = ({ path }: Mount) => path.split('/').filter(Boolean).length;
  return [...byPath.values()].sort((one, other) => depth(one) - depth(other)).flatMap((mount) => mount.arguments);
}

function foldersBetween(root: string, path: string): readonly string[] {
  const above = dirname(path);
  return above === root ? [] : [...foldersBetween(root, above), above];
}
