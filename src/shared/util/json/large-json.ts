/**
 * JSON that is too large for one step. It is made, stored and read in parts of one size, and the event loop runs between them, so
 * that neither a process nor Redis handles all of it at once.
 */
import { uuidv7, yieldToEventLoop } from '../time.ts';
import { isLong, JsonReader, jsonPieces } from './json-stream.ts';

/** Bytes of every part but the last. A process takes about a millisecond for any step with one. */
export const PART_BYTES = 256 * 1_024;

/** A range of bytes, the end excluded. */
export type ByteRange = readonly [from: number, to: number];

export interface LargeText {
  /** The name of the text in its store. Writing it twice stores the same text. */
  readonly id: string;
  /** UTF-8 text. A part may end within a character. */
  readonly parts: readonly Buffer[];
  readonly bytes: number;
  /** The place of the output's content in an outcome. */
  readonly content?: ByteRange;
}

const encoder = new TextEncoder();

/** Collects text into parts. */
export class LargeTextWriter {
  readonly #maxBytes: number;
  readonly #parts: Buffer[] = [];
  #part = Buffer.allocUnsafe(PART_BYTES);
  #used = 0;

  /** The writer takes no more text once it holds more than `maxBytes`. */
  constructor(maxBytes = Number.POSITIVE_INFINITY) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#parts.length * PART_BYTES + this.#used;
  }

  get isFull(): boolean {
    return this.bytes > this.#maxBytes;
  }

  add(text: string): void {
    for (let from = 0; from < text.length && !this.isFull; ) {
      const { read, written } = encoder.encodeInto(
        from === 0 ? text : text.slice(from),
        this.#part.subarray(this.#used),
      );
      from += read;
      this.#used += written;
      // A character that does not fit goes into both parts.
      if (from < text.length) from += this.#split(text, from);
      if (this.#used === PART_BYTES) this.#next();
    }
  }

  /** Writes a character across two parts. Returns the number of its units. */
  #split(text: string, from: number): number {
    const character = String.fromCodePoint(text.codePointAt(from) as number);
    const bytes = Buffer.from(character);
    const first = bytes.copy(this.#part, this.#used);
    this.#next();
    this.#used = bytes.copy(this.#part, 0, first);
    return character.length;
  }

  #next(): void {
    this.#parts.push(this.#part);
    this.#part = Buffer.allocUnsafe(PART_BYTES);
    this.#used = 0;
  }

  /** Adds a value's JSON. Throws what `JSON.stringify` throws. */
  async addJson(value: unknown): Promise<void> {
    if (!isLong(value)) return this.add(JSON.stringify(value) ?? 'null');
    for (const piece of jsonPieces(value)) {
      if (this.isFull) return;
      this.add(piece);
      await yieldToEventLoop();
    }
  }

  end(content?: ByteRange): LargeText {
    const parts = this.#used === 0 ? this.#parts : [...this.#parts, this.#part.subarray(0, this.#used)];
    return { id: uuidv7(), parts, bytes: this.bytes, ...(content !== undefined && { content }) };
  }
}

/** An existing text, in parts. */
export function largeTextOf(text: string): LargeText {
  const writer = new LargeTextWriter();
  writer.add(text);
  return writer.end();
}

/** A value's JSON, in parts. Throws what `JSON.stringify` throws. */
export async function largeJson(value: unknown): Promise<LargeText> {
  const writer = new LargeTextWriter();
  await writer.addJson(value);
  return writer.end();
}

/** The value of a JSON text in parts. Throws a `SyntaxError` for text that is no JSON, and what the parts throw. */
export async function parseParts(parts: Iterable<Buffer> | AsyncIterable<Buffer>): Promise<unknown> {
  const decoder = new TextDecoder();
  let reader: JsonReader | undefined;
  let text = '';
  for await (const part of parts) {
    if (text !== '') {
      reader ??= new JsonReader();
      reader.push(text);
      await yieldToEventLoop();
    }
    text = decoder.decode(part, { stream: true });
  }
  // A single part is short enough for one step, which takes a third of the time.
  if (reader === undefined) return JSON.parse(text);
  reader.push(text);
  return reader.end();
}
