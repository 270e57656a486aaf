/**
 * Programs that a tool runs. All their descendants end with them: when the program ends, at a time limit, when the
 * call's signal aborts, and when this worker dies, even by SIGKILL. `sandbox/isolation.ts` describes how.
 */
import { randomBytes } from 'node:crypto';
import { realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, relative } from 'node:path';
import type { Readable } from 'node:stream';
import { PawlError, reasonOf } from '../../shared/errors/failure.ts';
import type { SandboxPolicy } from '../../shared/policy/sandbox-policy.ts';
import type { Processes, ProcessRequest, ProcessResult } from '../../shared/tools/capabilities.ts';
import { collectOutput } from '../sandbox/capped-output.ts';
import { type ProgramEnvironment, programEnvironment } from '../sandbox/environment.ts';
import { explainRefusal } from '../sandbox/explain-refusal.ts';
import { findProgram } from '../sandbox/find-program.ts';
import {
  availableIsolation,
  chooseSandbox,
  type Isolation,
  type LaunchRequest,
  type Sandbox,
  type Trial,
} from '../sandbox/isolation.ts';
import { type MovedFile, makePlaceholders, moveAside } from '../sandbox/placeholders.ts';
import { startTree } from '../sandbox/process-tree.ts';
import { findBoundary } from '../workspace/boundary.ts';
import { realRootOf } from '../workspace/safe-path.ts';
import { resolveFolder } from '../workspace/workspace.ts';
import { forbiddenReason } from '../workspace/workspace-roots.ts';

const DEFAULT_MAX_OUTPUT_BYTES = 256 * 1024;

const TRIAL_TIMEOUT_MS = 5_000;
/** How long a sandbox may take until its program starts. */
const START_TIMEOUT_MS = 20_000;

export interface ProcessesOptions {
  /** The workspace root; programs start in it or below. */
  readonly root: string;
  /** The root is Pawl's own folder or the operator's choice, so it may lie anywhere. */
  readonly isTrustedRoot?: boolean;
  /** Identifies the call in the environment of its processes. */
  readonly callId: string;
  /** Aborting kills what runs, and rejects with the signal's reason. */
  readonly signal: AbortSignal;
  /** The source of the allow-listed variables. Other variables never reach a program. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The isolation mode to use instead of the strongest available one, or a policy: `required`, `preferred`, `off`. */
  readonly sandbox?: SandboxPolicy | 'auto' | Isolation;
  /** Whether programs in a sandbox may use the network. Default: no. */
  readonly network?: boolean;
  /** Folders below /tmp that hold the program. A sandbox replaces /tmp and mounts these read-only. */
  readonly programs?: readonly string[];
}

/**
 * Opens the handle. `run` resolves for every program that was started, whatever its exit code. A program that a signal
 * ended has the signal's name and, as in shells, exit code 128 + the signal's number. It rejects with `NOT_FOUND` for
 * an absent program or folder, with `PERMISSION_DENIED` for a folder outside the root or a file that is not
 * executable, with `INVALID_PARAMS` for arguments that no program can be given, and with the signal's reason.
 */
export function openProcesses(options: ProcessesOptions): Processes {
  return {
    run: async (request) => {
      options.signal.throwIfAborted();
      return runProgram(await prepareProgram(options, request), request, options.signal);
    },
  };
}

interface PreparedProgram {
  readonly sandbox: Sandbox;
  readonly launch: LaunchRequest;
  readonly environment: ProgramEnvironment;
}

/** Resolves the program, its folder and its confinement. Starts nothing. */
export async function prepareProgram(
  options: Omit<ProcessesOptions, 'signal'>,
  request: Pick<ProcessRequest, 'argv' | 'cwd' | 'env'>,
): Promise<PreparedProgram> {
  const { root, isTrustedRoot, callId, env, sandbox: mode = 'auto', network = false, programs = [] } = options;
  checkArguments(request);
  const environment = programEnvironment(env, request.env);
  const realRoot = await (isTrustedRoot === true ? realRootOf(root) : resolveFolder(root, '.'));
  const forbidden = forbiddenReason(realRoot);
  if (forbidden !== undefined) throw new PawlError('PERMISSION_DENIED', forbidden);
  const folder = request.cwd === undefined ? realRoot : await resolveFolder(root, request.cwd);
  const program = await findProgram(request.argv[0], folder, environment.PATH);
  const sandbox = await sandboxFor(mode);
  const marker = `${callId}.${randomBytes(8).toString('hex')}`;
  const argv = [program, ...request.argv.slice(1)] as const;
  const launch = { root: realRoot, folder, argv, marker };
  if (sandbox.isolation !== 'bubblewrap') return { sandbox, launch, environment };
  const { absent, findMade, replaceable, ...boundary } = await findBoundary(realRoot);
  if (replaceable.length > 0) throw linkedCodeError(replaceable);
  const { paths: unusable, remove } = await makePlaceholders(absent);
  const release = async (): Promise<string> => {
    await remove();
    const { paths, isComplete } = await findMade();
    return describeMoved(realRoot, await moveAside(paths), isComplete);
  };
  const confine = { network, ...boundary, unusable, programs: programFolders(environment.PATH, programs) };
  return { sandbox, launch: { ...launch, confine, release }, environment };
}

const MAX_NAMED = 10;

