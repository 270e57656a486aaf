/**
 * The terminals of one worker, and access to those of others. A terminal lives in the worker that ran `exec_command`;
 * a later call may run on any worker. That worker finds the owner in Redis and sends it the input; the answer is the
 * report.
 *
 * All terminals end with their worker. The owner's record in Redis expires.
 */
import { randomBytes } from 'node:crypto';
import { PawlError, ToolError } from '../../shared/errors/failure.ts';
import type { SandboxPolicy } from '../../shared/policy/sandbox-policy.ts';
import type { TerminalReport, TerminalRequest, Terminals } from '../../shared/tools/capabilities.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { Isolation } from '../sandbox/isolation.ts';
import type { TerminalLink, WriteRequest } from './remote-terminal.ts';
import { Terminal, unknownTerminal } from './terminal.ts';

interface TerminalLimits {
  /** The limit of one worker. */
  readonly maxTerminals: number;
  /** The limit of one session on one worker. */
  readonly maxPerSession: number;
  /** A terminal that no call has used for this long is ended. */
  readonly idleMs: number;
}

const TERMINAL_LIMITS: TerminalLimits = { maxTerminals: 64, maxPerSession: 8, idleMs: 15 * 60_000 };

export interface TerminalHostOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly sandbox?: SandboxPolicy | Isolation;
  readonly network?: boolean;
  /** Without a link, only terminals of this process are found. */
  readonly link?: TerminalLink;
  readonly limits?: Partial<TerminalLimits>;
}

interface TerminalCaller {
  readonly callId: string;
  readonly sessionKey: string;
  readonly root: string;
  readonly signal: AbortSignal;
  /** A person approved that the call's programs run outside of the sandbox. */
  readonly escalated?: boolean;
}

/** The only input for a program outside of the sandbox: the characters that end it. A shell there would take any command. */
const CONTROL = /^[\u0003\u0004]*$/;

interface OpenTerminal {
  readonly terminal: Terminal;
  readonly escalated: boolean;
  idle: NodeJS.Timeout | undefined;
}

export class TerminalHost {
  readonly #options: TerminalHostOptions;
  readonly #limits: TerminalLimits;
  readonly #terminals = new Map<string, OpenTerminal>();
  /** Terminals that are being started. They count towards the limits already. */
  readonly #starting = new Map<string, string>();
  #closed = false;

  constructor(options: TerminalHostOptions) {
    this.#options = options;
    this.#limits = { ...TERMINAL_LIMITS, ...options.limits };
    options.link?.onWrite((request) => this.#write(request));
  }

  open(caller: TerminalCaller): Terminals {
    return {
      start: (request) => this.#start(caller, request),
      write: (terminalId, chars, waitMs) => {
        const { link } = this.#options;
        const { sessionKey, signal } = caller;
        const input = { sessionKey, terminalId, chars, waitMs };
        if (this.#terminals.has(terminalId) || link === undefined) return this.#write(input, signal);
        return link.write({ ...input, signal });
      },
    };
  }

  async #start(caller: TerminalCaller, request: TerminalRequest): Promise<TerminalReport> {
    const { callId, sessionKey, root, signal, escalated = false } = caller;
    const { env, network = false, link } = this.#options;
    const sandbox = escalated ? 'off' : (this.#options.sandbox ?? 'preferred');
    signal.throwIfAborted();
    if (this.#closed) throw new PawlError('DRAINED');
    this.#checkLimits(sessionKey);
    const id = randomBytes(8).toString('hex');
    this.#starting.set(id, sessionKey);
    let terminal: Terminal;
    try {
      // The record comes before the program starts. If Redis fails here, nothing has happened and the call may be
      // retried.
      await link?.register(id, sessionKey);
      signal.throwIfAborted();
      terminal = await Terminal.start(id, sessionKey, { root, callId, env, sandbox, network }, request);
      this.#terminals.set(id, { terminal, escalated, idle: undefined });
    } catch (error) {
      link?.unregister(id);
      throw error;
    } finally {
      this.#starting.delete(id);
    }
    try {
      if (this.#closed) throw new PawlError('DRAINED');
      const report = await terminal.report(request.waitMs, signal);
      if (report.state.kind === 'ended') this.#remove(id);
      else this.#startIdleTimer(id);
      return report;
    } catch (error) {
      await this.#end(id);
      throw error;
    }
  }

  #checkLimits(sessionKey: string): void {
    const { maxTerminals, maxPerSession } = this.#limits;
    const ofSession = [...this.#terminals.values()].filter(({ terminal }) => terminal.sessionKey === sessionKey);
    const starting = [...this.#starting.values()].filter((key) => key === sessionKey).length;
    const isFull = this.#terminals.size + this.#starting.size >= maxTerminals;
    if (!isFull && ofSession.length + starting < maxPerSession) return;
    const open = ofSession.map(({ terminal }) => `${terminal.id} (${startOf(terminal.cmd, 60)})`).join(', ');
    throw new ToolError(
      isFull
        ? `This worker already has ${maxTerminals} programs in terminals, the maximum.`
        : `This session already has ${maxPerSession} programs in terminals, the maximum: ${open}. End one of them first.`,
      { code: 'TOO_MANY_TERMINALS', nothingHappened: true },
    );
  }

  async #write({ sessionKey, terminalId, chars, waitMs }: WriteRequest, signal?: AbortSignal): Promise<TerminalReport> {
    const openTerminal = this.#terminals.get(terminalId);
    if (openTerminal === undefined || openTerminal.terminal.sessionKey !== sessionKey)
      throw unknownTerminal(terminalId);
    if (openTerminal.escalated && !CONTROL.test(chars))
      throw new PawlError(
        'PERMISSION_DENIED',
        'A person approved this command to run outside of the sandbox, and no further input: only Ctrl-C and Ctrl-D ("\\u0003", "\\u0004") can be typed. Ask for another command with exec_command.',
      );
    clearTimeout(openTerminal.idle);
    try {
      // An ended program takes no input, but its last output can still be read.
      if (openTerminal.terminal.running) openTerminal.terminal.write(chars);
      const report = await openTerminal.terminal.report(waitMs, signal);
      if (report.state.kind === 'ended') this.#remove(terminalId);
      return report;
    } finally {
      this.#startIdleTimer(terminalId);
    }
  }

  /** Starts the idle timer. When it fires, a running terminal is ended and an ended one is forgotten. */
  #startIdleTimer(terminalId: string): void {
    const openTerminal = this.#terminals.get(terminalId);
    if (openTerminal === undefined) return;
    clearTimeout(openTerminal.idle);
    openTerminal.idle = setTimeout(() => void this.#end(terminalId), this.#limits.idleMs).unref();
  }

  #remove(terminalId: string): void {
    clearTimeout(this.#terminals.get(terminalId)?.idle);
    this.#terminals.delete(terminalId);
    this.#options.link?.unregister(terminalId);
  }

  async #end(terminalId: string): Promise<void> {
    const terminal = this.#terminals.get(terminalId)?.terminal;
    this.#remove(terminalId);
    terminal?.kill();
    await terminal?.ended;
  }

  endSession(sessionKey: string): void {
    for (const { terminal } of this.#terminals.values())
      if (terminal.sessionKey === sessionKey) void this.#end(terminal.id);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#terminals.keys()].map((id) => this.#end(id)));
    await this.#options.link?.close();
  }
}
