/**
 * Writes commands to Redis together: a write costs this process, and a read costs the server, as much as the command itself.
 *
 * The commands of one turn of the event loop share one write. They wait while more commands than these are unanswered. So a single command
 * is written at once, and under load one half of the commands gathers while the server works on the other half. The wait adds no latency,
 * because the server answers in order.
 */
import type { Duplex } from 'node:stream';

/** A text of this length does not wait: the server reads no more at a time. */
const LONG_TEXT = 16 * 1_024;

export class PipelinedWrites {
  readonly #unanswered: () => number;
  #write: (text: string) => unknown = () => {};
  #text = '';
  #commands = 0;
  #scheduled = false;

  /** `unanswered` counts the commands without an answer, including those that wait here. */
  constructor(unanswered: () => number) {
    this.#unanswered = unanswered;
  }

  /** Takes over the writes to a new connection. */
  attach(stream: Duplex): void {
    const write = stream.write.bind(stream) as (chunk: unknown) => boolean;
    this.#write = write;
    this.#text = '';
    this.#commands = 0;
    stream.write = (chunk: unknown) => {
      if (typeof chunk !== 'string') {
        this.#flush();
        return write(chunk);
      }
      if (this.#text.length >= LONG_TEXT) this.#flush();
      this.#text += chunk;
      this.#scheduleFlush();
      return true;
    };
    // Runs after the callbacks of the answers, which may send further commands.
    stream.on('data', () => {
      if (this.#text !== '') queueMicrotask(() => this.#scheduleFlush());
    });
  }

  /** Counts commands of this turn. */
  addCommands(commands: number): void {
    this.#commands += commands;
  }

  #scheduleFlush(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    process.nextTick(() => this.#flushIfDue());
  }

  #flushIfDue(): void {
    this.#scheduled = false;
    const inFlight = this.#unanswered() - this.#commands;
    if (this.#commands >= inFlight || this.#text.length >= LONG_TEXT) this.#flush();
  }

  #flush(): void {
    const text = this.#text;
    this.#text = '';
    this.#commands = 0;
    if (text !== '') this.#write(text);
  }
}
