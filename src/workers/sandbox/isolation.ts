/**
 * The isolation modes, each of which holds a program's whole process tree together. The strongest comes first:
 *
 * | mode         | how                                                         | what can escape |
 * |--------------|-------------------------------------------------------------|-----------------|
 * | `bubblewrap` | own namespaces, read-only root, writable workspace, no network unless granted, limits, a seccomp filter | nothing |
 * | `namespace`  | own PID namespace (util-linux: setpriv, unshare)            | nothing |
 * | `keeper`     | every process whose environment carries the call's marker   | a process that starts with an emptied environment |
 * | `group`      | the process group                                           | a process that starts its own session |
 *
 * In every mode a small `sh`, the supervisor, runs next to the program and talks with the worker over descriptor 3, a socket:
 *
 *     sh      → armed        from now on, it and its children die with the worker
 *     worker  → go           nothing starts without it; a worker that died before `armed` never sends it
 *     sh      → exit CODE    the program has ended
 *     worker  → end of file  the worker is gone, or ends the tree
 *
 * Descriptor 4 is the program's standard error; the shell's own reports failures around the program.
 *
 * The two namespace modes die with the worker through PR_SET_PDEATHSIG; the other two because the supervisor reads end of file.
 */
import { realpath } from 'node:fs/promises';
import { release, tmpdir } from 'node:os';
import { PawlError } from '../../shared/errors/failure.ts';
import { findTrusted } from './find-program.ts';
import type { ExpectedMount } from './mount-check.ts';
import { processGroups } from './process-limit.ts';
import { syscallFilter } from './syscall-filter.ts';
import { type Confinement, expectedMounts, mountArguments, UNCONFINED } from './view.ts';

export const ISOLATION_MODES = ['bubblewrap', 'namespace', 'keeper', 'group'] as const;
export type Isolation = (typeof ISOLATION_MODES)[number];

/** The command line that starts a program in its sandbox. */
export interface Launch {
  readonly argv: readonly [string, ...string[]];
  /** Killing the first child of the started process ends the tree. The started process lives until the tree has ended. */
  readonly hasInit: boolean;
  /** A seccomp filter, which the first program reads from `FILTER_DESCRIPTOR`. */
  readonly filter?: Buffer;
  /** The mounts that the program's init must see before the program may start. */
  readonly mounts?: readonly ExpectedMount[];
  /** Must be called when the tree has ended. */
  clean?(): Promise<void>;
}

export const FILTER_DESCRIPTOR = 5;

export interface LaunchRequest {
  /** Real path of the workspace root. */
  readonly root: string;
  /** Real path of the folder to start in. */
  readonly folder: string;
  /** Absolute path of the program, and its arguments. */
  readonly argv: readonly [string, ...string[]];
  /** An id that is unique to this run. */
  readonly marker: string;
  readonly confine?: Confinement;
  /** Called when the tree has ended, or was not started. Returns a text for people about the files that it left, or an empty one. */
  readonly release?: () => Promise<string>;
  /** Standard input is a terminal. It becomes the controlling terminal, so that Ctrl-C and job control work. */
  readonly terminal?: boolean;
}

export interface Sandbox {
  readonly isolation: Isolation;
  launch(request: LaunchRequest): Launch;
  /** Ends the rest of a run whose `sh` was killed by something else than this worker. */
  sweep?(marker: string): readonly [string, ...string[]];
}

/** Starts a program in a sandbox: the real test of an isolation mode. Resolves with the reason if it did not exit with 0. */
export type Trial = (sandbox: Sandbox, request: LaunchRequest) => Promise<string | undefined>;

const MARKER_VARIABLE = 'PAWL_CALL_ID';

const SHELL = '/bin/sh';

// "$@" begins with an absolute path, so that the shell runs neither a builtin nor a function of that name. The
// parentheses cost no process, and keep the shell's message "Killed" out of the program's standard error.
/** When memory runs out, Linux kills a program before the worker. */
const PREFER_OOM_KILL = '{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null';
const PROGRAM = `( ${PREFER_OOM_KILL}; ${MARKER_VARIABLE}=$marker; export ${MARKER_VARIABLE}; exec "$@" 2>&4 3>&- 4>&- )`;

const IN_NAMESPACE = `
echo armed >&3
read -r go <&3 || exit 125
marker=$1; shift
${PROGRAM}
echo "exit $?" >&3
`;

/** The number of consecutive scans, 20 ms apart, that must find nothing before the tree counts as ended. */
const CLEAN_SCANS = 3;
const CLEAN_SCANS_AFTER_KILL = 10;

