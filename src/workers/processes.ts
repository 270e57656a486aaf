/**
 * Programs that a tool runs. Whatever they start ends with them: when the program ends, on a time limit, when the call's
 * signal aborts, and when this worker dies, even by SIGKILL. `sandbox/means.ts` tells by which means.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync, realpathSync } from 'node:fs';
import { constants } from 'node:os';
import { basename, dirname, isAbsolute } from 'node:path';
import type { Duplex, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxPolicy } from '../shared/config.ts';
import { PawlError, ToolError } from '../shared/failure.ts';
import type { Processes, ProcessRequest, ProcessResult } from '../shared/tool.ts';
import { protectedFolders } from './protected-folders.ts';
import { type ProgramEnvironment, programEnvironment } from './sandbox/environment.ts';
import {
  availableMeans,
  type Confinement,
  chooseSandbox,
  type Launch,
  type LaunchRequest,
  type Means,
  type Sandbox,
  type Trial,
} from './sandbox/means.ts';
import { collectOutput } from './sandbox/output.ts';
import { findProgram } from './sandbox/program.ts';
import { resolveFolder } from './workspace.ts';

export const DEFAULT_MAX_OUTPUT_BYTES = 256 * 1024;

/** How long after the end of a program its outputs may still be open: only a process that escaped holds them. */
const OUTPUT_GRACE_MS = 500;
/** How long a killed tree may take to end before the run is given up: a process in the kernel cannot be killed. */
const KILL_GRACE_MS = 5_000;
const TRIAL_TIMEOUT_MS = 5_000;
const MAX_DIAGNOSIS_BYTES = 4_096;

export interface ProcessesOptions {
  /** Workspace root: programs start in it or below. */
  readonly root: string;
  /** Names the call in the environment of its processes. */
  readonly callId: string;
  /** Aborting kills what runs, and rejects with the signal's reason. */
  readonly signal: AbortSignal;
  /** Where the allow-listed variables are taken from; others never reach a program. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** A means other than the strongest that works here, or what policy says: `required`, `preferred`, `off`. */
  readonly sandbox?: SandboxPolicy | 'auto' | Means;
  /** Whether programs in a sandbox may use the network. Default: no. */
  readonly network?: boolean;
}

/**
 * `run` resolves for every program that was started, whatever its exit code; a program that a signal ended has exit code
 * 128 + the signal's number, as in shells, and the signal's name.
 * It rejects with `NOT_FOUND` for an absent program or folder, `PERMISSION_DENIED` for a folder outside the root or a file
 * that is not executable, `INVALID_PARAMS` for arguments that no program can be given, and with the signal's reason.
 */
export function openProcesses(options: ProcessesOptions): Processes {
  return {
    run: async (request) => {
      options.signal.throwIfAborted();
      refuseImpossible(request);
      const environment = programEnvironment(options.env, request.env);
      const [root, folder] = await Promise.all([
        resolveFolder(options.root, '.'),
        resolveFolder(options.root, request.cwd ?? '.'),
      ]);
      const program = await findProgram(request.argv[0], folder, environment.PATH);
      const sandbox = await sandboxFor(options.sandbox ?? 'auto');
      const marker = `${options.callId}.${randomBytes(8).toString('hex')}`;
      const confine = confinementFor(options.network ?? false, environment.PATH);
      const launch: LaunchRequest = { root, folder, argv: [program, ...request.argv.slice(1)], marker, confine };
      return supervise(sandbox, launch, environment, request, options.signal);
    },
  };
}

/** Throws `PERMISSION_DENIED` where policy demands a sandbox and none works here. */
export async function sandboxFor(wanted: SandboxPolicy | 'auto' | Means): Promise<Sandbox> {
  switch (wanted) {
    case 'required':
      return chooseSandbox('bubblewrap', trial).catch((error: Error) => {
        throw new PawlError(
          'PERMISSION_DENIED',
          'Policy demands a sandbox for programs (sandbox: required), and bubblewrap does not work on this machine; nothing was started. `pawl doctor` says more.',
          { cause: error },
        );
      });
    case 'preferred':
      return chooseSandbox('auto', trial);
    case 'off':
      return chooseSandbox('unconfined', trial);
    default:
      return chooseSandbox(wanted, trial);
  }
}

/** Of programs installed below /tmp, which the sandbox replaces, the folders are shown: those on the PATH and this Node's. */
export function confinementFor(network: boolean, searchPath: string): Confinement {
  const folders = [...searchPath.split(':').filter(isAbsolute), dirname(realpathSync(process.execPath))];
  const programs = folders
    // Links in node_modules/.bin lead to its neighbours.
    .map((folder) => (basename(folder) === '.bin' ? dirname(folder) : folder))
    .filter((folder) => /^\/(tmp|run|var\/tmp)\/./.test(folder));
  return { network, hidden: protectedFolders(), programs: [...new Set(programs)] };
}

