/**
 * The means by which a program's whole tree of processes is held together, the strongest first:
 *
 * | means        | how                                                         | what can escape |
 * |--------------|-------------------------------------------------------------|-----------------|
 * | `bubblewrap` | own PID namespace, read-only root, writable workspace       | nothing |
 * | `namespace`  | own PID namespace (util-linux: setpriv, unshare)            | nothing |
 * | `keeper`     | every process whose environment carries the call's marker   | a process that starts with an emptied environment |
 * | `group`      | the process group                                           | a process that starts its own session |
 *
 * In all of them a small `sh` stands next to the program and talks with the worker over descriptor 3, a socket:
 *
 *     sh      → armed        "from now on I and what I start die with the worker"
 *     worker  → go           without it nothing is started: a worker that died before `armed` never says it
 *     sh      → exit CODE    the program has ended
 *     worker  → end of file  the worker is gone, or wants the tree gone
 *
 * Descriptor 4 is the program's standard error; the shell's own is for what goes wrong around the program.
 *
 * The two namespaces die with the worker through PR_SET_PDEATHSIG; the other two, because the watcher reads end of file.
 */

import { realpath } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { PawlError } from '../../shared/failure.ts';
import { findTrusted } from './program.ts';

export const MEANS = ['bubblewrap', 'namespace', 'keeper', 'group'] as const;
export type Means = (typeof MEANS)[number];

/** What is started for a program. */
export interface Launch {
  readonly argv: readonly [string, ...string[]];
  /** Killing the first child of the started process ends the tree, and that process lives until the tree has ended. */
  readonly hasInit: boolean;
}

export interface LaunchRequest {
  /** Real path of the workspace root. */
  readonly root: string;
  /** Real path of the folder to start in. */
  readonly folder: string;
  /** Absolute path of the program, and its arguments. */
  readonly argv: readonly [string, ...string[]];
  /** Unique to this run. */
  readonly marker: string;
}

export interface Sandbox {
  readonly means: Means;
  launch(request: LaunchRequest): Launch;
  /** Ends what is left of a run whose `sh` was killed by something else than this worker. */
  sweep?(marker: string): readonly [string, ...string[]];
}

/** Starts something in a sandbox and resolves with whether it ended with exit code 0: the real trial of a means. */
export type Trial = (sandbox: Sandbox, request: LaunchRequest) => Promise<boolean>;

export const MARKER_VARIABLE = 'PAWL_CALL_ID';

const SHELL = '/bin/sh';

// "$@" begins with an absolute path, so that the shell takes it neither for a builtin nor for a function. The parentheses
// cost no process, and keep the shell's own word "Killed" out of the program's standard error.
const PROGRAM = `( ${MARKER_VARIABLE}=$marker; export ${MARKER_VARIABLE}; exec "$@" 2>&4 3>&- 4>&- )`;

const IN_NAMESPACE = `
echo armed >&3
read -r go <&3 || exit 125
marker=$1; shift
${PROGRAM}
echo "exit $?" >&3
`;

// The shell itself must not carry the marker, or it would sweep itself away: only the program gets it.
// Its programs are named by path: PATH is the program's.
const sweepFunction = (grep: string, sleep: string): string => `
sweep() {
  rounds=0
  while [ "$rounds" -lt 1000 ]; do
    found=$(${grep} -lzxFs "${MARKER_VARIABLE}=$marker" /proc/[0-9]*/environ)
    [ -z "$found" ] && return
    for file in $found; do
      process=\${file#/proc/}
      kill -KILL "\${process%/environ}" 2>/dev/null
    done
    rounds=$((rounds + 1))
    [ "$rounds" -gt 3 ] && ${sleep} 0.02
  done
}
`;

const keeper = (sweep: string): string => `
echo armed >&3
read -r go <&3 || exit 125
marker=$1; shift
${sweep}
( read -r end <&3; sweep ) </dev/null >/dev/null 2>&1 4>&- &
watcher=$!
${PROGRAM}
code=$?
kill -KILL "$watcher"
sweep
echo "exit $code" >&3
`;

const GROUP = `
echo armed >&3
read -r go <&3 || exit 125
marker=$1; shift
( read -r end <&3; kill -KILL 0 ) </dev/null >/dev/null 2>&1 4>&- &
${PROGRAM}
echo "exit $?" >&3
kill -KILL 0
`;

