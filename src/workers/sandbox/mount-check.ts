/**
 * Checks a sandbox's mounts before its program starts. bubblewrap looks up each path again, so another program of the
 * workspace can replace a folder by a link in the meantime: a folder outside of the workspace would be mounted writable.
 */
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';

/** A path at which the sandbox has a mount. `bindsItself` says that the mount shows what stands there on the machine. */
export interface ExpectedMount {
  readonly path: string;
  readonly bindsItself: boolean;
}

interface Mount {
  readonly device: string;
  /** The mounted folder or file in its file system. */
  readonly source: string;
  readonly path: string;
}

/** Explains which expected mount the process does not see, or sees from elsewhere; undefined where all are right. */
export function mountFault(processId: number | undefined, expected: readonly ExpectedMount[]): string | undefined {
  if (expected.length === 0) return undefined;
  const inside = processId === undefined ? [] : readMounts(processId);
  // In a chroot, this process' own root may be no mount; the sandbox's then is.
  const machine = [...inside.filter(({ path }) => path === '/'), ...readMounts('self')];
  const insideByPath = new Map(inside.map((mount) => [mount.path, mount]));
  const wrong = expected.find(({ path, bindsItself }) => {
    const mount = insideByPath.get(path);
    return mount === undefined || (bindsItself && !isSource(mount, machine));
  });
  return wrong === undefined ? undefined : `${wrong.path} was replaced while the sandbox was set up`;
}

/** Whether `mount` shows what the machine has at the same path. */
function isSource({ device, source, path }: Mount, machine: readonly Mount[]): boolean {
  const covering = machine.filter((mount) => liesIn(mount.path, path));
  // The last of several mounts at one path is visible.
  const below = covering.reduce((deepest, mount) => (mount.path.length >= deepest.path.length ? mount : deepest));
  return below.device === device && join(below.source, relative(below.path, path)) === source;
}

/** The mounts that a process sees; none if it has ended. */
function readMounts(processId: number | 'self'): readonly Mount[] {
  const table = orUndefined(() => readFileSync(`/proc/${processId}/mountinfo`, 'utf8')) ?? '';
  const lines = table.split('\n').filter(Boolean);
  return lines.map((line) => {
    const [, , device = '', source = '', path = ''] = line.split(' ').map(unescapeField);
    return { device, source, path };
  });
}

/** The kernel writes white space and backslashes as octal numbers. */
function unescapeField(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