/** Which means work on this machine, the strongest first; the first is what `auto` takes. */
export function detectMeans(): Promise<readonly Means[]> {
  return availableMeans(trial);
}

const trial: Trial = async (sandbox, request) => {
  try {
    const environment = programEnvironment({});
    const result = await supervise(
      sandbox,
      request,
      environment,
      { argv: request.argv, timeoutMs: TRIAL_TIMEOUT_MS },
      new AbortController().signal,
    );
    return result.exitCode === 0 && !result.timedOut;
  } catch {
    return false;
  }
};

function refuseImpossible(request: ProcessRequest): void {
  if (request.argv.some((argument) => argument.includes('\0')))
    throw new PawlError('INVALID_PARAMS', 'A command cannot contain a NUL character.');
}

/** How a run ended. */
type Ending =
  | { readonly kind: 'exited'; readonly status: number }
  /** We killed the tree. */
  | { readonly kind: 'cut'; readonly why: 'time limit' | 'abort' }
  /** Something else killed the shell next to the program, so that nobody reported how the program ended. */
  | { readonly kind: 'lost'; readonly code: number | null; readonly signal: NodeJS.Signals | null }
  | { readonly kind: 'not started'; readonly error?: NodeJS.ErrnoException };

/** Runs one program to its end, its tree's end included. */
async function supervise(
  sandbox: Sandbox,
  launchRequest: LaunchRequest,
  environment: ProgramEnvironment,
  request: ProcessRequest,
  signal: AbortSignal,
): Promise<ProcessResult> {
  signal.throwIfAborted();
  const startedAtMs = performance.now();
  const launch = sandbox.launch(launchRequest);
  const child = start(sandbox, launch, launchRequest.folder, environment, request);
  const maxBytes = request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const stdout = collectOutput(child.stdout, maxBytes);
  const stderr = collectOutput(child.stdio[4] as Readable, maxBytes);
  const diagnosis = collectOutput(child.stderr, MAX_DIAGNOSIS_BYTES);
  if (child.stdin !== null) {
    // A program need not read its input, and may end first.
    child.stdin.on('error', () => undefined);
    child.stdin.end(request.stdin);
  }
  const ending = await endOf(child, launch, request.timeoutMs, signal);
  if (sandbox.means === 'group') await groupEnd(child.pid);
  if (ending.kind !== 'exited' && sandbox.sweep !== undefined) await sweep(sandbox.sweep(launchRequest.marker));

  if (ending.kind === 'not started') throw couldNotStart(sandbox, request, ending.error, diagnosis().text);
  if (ending.kind === 'cut' && ending.why === 'abort') throw signal.reason;
  const out = stdout();
  const err = stderr();
  return {
    ...exitOf(ending),
    stdout: out.text,
    stderr: err.text,
    truncated: { stdoutBytes: out.droppedBytes, stderrBytes: err.droppedBytes },
    timedOut: ending.kind === 'cut',
    durationMs: Math.round(performance.now() - startedAtMs),
  };
}

function exitOf(ending: Exclude<Ending, { kind: 'not started' }>): { exitCode: number | null; signal: string | null } {
  switch (ending.kind) {
    case 'exited': {
      // By the shell's convention a status above 128 is a signal's number plus 128.
      const signal = Object.entries(constants.signals).find(([, number]) => number + 128 === ending.status)?.[0];
      return { exitCode: ending.status, signal: signal ?? null };
    }
    case 'cut':
      return { exitCode: null, signal: 'SIGKILL' };
    case 'lost':
      return { exitCode: ending.code, signal: ending.signal };
  }
}