// The shell must not carry the marker, or it would sweep itself away; only the program gets it. The shell names its
// programs by path, because PATH is the program's. While a process executes a new program, its environment looks empty
// for a moment. So the tree has ended only when several scans in a row find nothing; a find or a kill restarts
// the count, with more scans.
const sweepFunction = (grep: string, sleep: string): string => `
sweep() {
  rounds=0 clean=0 enough=$1
  while [ "$rounds" -lt 1000 ]; do
    found=$(${grep} -lzxFs "${MARKER_VARIABLE}=$marker" /proc/[0-9]*/environ)
    rounds=$((rounds + 1))
    if [ -z "$found" ]; then
      clean=$((clean + 1))
      [ "$clean" -ge "$enough" ] && return
    else
      clean=0 enough=${CLEAN_SCANS_AFTER_KILL}
      for file in $found; do
        process=\${file#/proc/}
        kill -KILL "\${process%/environ}" 2>/dev/null
      done
      [ "$rounds" -le 3 ] && continue
    fi
    ${sleep} 0.02
  done
}
`;

/** Exit codes above 128 are those of programs that a signal ended. */
const superviseByMarker = (sweep: string): string => `
echo armed >&3
read -r go <&3 || exit 125
marker=$1; shift
${sweep}
( read -r end <&3; sweep ${CLEAN_SCANS_AFTER_KILL} ) </dev/null >/dev/null 2>&1 4>&- &
watcher=$!
${PROGRAM}
code=$?
kill -KILL "$watcher"
if [ "$code" -gt 128 ]; then sweep ${CLEAN_SCANS_AFTER_KILL}; else sweep ${CLEAN_SCANS}; fi
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

/** The limit on all processes and threads of one run. */
export const MAX_PROCESSES = 1_024;

/**
 * Whether the kernel counts processes per user namespace, and so per run (since 5.14). Before, a limit counts all
 * processes of the worker's user. For root it does not hold at all; `process-limit.ts` handles that case.
 */
export function countsProcesses(userId = process.getuid?.(), kernel = release()): boolean {
  const [major = 0, minor = 0] = kernel.split('.').map(Number);
  return userId !== undefined && userId !== 0 && (major > 5 || (major === 5 && minor >= 14));
}

/** Limits the private memory of each process and forbids core files. The limits are hard: without capabilities they cannot be raised. */
function hardLimits(): readonly string[] {
  const processes = countsProcesses() ? [`--nproc=${MAX_PROCESSES}`] : [];
  return [`--data=${4 * 1024 ** 3}`, '--core=0', ...processes];
}
/** Root keeps these: they suffice to work on the workspace's files of any owner, and cannot undo the sandbox. */
const ROOT_CAPABILITIES = ['CAP_DAC_OVERRIDE', 'CAP_CHOWN', 'CAP_FOWNER', 'CAP_KILL'];

function confinement({ network }: Confinement): readonly string[] {
  return [
    ...['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--die-with-parent', '--cap-drop', 'ALL'],
    // A user namespace of its own makes the processes countable. Without root, bubblewrap needs one anyway.
    ...(process.getuid?.() === 0 ? ROOT_CAPABILITIES.flatMap((name) => ['--cap-add', name]) : ['--unshare-user-try']),
    ...(network ? [] : ['--unshare-net']),
    ...['--seccomp', String(FILTER_DESCRIPTOR)],
  ];
}

/** Creates the candidates of one isolation mode; none where its programs are not installed. */
const CANDIDATES: { readonly [Mode in Isolation]: () => Promise<readonly Sandbox[]> } = {
  bubblewrap: bubblewrapCandidates,
  namespace: namespaceCandidates,
  keeper: keeperCandidates,
  group: async () => [
    {
      isolation: 'group',
      launch: ({ argv, marker }) => ({ argv: [SHELL, '-c', GROUP, 'pawl-run', marker, ...argv], hasInit: false }),
    },
  ],
};

/** Starts the program in a session of its own, so that `kill 0` in a script reaches the script's processes and not the supervisor. */
async function findSession(): Promise<(terminal?: boolean) => readonly string[]> {
  const setsid = await findTrusted('setsid');
  return (terminal = false) => (setsid === undefined ? [] : terminal ? [setsid, '-c'] : [setsid]);
}

async function bubblewrapCandidates(): Promise<readonly Sandbox[]> {
  const session = await findSession();
  const bubblewrap = await findTrusted('bwrap');
  const filter = syscallFilter();
  if (bubblewrap === undefined || filter === undefined) return [];
  const prlimit = await findTrusted('prlimit');
  const limits = prlimit === undefined ? [] : [prlimit, ...hardLimits(), '--'];
  const groups = countsProcesses() ? undefined : processGroups(MAX_PROCESSES);
  const launch: Sandbox['launch'] = ({ root, folder, argv, marker, terminal, confine = UNCONFINED }) => {
    const group = groups?.();
    const confined = [
      bubblewrap,
      ...confinement(confine),
      ...mountArguments(root, folder, confine),
      ...['--', SHELL, '-c', IN_NAMESPACE, 'pawl-run', marker, ...session(terminal), ...limits, ...argv],
    ] as const;
    const mounts = expectedMounts(root, confine);
    if (group === undefined) return { argv: confined, hasInit: true, filter, mounts };
    const [first = bubblewrap, ...rest] = [...group.enter, ...confined];
    return { argv: [first, ...rest], hasInit: true, filter, mounts, clean: group.remove };
  };
  return [{ isolation: 'bubblewrap', launch }];
}

async function namespaceCandidates(): Promise<readonly Sandbox[]> {
  const session = await findSession();
  const [setpriv, unshare] = await Promise.all([findTrusted('setpriv'), findTrusted('unshare')]);
  if (setpriv === undefined || unshare === undefined) return [];
  // Root needs no user namespace. Other users keep their user ID in theirs where unshare supports that, or else look
  // like root.
  const users = process.getuid?.() === 0 ? [[], ['--map-root-user']] : [['--map-current-user'], ['--map-root-user']];
  return users.map((user) => ({
    isolation: 'namespace',
    launch: ({ argv, marker, terminal }) => ({
      argv: [
        ...([setpriv, '--pdeathsig', 'KILL'] as const),
        ...[unshare, ...user, '--pid', '--fork', '--kill-child', '--mount-proc'],
        ...['--', SHELL, '-c', IN_NAMESPACE, 'pawl-run', marker, ...session(terminal), ...argv],
      ],
      hasInit: true,
    }),
  }));
}

async function keeperCandidates(): Promise<readonly Sandbox[]> {
  const session = await findSession();
  const [grep, sleep] = await Promise.all([findTrusted('grep'), findTrusted('sleep')]);
  if (process.platform !== 'linux' || grep === undefined || sleep === undefined) return [];
  const sweep = sweepFunction(grep, sleep);
  return [
    {
      isolation: 'keeper',
      launch: ({ argv, marker, terminal }) => ({
        argv: [SHELL, '-c', superviseByMarker(sweep), 'pawl-run', marker, ...session(terminal), ...argv],
        hasInit: false,
      }),
      sweep: (marker) => [SHELL, '-c', `marker=$1\n${sweep}\nsweep ${CLEAN_SCANS}`, 'pawl-sweep', marker],
    },
  ];
}

const trialResults = new Map<Isolation, Promise<Sandbox | string>>();

/** Returns the first candidate of a mode that works here, or the reason why none does. Each process tries a mode once. */
function findWorking(isolation: Isolation, trial: Trial): Promise<Sandbox | string> {
  const cached = trialResults.get(isolation);
  if (cached !== undefined) return cached;
  const trialRun = (async () => {
    const root = await realpath(tmpdir());
    const request: LaunchRequest = { root, folder: root, argv: [SHELL, '-c', 'exit 0'], marker: `trial-${isolation}` };
    let reason = 'it is not installed, or this system does not have it';
    for (const sandbox of await CANDIDATES[isolation]()) {
      const fault = await trial(sandbox, request);
      if (fault === undefined) return sandbox;
      reason = fault;
    }
    return reason;
  })();
  trialResults.set(isolation, trialRun);
  // A trial that could not run proves nothing about the mode, so the next use tries again.
  trialRun.catch(() => trialResults.delete(isolation));
  return trialRun;
}

/**
 * Returns the strongest mode that works on this machine, the strongest that only holds processes together
 * (`unconfined`), or the requested one. Throws `CONFIGURATION` where the requested one does not work; `group` works on
 * every POSIX system.
 */
export async function chooseSandbox(mode: 'auto' | 'unconfined' | Isolation, trial: Trial): Promise<Sandbox> {
  const isolation =
    mode === 'auto'
      ? ISOLATION_MODES
      : mode === 'unconfined'
        ? ISOLATION_MODES.filter((each) => each !== 'bubblewrap')
        : [mode];
  const reasons: string[] = [];
  for (const each of isolation) {
    const sandbox = await findWorking(each, trial);
    if (typeof sandbox !== 'string') return sandbox;
    reasons.push(`${each} (${sandbox})`);
  }
  throw new PawlError('CONFIGURATION', `No isolation works here that was asked for: ${reasons.join(', ')}.`);
}

/** Lists the modes that work here, the strongest first. */
export async function availableIsolation(trial: Trial): Promise<readonly Isolation[]> {
  const results = await Promise.all(ISOLATION_MODES.map((isolation) => findWorking(isolation, trial)));
  return ISOLATION_MODES.filter((_, index) => typeof results[index] !== 'string');
}
