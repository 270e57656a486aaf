/** One program that outlives its call, with the output that no report has returned yet. */
import type { Readable, Writable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { PawlError } from '../../shared/errors/failure.ts';
import type { TerminalReport, TerminalRequest } from '../../shared/tools/capabilities.ts';
import { endOf, startOf } from '../../shared/util/text/text-cut.ts';
import { unlessAborted, withinMs } from '../../shared/util/wait.ts';
import { type ProgramExit, startTree, type TreeExit } from '../sandbox/process-tree.ts';
import { openPseudoTerminal } from '../sandbox/pseudo-terminal.ts';
import { type ProcessesOptions, prepareProgram } from './processes.ts';

/** Between two reports, this many characters of the output's beginning and as many of its end are kept. */
const MAX_CHARACTERS = 32 * 1024;

const OUTPUT_GRACE_MS = 500;

/** A terminal turns Ctrl-C into a signal and Ctrl-D into the end of input. On pipes this class does both. */
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';
const KILLED: TreeExit = { exitCode: null, signal: 'SIGKILL', timedOut: false, note: '' };

/** Programs at a terminal page, colour and redraw for people; a model reads lines. */
const PLAIN_OUTPUT_ENV = { TERM: 'dumb', NO_COLOR: '1', PAGER: 'cat', GIT_PAGER: 'cat' };

interface TerminalIdentity {
  readonly id: string;
  readonly sessionKey: string;
  readonly cmd: string;
  readonly tty: boolean;
}

export class Terminal {
  readonly id: string;
  readonly sessionKey: string;
  readonly cmd: string;
  /** Settles when the whole process tree has ended. */
  readonly ended: Promise<void>;
  readonly #input: Writable;
  readonly #tty: boolean;
  #isInterrupted = false;
  readonly #output = new Output();
  readonly #killer = new AbortController();
  readonly #armed: Promise<void>;
  #exit: ProgramExit | undefined;
  #failure: unknown;

  /** Throws what `Processes.run` throws, and `CONFIGURATION` where this worker has no terminals. */
  static async start(
    id: string,
    sessionKey: string,
    options: Omit<ProcessesOptions, 'signal'>,
    request: TerminalRequest,
  ): Promise<Terminal> {
    const tty = request.tty ?? true;
    const env = { ...(tty ? PLAIN_OUTPUT_ENV : {}), ...request.env };
    const { sandbox, launch, environment } = await prepareProgram(options, { ...request, env });
    const begin = (signal: AbortSignal) => {
      const common = { environment, name: request.argv[0], timeoutMs: request.timeoutMs, signal };
      if (!tty) {
        const streams = { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' } as const;
        const tree = startTree(sandbox, { ...common, launch, streams });
        const outputs = [tree.stdout, tree.stderr] as readonly Readable[];
        return { input: tree.stdin as Writable, outputs, exit: tree.ended, armed: tree.armed };
      }
      const { input, output, programEnd, releaseProgramEnd } = openPseudoTerminal();
      try {
        const streams = { stdin: programEnd, stdout: programEnd, stderr: programEnd };
        const tree = startTree(sandbox, { ...common, launch: { ...launch, terminal: true }, streams });
        return { input, outputs: [output], exit: tree.ended, armed: tree.armed };
      } catch (error) {
        input.destroy();
        throw error;
      } finally {
        releaseProgramEnd();
      }
    };
    let terminal: Terminal;
    try {
      terminal = new Terminal({ id, sessionKey, cmd: request.argv.join(' '), tty }, begin);
    } catch (error) {
      // Without a tree nothing else takes away what the sandbox put into the workspace.
      await launch.release?.();
      throw error;
    }
    await terminal.#armed;
    return terminal;
  }

  private constructor(
    { id, sessionKey, cmd, tty }: TerminalIdentity,
    start: (signal: AbortSignal) => {
      readonly input: Writable;
      readonly outputs: readonly Readable[];
      readonly exit: Promise<TreeExit>;
      readonly armed: Promise<void>;
    },
  ) {
    this.id = id;
    this.sessionKey = sessionKey;
    this.cmd = cmd;
    this.#tty = tty;
    const { input, outputs, exit: treeExit, armed } = start(this.#killer.signal);
    this.#armed = armed;
    const exit = treeExit.catch((error: unknown) => {
      if (this.#isInterrupted) return KILLED;
      throw error;
    });
    this.#input = input;
    // Reading or writing a terminal fails once its program has ended. The exit code reports that.
    input.on('error', () => undefined);
    const read = outputs.map((output) => this.#collect(output));
    // A process that escaped the tree may keep the other end open.
    const closeTimer = exit.then(() => setTimeout(() => outputs.map((output) => output.destroy()), OUTPUT_GRACE_MS));
    this.ended = Promise.all([exit, ...read])
      .then(
        ([{ note, ...end }]) => {
          this.#output.add(note);
          this.#exit = end;
        },
        (error: unknown) => {
          this.#failure = error;
        },
      )
      .finally(() => {
        input.destroy();
        closeTimer.then(clearTimeout, () => undefined);
      });
  }

  /** Resolves when the output is complete. */
  #collect(output: Readable): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const decoder = new StringDecoder('utf8');
    output.on('data', (chunk: Buffer) => this.#output.add(decoder.write(chunk)));
    output.on('error', () => resolve());
    output.on('close', () => resolve());
    return promise;
  }

  get running(): boolean {
    return this.#exit === undefined && this.#failure === undefined;
  }

  /** Throws `PRECONDITION_FAILED` when the input has ended. */
  write(chars: string): void {
    if (!this.#tty && chars === CTRL_C) {
      this.#isInterrupted = true;
      this.kill();
      return;
    }
    if (chars !== '' && this.#input.writableEnded)
      throw new PawlError(
        'PRECONDITION_FAILED',
        'The input of this command was ended with Ctrl-D; nothing was typed. Only Ctrl-C ("\\u0003") can be typed now.',
      );
    const endsInput = !this.#tty && chars.endsWith(CTRL_D);
    const text = endsInput ? chars.slice(0, -CTRL_D.length) : chars;
    if (text !== '') this.#input.write(text);
    if (endsInput) this.#input.end();
  }

  /**
   * Returns the output since the last report, when the program ends or after `waitMs`. Throws the reason when the
   * program was not started.
   */
  async report(waitMs: number, signal?: AbortSignal): Promise<TerminalReport> {
    await unlessAborted(withinMs(this.ended, waitMs), signal);
    if (this.#failure !== undefined) throw this.#failure;
    const { output, droppedBytes } = this.#output.take();
    const exit = this.#exit;
    const state: TerminalReport['state'] =
      exit === undefined ? { kind: 'running', terminalId: this.id } : { kind: 'ended', ...exit };
    return { output, droppedBytes, state };
  }

  /** Kills the process tree; `ended` settles when it is gone. */
  kill(): void {
    this.#killer.abort(new Error('The terminal was closed.'));
  }
}

/** Keeps the beginning and the end of a text of any length. */
class Output {
  #beginning = '';
  #end = '';
  #droppedBytes = 0;

  add(text: string): void {
    const beginning = this.#end === '' ? startOf(text, MAX_CHARACTERS - this.#beginning.length) : '';
    this.#beginning += beginning;
    this.#end += text.slice(beginning.length);
    // Truncating at twice the limit avoids doing so at every character.
    if (this.#end.length > 2 * MAX_CHARACTERS) this.#truncate();
  }

  #truncate(): void {
    const end = endOf(this.#end, MAX_CHARACTERS);
    this.#droppedBytes += Buffer.byteLength(this.#end.slice(0, this.#end.length - end.length));
    this.#end = end;
  }

  take(): { readonly output: string; readonly droppedBytes: number } {
    if (this.#end.length > MAX_CHARACTERS) this.#truncate();
    const droppedBytes = this.#droppedBytes;
    const mark = droppedBytes === 0 ? '' : `\n[truncated: ${droppedBytes} bytes are missing here]\n`;
    const output = `${this.#beginning}${mark}${this.#end}`.toWellFormed();
    this.#beginning = '';
    this.#end = '';
    this.#droppedBytes = 0;
    return { output, droppedBytes };
  }
}

export function unknownTerminal(terminalId: string): PawlError {
  return new PawlError(
    'NOT_FOUND',
    `This session has no terminal ${JSON.stringify(terminalId)}: it has ended, was idle for too long, or its worker has stopped. Start the command again.`,
  );
}
