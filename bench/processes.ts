/** The outside of the benchmark's processes: starts them, asks them, ends them. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Side } from './fleet.ts';
import type { Message, ProcessOptions, Question, Questions, Topic } from './protocol.ts';
import { bunOf } from './stores/bunqueue.ts';
import type { Peer } from './workloads.ts';

export type Role = 'worker' | 'producer';

const STOP_TIMEOUT_MS = 10_000;

interface Asker {
  readonly resolve: (answered: Questions[Topic]['answered']) => void;
  readonly reject: (error: Error) => void;
}

export class BenchProcess {
  readonly #child: ChildProcess;
  readonly #askers = new Map<number, Asker>();
  readonly #exited: Promise<void>;
  #lastId = 0;

  private constructor(child: ChildProcess, name: string) {
    this.#child = child;
    this.#exited = new Promise((resolve) => child.once('exit', () => resolve()));
    child.on('message', (message: Message) => this.#hear(message));
    child.once('exit', (code, signal) => {
      const error = new Error(`${name} ended with ${signal ?? `code ${code}`}`);
      for (const asker of this.#askers.values()) asker.reject(error);
      this.#askers.clear();
    });
  }

  /** Starts a side's program; resolves when it is connected. */
  static async start(
    side: Side,
    role: Role,
    options: ProcessOptions,
    nodeOptions: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
  ): Promise<BenchProcess> {
    const child = fork(programOf(side, role), [JSON.stringify(options)], {
      ...(side === 'bunqueue' ? { execPath: bunOf(folderOf(side)) } : {}),
      execArgv: [...nodeOptions],
      // Warnings that are the same in each of many processes would hide what is measured.
      env: { LOG_LEVEL: 'error', ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      // Redis and workers have scheduling groups of their own, as in containers; the callers share one.
      detached: role === 'worker',
    });
    const started = new BenchProcess(child, `the ${role} of ${side}`);
    // Being ready is the answer to a question that nobody has to ask.
    await new Promise<unknown>((resolve, reject) => started.#askers.set(0, { resolve, reject }));
    return started;
  }

  ask<T extends Topic>(topic: T, asked: Questions[T]['asked']): Promise<Questions[T]['answered']> {
    this.#lastId += 1;
    const question: Question = { id: this.#lastId, topic, asked };
    return new Promise((resolve, reject) => {
      this.#askers.set(question.id, { resolve: resolve as Asker['resolve'], reject });
      this.#child.send(question);
    });
  }

  #hear(message: Message): void {
    const id = message.type === 'ready' ? 0 : message.id;
    const asker = this.#askers.get(id);
    this.#askers.delete(id);
    if (message.type === 'error') asker?.reject(new Error(message.message));
    else asker?.resolve(message.type === 'ready' ? null : message.answered);
  }

  /** Lets the process close its connections and end; one that does not is killed. */
  async stop(): Promise<void> {
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await this.ask('stop', {}).catch(() => {});
    await this.#exited;
    clearTimeout(timer);
  }
}

function programOf(side: Side, role: Role): string {
  return side === 'pawl' || side === 'bullmq' || side === 'list'
    ? fileURLToPath(new URL(`${role}-${side}.ts`, import.meta.url))
    : `${folderOf(side)}${role}.ts`;
}

/** Where a system's programs, its manifest and its packages are. */
export function folderOf(peer: Peer): string {
  return fileURLToPath(new URL(`peers/${peer === 'restate-tuned' ? 'restate' : peer}/`, import.meta.url));
}
