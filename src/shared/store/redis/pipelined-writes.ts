/**
 * Commands that go to Redis together. A write costs this process, and its reading the server, as much as the command itself.
 *
 * What is written in one turn of the event loop goes in one write, and waits while more than that is still unanswered: a single
 * command goes at once, and of many calls one half gathers while the other half is with the server. Nothing is lost by waiting
 * there: the server answers in order.
 */
import type { Duplex } from 'node:stream';

/** Text of this length goes without waiting: the server reads no more at a time, and can begin. */
const LONG_TEXT = 16 * 1_024;

export class GatheredWrites {
  readonly #unanswered: () => number;
  #write: (text: string) => unknown = () => {};
  #text = '';
  #commands = 0;
  #looking = false;

  /** `unanswered` says how many commands have no answer yet, those that gather here included. */
  constructor(unanswered: () => number) {
    this.#unanswered = unanswered;
  }

  /** Takes over what is written to a new connection. */
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
      this.#lookAfterTurn();
      return true;
    };
    // Behind all that the answers set off.
    stream.on('data', () => {
      if (this.#text !== '') queueMicrotask(() => this.#lookAfterTurn());
    });
  }

  /** So many commands were written, or are about to be in this turn. */
  count(commands: number): void {
    this.#commands += commands;
  }

  #lookAfterTurn(): void {
    if (this.#looking) return;
    this.#looking = true;
    process.nextTick(() => this.#flushIfDue());
  }

  #flushIfDue(): void {
    this.#looking = false;
    const underWay = this.#unanswered() - this.#commands;
    if (this.#commands >= underWay || this.#text.length >= LONG_TEXT) this.#flush();
  }

  #flush(): void {
    const text = this.#text;
    this.#text = '';
    this.#commands = 0;
    if (text !== '') this.#write(text);
  }
}
