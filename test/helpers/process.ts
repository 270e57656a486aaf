/** Real child processes: scripts and the `pawl` command, under the Node that runs the tests. */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { inject, onTestFinished } from 'vitest';
import { inBuiltPackage } from './built-package.ts';
import { within } from './signal.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Compiled code is kept between processes: half of what it takes to start one. */
const COMPILE_CACHE = fileURLToPath(new URL('../../node_modules/.cache/pawl', import.meta.url));
const LAUNCHER = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));

export interface ProcessOptions {
  /** Added to the environment; `undefined` takes a variable away. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Default: the checkout. */
  readonly cwd?: string;
  /** Whoever starts it inside a test disposes of it, too. */
  readonly outlivesTest?: boolean;
}

export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface TestProcess extends AsyncDisposable {
  readonly pid: number;
  /** Resolves when the process has ended and its output is complete. */
  readonly ended: Promise<Ending>;
  /** All of standard output and of standard error so far. */
  stdout(): string;
  stderr(): string;
  /**
   * The first line, past or to come, of standard output or error that contains or matches `wanted`.
   * @throws Error after the deadline (default 30 s) or when the process ends first, with its output
   */
  line(wanted: string | RegExp, options?: { deadlineMs?: number }): Promise<string>;
  /** Writes a line to standard input. */
  say(line: string): void;
  /** Ends standard input, after a text without a line break. */
  endInput(text?: string): void;
  /** Stops to read standard output, as `head` does. */
  closeOutput(): void;
  signal(signal: NodeJS.Signals): void;
  /** kill -9, and waits for the end. */
  kill(): Promise<Ending>;
  /** SIGSTOP: the process stands still and knows nothing of it. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
}

/** Every process still running; whatever happens to a test, none outlives the file. */
const running = new Set<ChildProcess>();
const killAll = () => {
  for (const child of running) killGroup(child);
};
process.on('exit', killAll);
// Vitest ends the process of a test file with a signal, and 'exit' is not emitted then.
process.once('SIGTERM', () => {
  killAll();
  process.kill(process.pid, 'SIGTERM');
});

/**
 * Runs a TypeScript or JavaScript file: an example, and a program of the journeys, with the built package, any other as it stands. Inside a
 * test it is killed when the test ends; elsewhere, dispose of it.
 */
export function startScript(
  file: string | URL,
  args: readonly string[] = [],
  options: ProcessOptions = {},
): TestProcess {
  const path = typeof file === 'string' ? file : fileURLToPath(file);
  return start(process.execPath, [inBuiltPackage(path), ...args], options);
}

/** Runs `pawl …` of the built package. */
export function startPawl(args: readonly string[], options: ProcessOptions = {}): TestProcess {
  return start(process.execPath, [inBuiltPackage(LAUNCHER), ...args], options);
}

/** Runs a program that is no script of Node's. */
export function startProgram(program: string, args: readonly string[], options: ProcessOptions = {}): TestProcess {
  return start(program, args, options);
}

/** The environment of a process with these changes. */
export function environmentWith(changes: ProcessOptions['env']): Readonly<Record<string, string>> {
  const sandbox = inject('sandbox') === 'off' ? { PAWL_SANDBOX: 'off' } : {};
  const env = { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: COMPILE_CACHE, ...sandbox, ...changes };
  const kept = Object.entries(env).filter(([name, value]) => value !== undefined && !name.startsWith('VITEST'));
  return Object.fromEntries(kept) as Record<string, string>;
}

function start(program: string, args: readonly string[], options: ProcessOptions): TestProcess {
  // A group of its own, so that cleaning up reaches its children as well.
  const child = spawn(program, [...args], {
    cwd: options.cwd ?? ROOT,
    env: environmentWith(options.env),
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`${program} could not be started`);
  running.add(child);
  const output = new Output();
  child.stdin.on('error', () => {});
  child.stdout.setEncoding('utf8').on('data', (text: string) => output.add('stdout', text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => output.add('stderr', text));
  const ended = new Promise<Ending>((resolve) => {
    child.on('close', (code, signal) => {
      running.delete(child);
      output.end(`ended with ${signal ?? `code ${code}`}`);
      resolve({ code, signal });
    });
  });
  const dispose = async () => {
    killGroup(child);
    await ended;
  };
  // To a fake clock of a later test it would be a program that a call waits for.
  if (options.outlivesTest === true) child.unref();
  try {
    if (options.outlivesTest !== true) onTestFinished(dispose);
  } catch {
    // Not inside a test: whoever started it disposes of it.
  }
  return {
    pid,
    ended,
    stdout: () => output.text('stdout'),
    stderr: () => output.text('stderr'),
    line: (wanted, { deadlineMs = 60_000 } = {}) => output.line(wanted, deadlineMs),
    say: (line) => void child.stdin.write(`${line}\n`),
    endInput: (text = '') => void child.stdin.end(text),
    closeOutput: () => void child.stdout.destroy(),
    signal: (signal) => void child.kill(signal),
    kill: () => {
      child.kill('SIGKILL');
      return ended;
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    [Symbol.asyncDispose]: dispose,
  };
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // Already gone.
  }
}

type Stream = 'stdout' | 'stderr';

/** What a process wrote, by line, and who waits for a line. */
class Output {
  private readonly texts: Record<Stream, string> = { stdout: '', stderr: '' };
  private readonly partial: Record<Stream, string> = { stdout: '', stderr: '' };
  private readonly lines: string[] = [];
  private readonly waiting = new Set<{ look: (line: string) => void; fail: (error: Error) => void }>();
  private ending: string | undefined;

  add(stream: Stream, text: string): void {
    this.texts[stream] += text;
    const lines = (this.partial[stream] + text).split('\n');
    this.partial[stream] = lines.pop() ?? '';
    for (const line of lines) this.addLine(line);
  }

  end(ending: string): void {
    for (const stream of ['stdout', 'stderr'] as const)
      if (this.partial[stream] !== '') this.addLine(this.partial[stream]);
    this.ending = ending;
    for (const waiter of this.waiting) waiter.fail(this.missed(ending));
  }

  text(stream: Stream): string {
    return this.texts[stream];
  }

  async line(wanted: string | RegExp, deadlineMs: number): Promise<string> {
    const matches = (line: string) => (typeof wanted === 'string' ? line.includes(wanted) : wanted.test(line));
    const found = this.lines.find(matches);
    if (found !== undefined) return found;
    if (this.ending !== undefined) throw this.missed(this.ending);
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const waiter = { look: (line: string) => matches(line) && resolve(line), fail: reject };
    this.waiting.add(waiter);
    try {
      return await within(promise, deadlineMs, () => `a line with ${wanted}; it wrote:\n${this.lines.join('\n')}\n`);
    } finally {
      this.waiting.delete(waiter);
    }
  }

  private addLine(line: string): void {
    this.lines.push(line);
    for (const waiter of this.waiting) waiter.look(line);
  }

  private missed(ending: string): Error {
    return new Error(`the process ${ending} without the line; it wrote:\n${this.lines.join('\n')}`);
  }
}