/** Talks with the shell next to the program, kills on the time limit and on abort, and waits until nothing is left. */
async function endOf(
  child: Child,
  launch: Launch,
  timeoutMs: number | undefined,
  signal: AbortSignal,
): Promise<Ending> {
  const line = child.stdio[3] as Duplex;
  const closed = Promise.withResolvers<void>();
  let timeLimit: NodeJS.Timeout | undefined;
  let patience: NodeJS.Timeout | undefined;
  let isArmed = false;
  let known: Ending | undefined;

  const waitAtMost = (graceMs: number): void => {
    clearTimeout(patience);
    patience = setTimeout(() => {
      if (child.exitCode === null && child.signalCode === null) killGroup(child);
      closed.resolve();
    }, graceMs);
  };
  const cut = (why: 'time limit' | 'abort'): void => {
    if (known !== undefined) return;
    known = { kind: 'cut', why };
    killTree(child, line, launch);
    waitAtMost(KILL_GRACE_MS);
  };
  const onAbort = (): void => cut('abort');
  signal.addEventListener('abort', onAbort, { once: true });
  listen(line, (message) => {
    if (known !== undefined) return;
    if (message === 'armed') {
      isArmed = true;
      line.write('go\n');
      if (timeoutMs !== undefined) timeLimit = setTimeout(cut, timeoutMs, 'time limit');
    } else if (message.startsWith('exit ')) {
      known = { kind: 'exited', status: Number(message.slice('exit '.length)) };
      waitAtMost(KILL_GRACE_MS);
    }
  });
  child.once('error', (error) => {
    known ??= { kind: 'not started', error };
    closed.resolve();
  });
  child.once('exit', () => waitAtMost(OUTPUT_GRACE_MS));
  child.once('close', () => closed.resolve());

  await closed.promise;
  signal.removeEventListener('abort', onAbort);
  clearTimeout(timeLimit);
  clearTimeout(patience);
  for (const stream of child.stdio) stream?.destroy();
  return (
    known ?? (isArmed ? { kind: 'lost', code: child.exitCode, signal: child.signalCode } : { kind: 'not started' })
  );
}

type Child = ChildProcess & {
  readonly stdout: NonNullable<ChildProcess['stdout']>;
  readonly stderr: NonNullable<ChildProcess['stderr']>;
};

function start(
  sandbox: Sandbox,
  launch: Launch,
  folder: string,
  environment: ProgramEnvironment,
  request: ProcessRequest,
): Child {
  const [program, ...rest] = launch.argv;
  try {
    return spawn(program, rest, {
      cwd: folder,
      env: environment,
      // A group of its own: Ctrl-C at the worker's terminal is the worker's to handle, by draining.
      detached: true,
      stdio: [request.stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe', 'pipe', 'pipe'],
    }) as Child;
  } catch (error) {
    throw couldNotStart(sandbox, request, error as NodeJS.ErrnoException, '');
  }
}

function listen(line: Duplex, onMessage: (message: string) => void): void {
  let rest = '';
  line.setEncoding('utf8');
  line.on('error', () => undefined);
  line.on('data', (text: string) => {
    const messages = (rest + text).split('\n');
    rest = messages.pop() ?? '';
    for (const message of messages) onMessage(message);
  });
}

/**
 * With an init, that process is killed and not the one that we started: ours ends only after the kernel has ended the
 * whole namespace, so that a run that has settled has left nothing behind.
 */
function killTree(child: ChildProcess, line: Duplex, launch: Launch): void {
  if (launch.hasInit) {
    const inits = childrenOf(child.pid);
    for (const init of inits) killProcess(init);
    if (inits.length === 0) child.kill('SIGKILL');
  }
  line.destroy();
}

function childrenOf(processId: number | undefined): readonly number[] {
  try {
    return readFileSync(`/proc/${processId}/task/${processId}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

/** A killed group ends a moment after its shell. Bounded: where nothing reaps orphans, a zombie keeps its group's name. */
async function groupEnd(processId: number | undefined): Promise<void> {
  const deadlineMs = performance.now() + OUTPUT_GRACE_MS;
  while (processId !== undefined && performance.now() < deadlineMs) {
    try {
      process.kill(-processId, 0);
    } catch {
      return;
    }
    await sleep(2);
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid !== undefined) killProcess(-child.pid);
}

function killProcess(processId: number): void {
  try {
    process.kill(processId, 'SIGKILL');
  } catch {
    // It has ended already.
  }
}

function sweep(argv: readonly [string, ...string[]]): Promise<void> {
  return new Promise((resolve) => {
    const sweeper = spawn(argv[0], argv.slice(1), { env: {}, stdio: 'ignore', detached: true });
    sweeper.once('error', () => resolve());
    sweeper.once('exit', () => resolve());
  });
}

function couldNotStart(
  sandbox: Sandbox,
  request: ProcessRequest,
  error: NodeJS.ErrnoException | undefined,
  diagnosis: string,
): Error {
  if (error?.code === 'E2BIG') {
    return new PawlError(
      'INVALID_PARAMS',
      `The command line of ${request.argv[0]} is too long for the operating system; pass the data through stdin or a file.`,
    );
  }
  const why = error?.message ?? (diagnosis.trim() || 'it ended before the program was started');
  return new ToolError(`${request.argv[0]} could not be started by means of ${sandbox.means}: ${why}`, {
    code: 'PROCESS_NOT_STARTED',
    retriable: true,
    nothingHappened: true,
    ...(error === undefined ? {} : { cause: error }),
  });
}
