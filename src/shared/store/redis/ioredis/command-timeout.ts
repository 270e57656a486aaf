/**
 * The time limits of a connection. A command that waits for too long fails. A connection that receives no data while an answer is due is
 * destroyed, so that the client reconnects. One timer replaces the two that ioredis starts for every command.
 */
import type { Duplex } from 'node:stream';
import type { Command } from 'ioredis';

/** The precision of the limits. */
const CHECK_MS = 250;

const SENT = Symbol('sent');
type TimedCommand = Command & { [SENT]?: number };

/** ioredis' own queues, the oldest command first. */
export interface CommandQueues {
  /** Sent, and without an answer. */
  readonly commandQueue: Queue;
  /** Sent on the connection before, to be sent again. */
  readonly prevCommandQueue?: Queue | null;
  /** Not sent yet. */
  readonly offlineQueue: Queue;
}

interface Queue {
  readonly length: number;
  peekAt(index: number): { readonly command: Command } | undefined;
}

export interface CommandLimits {
  /** From sending a command to its answer, reconnects included. */
  readonly commandMs?: number | undefined;
  /** Without data from the server while an answer is due. */
  readonly silenceMs?: number | undefined;
}

export class CommandTimeouts {
  readonly #queues: CommandQueues;
  readonly #limits: CommandLimits;
  #stream: Duplex | undefined;
  #lastDataMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(queues: CommandQueues, limits: CommandLimits) {
    this.#queues = queues;
    this.#limits = limits;
  }

  /** Listens to a new connection. */
  attach(stream: Duplex): void {
    this.#stream = stream;
    this.#lastDataMs = performance.now();
    stream.on('data', () => {
      this.#lastDataMs = performance.now();
    });
  }

  start(command: TimedCommand): void {
    command[SENT] = performance.now();
    this.#timer ??= this.#schedule();
  }

  /** Checks after pending data is read: in a process that was busy, timers run before the answers that have already arrived. */
  #schedule(): NodeJS.Timeout {
    return setTimeout(() => setImmediate(() => this.#check()), CHECK_MS).unref();
  }

  #check(): void {
    this.#timer = undefined;
    const { commandQueue, prevCommandQueue, offlineQueue } = this.#queues;
    const now = performance.now();
    let waiting = 0;
    for (const queue of [commandQueue, prevCommandQueue, offlineQueue]) {
      if (queue === null || queue === undefined) continue;
      this.#failOld(queue, now);
      waiting += queue.length;
    }
    this.#destroySilent(now);
    if (waiting > 0) this.#timer = this.#schedule();
  }

  #failOld(queue: Queue, now: number): void {
    const { commandMs = Number.POSITIVE_INFINITY } = this.#limits;
    for (let index = 0; index < queue.length; index += 1) {
      const command = queue.peekAt(index)?.command;
      if (command === undefined || now - sentAt(command) < commandMs) return;
      command.reject(new Error('Command timed out'));
    }
  }

  #destroySilent(now: number): void {
    const { silenceMs = Number.POSITIVE_INFINITY } = this.#limits;
    const oldest = this.#queues.commandQueue.peekAt(0)?.command;
    // For a command that was sent again, only the silence of the new connection counts.
    if (oldest === undefined || now - Math.max(this.#lastDataMs, sentAt(oldest)) < silenceMs) return;
    this.#stream?.destroy(new Error(`Socket timeout: no data came for ${silenceMs} ms.`));
  }
}

function sentAt(command: TimedCommand): number {
  return command[SENT] ?? Number.POSITIVE_INFINITY;
}