function describeMoved(root: string, moved: readonly MovedFile[], isComplete: boolean): string {
  const named = moved.slice(0, MAX_NAMED).map(({ path, newPath }) => {
    const [from, to] = [path, newPath].map((each) => JSON.stringify(relative(root, each)));
    return from === to ? `${from} could not be renamed: remove it` : `${from} is now ${to}`;
  });
  const more = moved.length > named.length ? [`and ${moved.length - named.length} more`] : [];
  const renamed =
    moved.length === 0
      ? ''
      : `\nPawl renamed what a program made under names that programs of the workspace's owner run later (setting readOnlyPaths): ${[...named, ...more].join(', ')}.\n`;
  return isComplete
    ? renamed
    : `${renamed}\nPawl could not search all folders of the workspace for files that programs of its owner run later.\n`;
}

function linkedCodeError(links: readonly string[]): PawlError {
  return new PawlError(
    'PERMISSION_DENIED',
    `No program can run in this workspace: Pawl loads files through ${links.length === 1 ? 'the link' : 'the links'} ${links.slice(0, 5).join(', ')}, which a program could replace. Replace each link by the file or folder that it leads to, or choose another workspace.`,
  );
}

/** Whether policy asks for a sandbox and none works here. */
export async function isSandboxMissing(policy: SandboxPolicy): Promise<boolean> {
  return policy !== 'off' && (await sandboxFor(policy).catch(() => undefined)) === undefined;
}

/** Throws `PERMISSION_DENIED` where policy demands a sandbox and none works here. Only `off` allows running without one. */
async function sandboxFor(mode: SandboxPolicy | 'auto' | Isolation): Promise<Sandbox> {
  if (mode === 'off') return chooseSandbox('unconfined', trial);
  if (mode !== 'required' && mode !== 'preferred') return chooseSandbox(mode, trial);
  return chooseSandbox('bubblewrap', trial).catch((error: Error) => {
    throw new PawlError('PERMISSION_DENIED', NO_SANDBOX[mode], { cause: error });
  });
}

const NO_SANDBOX: Readonly<Record<'required' | 'preferred', string>> = {
  required:
    'Policy demands a sandbox for programs (sandbox: required), and bubblewrap does not work on this machine; nothing was started. Run `pawl doctor` for the reason.',
  preferred:
    'No sandbox works on this machine, and no person has approved running this program without one: call the tool with sandbox_permissions "require_escalated", or ask the operator to set PAWL_SANDBOX=off. Run `pawl doctor` for the reason.',
};

/**
 * Lists the folders of programs that are installed below /tmp, which the sandbox replaces: those on the PATH, that of
 * this Node, and `extra`.
 */
function programFolders(searchPath: string, extra: readonly string[]): readonly string[] {
  const folders = [...extra, ...searchPath.split(':').filter(isAbsolute), dirname(realpathSync(process.execPath))];
  const programDirs = folders
    // Links in node_modules/.bin lead to its neighbours.
    .map((folder) => (basename(folder) === '.bin' ? dirname(folder) : folder))
    .filter((folder) => /^\/(tmp|run|var\/tmp)\/./.test(folder));
  return [...new Set(programDirs)];
}

/** Lists the isolation modes that work on this machine, the strongest first; `auto` uses the first. */
export function detectIsolation(): Promise<readonly Isolation[]> {
  return availableIsolation(trial);
}

/** Explains, for `pawl doctor`, why programs cannot run in a sandbox here; undefined where they can. */
export async function sandboxFault(): Promise<string | undefined> {
  return chooseSandbox('bubblewrap', trial).then(() => undefined, reasonOf);
}

const trial: Trial = async (sandbox, request) => {
  try {
    const { exitCode, timedOut, stderr } = await runProgram(
      { sandbox, launch: request, environment: programEnvironment({}) },
      { argv: request.argv, timeoutMs: TRIAL_TIMEOUT_MS },
      AbortSignal.timeout(START_TIMEOUT_MS),
    );
    if (timedOut) return `no answer within ${TRIAL_TIMEOUT_MS} ms`;
    return exitCode === 0 ? undefined : stderr.trim() || `exit code ${exitCode}`;
  } catch (error) {
    return reasonOf(error);
  }
};

function checkArguments({ argv }: Pick<ProcessRequest, 'argv'>): void {
  if (argv.some((argument) => argument.includes('\0')))
    throw new PawlError('INVALID_PARAMS', 'A command cannot contain a NUL character.');
}

/** Runs one program until its whole process tree has ended. */
async function runProgram(
  { sandbox, launch, environment }: PreparedProgram,
  request: ProcessRequest,
  signal: AbortSignal,
): Promise<ProcessResult> {
  const startedAtMs = performance.now();
  const tree = startTree(sandbox, {
    launch,
    environment,
    name: request.argv[0],
    streams: { stdin: request.stdin === undefined ? 'ignore' : 'pipe', stdout: 'pipe', stderr: 'pipe' },
    timeoutMs: request.timeoutMs,
    signal,
  });
  const maxBytes = request.maxOutputBytes ?? DEFAULT_MAX_OUTPUT_BYTES;
  const stdout = collectOutput(tree.stdout as Readable, maxBytes);
  const stderr = collectOutput(tree.stderr as Readable, maxBytes);
  // A program need not read its input, and may end first.
  tree.stdin?.on('error', () => undefined);
  tree.stdin?.end(request.stdin);
  const { note, ...exit } = await tree.ended;
  const out = stdout();
  const err = stderr();
  return {
    ...exit,
    stdout: out.text,
    stderr: `${err.text}${note}${exit.exitCode === 0 ? '' : explainRefusal(launch, `${out.text}\n${err.text}`)}`,
    truncated: { stdoutBytes: out.droppedBytes, stderrBytes: err.droppedBytes },
    durationMs: Math.round(performance.now() - startedAtMs),
  };
}
