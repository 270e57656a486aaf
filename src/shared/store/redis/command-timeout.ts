/**
 * The patience of a connection: a command that has waited for too long fails, and a wire on which an answer is due and nothing comes
 * is cut, so that the client connects anew. One timer does what ioredis needs two of for every command.
 */
import type { Duplex } from 'node:stream';
import type { Command } from 'ioredis';

/** How exactly the limits are kept. */
const LOOK_MS = 250;

const SENT = Symbol('sent');
type Sent = Command & { [SENT]?: number };

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

export interface PatienceLimits {
  /** Whatever the connection does. */
  readonly commandMs?: number | undefined;
  /** Without a word from the server, while it owes one. */
  readonly silenceMs?: number | undefined;
}

export class CommandWatch {
  readonly #queues: CommandQueues;
  readonly #limits: PatienceLimits;
  #stream: Duplex | undefined;
  #heardMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(queues: CommandQueues, limits: PatienceLimits) {
    this.#queues = queues;
    this.#limits = limits;
  }

  /** Listens to a new connection. */
  attach(stream: Duplex): void {
    this.#stream = stream;
    this.#heardMs = performance.now();
    stream.on('data', () => {
      this.#heardMs = performance.now();
    });
  }

  /** From now on the command is waited for. */
  sent(command: Sent): void {
    command[SENT] = performance.now();
    this.#timer ??= this.#later();
  }

  /** After what has come is read: a process that was busy for long finds answers waiting, and timers come before them. */
  #later(): NodeJS.Timeout {
    return setTimeout(() => setImmediate(() => this.#look()), LOOK_MS).unref();
  }

  #look(): void {
    this.#timer = undefined;
    const { commandQueue, prevCommandQueue, offlineQueue } = this.#queues;
    const now = performance.now();
    let waiting = 0;
    for (const queue of [commandQueue, prevCommandQueue, offlineQueue]) {
      if (queue === null || queue === undefined) continue;
      this.#endOld(queue, now);
      waiting += queue.length;
    }
    this.#cutSilent(now);
    if (waiting > 0) this.#timer = this.#later();
  }

  #endOld(queue: Queue, now: number): void {
    const { commandMs = Number.POSITIVE_INFINITY } = this.#limits;
    for (let index = 0; index < queue.length; index += 1) {
      const command = queue.peekAt(index)?.command;
      if (command === undefined || now - sentAt(command) < commandMs) return;
      command.reject(new Error('Command timed out'));
    }
  }

  #cutSilent(now: number): void {
    const { silenceMs = Number.POSITIVE_INFINITY } = this.#limits;
    const oldest = this.#queues.commandQueue.peekAt(0)?.command;
    // Of one that was sent again, the new connection counts.
    if (oldest === undefined || now - Math.max(this.#heardMs, sentAt(oldest)) < silenceMs) return;
    this.#stream?.destroy(new Error(`Socket timeout: no data came for ${silenceMs} ms.`));
  }
}

function sentAt(command: Sent): number {
  return command[SENT] ?? Number.POSITIVE_INFINITY;
}
