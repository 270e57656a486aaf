/**
 * One program with all its descendants, started in a sandbox and ended together. The caller chooses its standard
 * streams: pipes, or a terminal.
 */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { openSync, readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { PawlError, ToolError } from '../../shared/errors/failure.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { MAX_TIMER_MS } from '../../shared/util/time.ts';
import { onAbort } from '../../shared/util/wait.ts';
import { collectOutput } from './capped-output.ts';
import type { ProgramEnvironment } from './environment.ts';
import { FILTER_DESCRIPTOR, type Launch, type LaunchRequest, type Sandbox } from './isolation.ts';
import { mountFault } from './mount-check.ts';

/** How long a program's outputs may stay open after its end. Only an escaped process holds them. */
const OUTPUT_GRACE_MS = 500;
/** How long a killed tree may take to end before the run is given up. A process inside of the kernel cannot be killed. */
const KILL_GRACE_MS = 5_000;
const MAX_DIAGNOSIS_BYTES = 4_096;

type Stream = 'ignore' | 'pipe' | number;

interface TreeRequest {
  readonly launch: LaunchRequest;
  readonly environment: ProgramEnvironment;
  /** The program as the caller named it, for messages. */
  readonly name: string;
  /** The program's standard streams: nothing, a pipe, or a descriptor of this process. */
  readonly streams: { readonly stdin: Stream; readonly stdout: Stream; readonly stderr: Stream };
  readonly timeoutMs: number | undefined;
  /** Aborting kills the tree; `ended` then rejects with the signal's reason. */
  readonly signal: AbortSignal;
}

export interface ProgramExit {
  /** Null when this worker killed the program. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean;
}

export interface TreeExit extends ProgramExit {
  /** A text for people about the files that the program left, or an empty one. */
  readonly note: string;
}

export interface Tree {
  readonly stdin: ChildProcess['stdin'];
  readonly stdout: ChildProcess['stdout'];
  readonly stderr: Duplex | null;
  /** Resolves when the sandbox is set up and the program begins, or when there is no sandbox. */
  readonly armed: Promise<void>;
  /** Settles when the whole tree has ended. Rejects with `PROCESS_NOT_STARTED`, or with the signal's reason. */
  readonly ended: Promise<TreeExit>;
}

type RunEnd =
  | { readonly kind: 'exited'; readonly status: number }
  /** This worker killed the tree. */
  | { readonly kind: 'killed'; readonly cause: 'time limit' | 'abort' }
  /** Another process killed the supervisor, so that the program's end was not reported. */
  | { readonly kind: 'lost'; readonly code: number | null; readonly signal: NodeJS.Signals | null }
  | { readonly kind: 'not started'; readonly error?: NodeJS.ErrnoException };

/** Throws `INVALID_PARAMS` for a command line that is too long, and `PROCESS_NOT_STARTED`. */
export function startTree(sandbox: Sandbox, request: TreeRequest): Tree {
  let launch: Launch | undefined;
  let child: Child;
  const clean = async (): Promise<string> => {
    const [note = ''] = await Promise.all([request.launch.release?.(), launch?.clean?.()]);
    return note;
  };
  try {
    request.signal.throwIfAborted();
    launch = sandbox.launch(request.launch);
    child = spawnProgram(sandbox, launch, request);
  } catch (error) {
    void clean();
    throw error;
  }
  const { promise: armed, resolve: onArmed } = Promise.withResolvers<void>();
  const ended = withCleanup(superviseTree({ sandbox, launch, child }, request, onArmed), clean).finally(onArmed);
  // A caller that only reads the streams must not crash through an unhandled rejection.
  ended.catch(() => undefined);
  return { stdin: child.stdin, stdout: child.stdout, stderr: child.stdio[4] as Duplex | null, armed, ended };
}

async function withCleanup(end: Promise<ProgramExit>, clean: () => Promise<string>): Promise<TreeExit> {
  let exit: ProgramExit;
  try {
    exit = await end;
  } catch (error) {
    await clean();
    throw error;
  }
  return { ...exit, note: await clean() };
}

interface StartedTree {
  readonly sandbox: Sandbox;
  readonly launch: Launch;
  readonly child: Child;
}

async function superviseTree(started: StartedTree, request: TreeRequest, onArmed: () => void): Promise<ProgramExit> {
  const { sandbox, child } = started;
  const { signal, name } = request;
  const diagnosis = collectOutput(child.stderr, MAX_DIAGNOSIS_BYTES);
  const ending = await waitForEnd(started, request, onArmed);
  if (sandbox.isolation === 'group') await waitForGroupEnd(child.pid);
  if (ending.kind !== 'exited' && sandbox.sweep !== undefined) await sweep(sandbox.sweep(request.launch.marker));
  if (ending.kind === 'not started') throw startError(sandbox, name, ending.error, diagnosis().text);
  if (ending.kind === 'killed' && ending.cause === 'abort') throw signal.reason;
  return { ...exitOf(ending), timedOut: ending.kind === 'killed' };
}

function exitOf(ending: Exclude<RunEnd, { kind: 'not started' }>): { exitCode: number | null; signal: string | null } {
  switch (ending.kind) {
    case 'exited': {
      // By the shell's convention a status above 128 is 128 plus a signal's number.
      const signal = Object.entries(constants.signals).find(([, number]) => number + 128 === ending.status)?.[0];
      return { exitCode: ending.status, signal: signal ?? null };
    }
    case 'killed':
      return { exitCode: null, signal: 'SIGKILL' };
    case 'lost':
      return { exitCode: ending.code, signal: ending.signal };
  }
}

/** Talks with the supervisor, kills at the time limit and on abort, and waits until the tree has ended. */
async function waitForEnd(
  { child, launch }: StartedTree,
  { timeoutMs, signal }: TreeRequest,
  onArmed: () => void,
): Promise<RunEnd> {
  const channel = child.stdio[3] as Duplex;
  const closed = Promise.withResolvers<void>();
  let timeLimit: NodeJS.Timeout | undefined;
  let waitTimer: NodeJS.Timeout | undefined;
  let isArmed = false;
  let runEnd: RunEnd | undefined;

  const limitWait = (graceMs: number): void => {
    clearTimeout(waitTimer);
    waitTimer = setTimeout(() => {
      killGroup(child);
      closed.resolve();
    }, graceMs);
  };
  const kill = (end: RunEnd): void => {
    if (runEnd !== undefined) return;
    runEnd = end;
    killTree(child, channel, launch);
    limitWait(KILL_GRACE_MS);
  };
  const stopListening = onAbort(signal, () => kill({ kind: 'killed', cause: 'abort' }));
  readMessages(channel, (message) => {
    if (runEnd !== undefined) return;
    if (message === 'armed') {
      const fault = mountFault(childrenOf(child.pid)[0], launch.mounts ?? []);
      if (fault !== undefined) return kill({ kind: 'not started', error: new Error(fault) });
      isArmed = true;
      onArmed();
      channel.write('go\n');
      const overdue = { kind: 'killed', cause: 'time limit' } as const;
      if (timeoutMs !== undefined) timeLimit = setTimeout(kill, Math.min(timeoutMs, MAX_TIMER_MS), overdue);
    } else if (message.startsWith('exit ')) {
      runEnd = { kind: 'exited', status: Number(message.slice('exit '.length)) };
      limitWait(KILL_GRACE_MS);
    }
  });
  child.once('error', (error) => {
    runEnd ??= { kind: 'not started', error };
    closed.resolve();
  });
  child.once('exit', () => limitWait(OUTPUT_GRACE_MS));
  child.once('close', () => closed.resolve());

  await closed.promise;
  stopListening();
  clearTimeout(timeLimit);
  clearTimeout(waitTimer);
  for (const stream of child.stdio) stream?.destroy();
  return (
    runEnd ?? (isArmed ? { kind: 'lost', code: child.exitCode, signal: child.signalCode } : { kind: 'not started' })
  );
}

const CLOSE_ON_EXEC = 0o2_000_000;
let nothing: number | undefined;

/**
 * The streams of a program, with nothing at each further descriptor that it would inherit: a terminal of another session, a lock of the shell
 * that started this worker, or a folder, which would lead out of the sandbox. Node cannot close these.
 */
function withoutInherited(streams: readonly (Stream | undefined)[]): (Stream | undefined)[] {
  const all: (Stream | undefined)[] = [...streams];
  for (const descriptor of inheritedDescriptors()) {
    if (descriptor < streams.length) continue;
    nothing ??= openSync('/dev/null', 'r+');
    all[descriptor] = nothing;
  }
  return Array.from(all, (stream) => stream ?? 'ignore');
}

/** The descriptors of this process that programs inherit. Without /proc none can be found, and no sandbox works either. */
function inheritedDescriptors(): readonly number[] {
  const open = orUndefined(() => readdirSync('/proc/self/fd')) ?? [];
  return open.map(Number).filter((descriptor) => {
    // The one that listed the others is closed by now.
    const info = orUndefined(() => readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'));
    const [, flags] = /^flags:\s*([0-7]+)/m.exec(info ?? '') ?? [];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  });
}

type Child = ChildProcess & { readonly stderr: NonNullable<ChildProcess['stderr']> };

function spawnProgram(
  sandbox: Sandbox,
  launch: Launch,
  { launch: { folder }, environment, name, streams }: TreeRequest,
): Child {
  const [program, ...rest] = launch.argv;
  const options: SpawnOptions = {
    cwd: folder,
    env: environment,
    // The program gets a process group of its own: the worker handles Ctrl-C at its terminal by draining.
    detached: true,
    stdio: withoutInherited([
      ...([streams.stdin, streams.stdout, 'pipe', 'pipe', streams.stderr] as const),
      ...(launch.filter === undefined ? [] : (['pipe'] as const)),
    ]),
  };
  try {
    const child = spawn(program, rest, options) as Child;
    const filter = (child.stdio as readonly unknown[] | undefined)?.[FILTER_DESCRIPTOR] as Duplex | undefined;
    // A program that ended before it read the filter ended for another reason, which is reported elsewhere.
    filter?.on('error', () => undefined);
    filter?.resume();
    filter?.end(launch.filter);
    return child;
  } catch (error) {
    throw startError(sandbox, name, error as NodeJS.ErrnoException, '');
  }
}

function readMessages(channel: Duplex, onMessage: (message: string) => void): void {
  let rest = '';
  channel.setEncoding('utf8');
  channel.on('error', () => undefined);
  channel.on('data', (text: string) => {
    const messages = (rest + text).split('\n');
    rest = messages.pop() ?? '';
    for (const message of messages) onMessage(message);
  });
}

/**
 * Kills the init, where there is one, and not the started process. The started process ends only after the
 * kernel has ended the whole namespace, so that a settled run has left nothing behind.
 */
function killTree(child: ChildProcess, channel: Duplex, launch: Launch): void {
  if (launch.hasInit) {
    const inits = childrenOf(child.pid);
    for (const init of inits) killProcess(init);
    // The init may just be starting. The kernel lets no new member of a group escape a signal to the group.
    if (inits.length === 0) killGroup(child);
  }
  channel.destroy();
}

function childrenOf(processId: number | undefined): readonly number[] {
  const children = orUndefined(() => readFileSync(`/proc/${processId}/task/${processId}/children`, 'utf8')) ?? '';
  return children.split(' ').filter(Boolean).map(Number);
}

/** A killed group ends a moment after its shell. The wait is bounded: where nothing reaps orphans, a zombie keeps its group alive. */
async function waitForGroupEnd(processId: number | undefined): Promise<void> {
  const deadlineMs = performance.now() + OUTPUT_GRACE_MS;
  while (processId !== undefined && performance.now() < deadlineMs) {
    if (orUndefined(() => process.kill(-processId, 0)) === undefined) return;
    await sleep(2);
  }
}

function killGroup(child: ChildProcess): void {
  const runs = child.exitCode === null && child.signalCode === null;
  if (child.pid !== undefined && runs) killProcess(-child.pid);
}

function killProcess(processId: number): void {
  // It may have ended already.
  orUndefined(() => process.kill(processId, 'SIGKILL'));
}

function sweep(argv: readonly [string, ...string[]]): Promise<void> {
  return new Promise((resolve) => {
    const sweeper = spawn(argv[0], argv.slice(1), { cwd: '/', env: {}, stdio: 'ignore', detached: true });
    sweeper.once('error', () => resolve());
    sweeper.once('exit', () => resolve());
  });
}

function startError(
  sandbox: Sandbox,
  name: string,
  error: NodeJS.ErrnoException | undefined,
  diagnosis: string,
): Error {
  if (error?.code === 'E2BIG') {
    return new PawlError(
      'INVALID_PARAMS',
      `The command line of ${name} is too long for the operating system; pass the data through stdin or a file.`,
    );
  }
  const reason = error?.message ?? (diagnosis.trim() || 'it ended before the program was started');
  return new ToolError(`${name} could not be started in isolation mode ${sandbox.isolation}: ${reason}`, {
    code: 'PROCESS_NOT_STARTED',
    retriable: true,
    nothingHappened: true,
    ...(error !== undefined && { cause: error }),
  });
}