/** The candidates of one means on this machine; empty where its programs are not installed. */
async function candidates(means: Means): Promise<readonly Sandbox[]> {
  // A session of its own for the program: `kill 0` in a script then reaches the script's processes and not the shell next to it.
  const setsid = await findTrusted('setsid');
  const session = setsid === undefined ? [] : [setsid];
  switch (means) {
    case 'bubblewrap': {
      const bubblewrap = await findTrusted('bwrap');
      if (bubblewrap === undefined) return [];
      return [
        {
          means,
          launch: ({ root, folder, argv, marker }) => ({
            argv: [
              bubblewrap,
              ...['--unshare-pid', '--die-with-parent', '--ro-bind', '/', '/', '--dev', '/dev', '--proc', '/proc'],
              // Programs, Node among them, may be installed below /tmp: it stays visible and read-only. Temporary files go to
              // a folder of the run's own. The workspace comes last, for it may lie in either.
              ...['--tmpfs', '/var/tmp', '--setenv', 'TMPDIR', '/var/tmp', '--bind', root, root, '--chdir', folder],
              ...['--', SHELL, '-c', IN_NAMESPACE, 'pawl-run', marker, ...session, ...argv],
            ],
            hasInit: true,
          }),
        },
      ];
    }
    case 'namespace': {
      const [setpriv, unshare] = await Promise.all([findTrusted('setpriv'), findTrusted('unshare')]);
      if (setpriv === undefined || unshare === undefined) return [];
      // Root needs no user namespace; others keep their own user ID in theirs where unshare can do so, or else look like root.
      const users =
        process.getuid?.() === 0 ? [[], ['--map-root-user']] : [['--map-current-user'], ['--map-root-user']];
      return users.map((user) => ({
        means,
        launch: ({ argv, marker }) => ({
          argv: [
            ...([setpriv, '--pdeathsig', 'KILL'] as const),
            ...[unshare, ...user, '--pid', '--fork', '--kill-child', '--mount-proc'],
            ...['--', SHELL, '-c', IN_NAMESPACE, 'pawl-run', marker, ...session, ...argv],
          ],
          hasInit: true,
        }),
      }));
    }
    case 'keeper': {
      const [grep, sleep] = await Promise.all([findTrusted('grep'), findTrusted('sleep')]);
      if (process.platform !== 'linux' || grep === undefined || sleep === undefined) return [];
      const sweep = sweepFunction(grep, sleep);
      return [
        {
          means,
          launch: ({ argv, marker }) => ({
            argv: [SHELL, '-c', keeper(sweep), 'pawl-run', marker, ...session, ...argv],
            hasInit: false,
          }),
          sweep: (marker) => [SHELL, '-c', `marker=$1\n${sweep}\nsweep`, 'pawl-sweep', marker],
        },
      ];
    }
    case 'group':
      return [
        {
          means,
          launch: ({ argv, marker }) => ({ argv: [SHELL, '-c', GROUP, 'pawl-run', marker, ...argv], hasInit: false }),
        },
      ];
  }
}

const tried = new Map<Means, Promise<Sandbox | undefined>>();

/** The first candidate of a means that really works here. Tried once per process. */
function working(means: Means, trial: Trial): Promise<Sandbox | undefined> {
  const known = tried.get(means);
  if (known !== undefined) return known;
  const found = (async () => {
    const root = await realpath(tmpdir());
    for (const sandbox of await candidates(means)) {
      if (await trial(sandbox, { root, folder: root, argv: [SHELL, '-c', 'exit 0'], marker: `trial-${means}` }))
        return sandbox;
    }
    return undefined;
  })();
  tried.set(means, found);
  // A trial that could not be made says nothing about the means: the next use tries again.
  found.catch(() => tried.delete(means));
  return found;
}

/**
 * The strongest means that works on this machine, or the one asked for.
 * Throws `CONFIGURATION` where that one does not work; `group` works on every POSIX system.
 */
export async function chooseSandbox(wanted: 'auto' | Means, trial: Trial): Promise<Sandbox> {
  for (const means of wanted === 'auto' ? MEANS : [wanted]) {
    const sandbox = await working(means, trial);
    if (sandbox !== undefined) return sandbox;
  }
  throw new PawlError(
    'CONFIGURATION',
    `Programs cannot be run by means of ${wanted === 'auto' ? MEANS.join(', ') : wanted} on this machine.`,
  );
}

/** Which means work here, the strongest first (for `pawl doctor`). */
export async function availableMeans(trial: Trial): Promise<readonly Means[]> {
  const found = await Promise.all(MEANS.map((means) => working(means, trial)));
  return MEANS.filter((_, index) => found[index] !== undefined);
}
