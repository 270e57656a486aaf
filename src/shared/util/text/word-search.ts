const FIRST_LETTERS = 3;
/**
 * The first letter counts with its bits in ASCII, but that of its case. The second and the third count with these many of their low bits:
 * digits and signs share those of letters.
 */
const BITS = 5;
const LOW_BITS = 2 ** BITS - 1;
const TABLE_BITS = FIRST_LETTERS * BITS + 1;

/**
 * A search for any of many words. A table tells for each three characters whether a word can begin with them, so that the expression
 * runs at few places of a text. With a hundred words, the search takes half the time that the expression takes by itself.
 *
 * @example new WordSearch(/(?:curl|wget)(?!\w)/, ['curl', 'wget']).find('a wget here', 0)?.index // 2
 */
export class WordSearch {
  readonly #word: RegExp;
  readonly #starts: readonly string[];
  /** A bit for each three characters, 8 KiB in all: a larger table would not stay in the processor's cache. */
  readonly #canStart = new Uint32Array(2 ** TABLE_BITS / 32);

  /** Each match of `word` must begin with one of the `starts`, none of which is empty. */
  constructor(word: RegExp, starts: readonly string[]) {
    this.#word = new RegExp(word.source, `${word.flags}y`);
    this.#starts = starts;
    for (const start of starts) {
      this.#add(start.toLowerCase());
      this.#add(start.toUpperCase());
    }
  }

  /** One search in place of two; of the words of both, in any case. */
  or(other: WordSearch): WordSearch {
    return new WordSearch(new RegExp(`${this.#word.source}|${other.#word.source}`, 'i'), [
      ...this.#starts,
      ...other.#starts,
    ]);
  }

  /** Behind a shorter start, any character may follow. */
  #add(start: string): void {
    const length = Math.min(start.length, FIRST_LETTERS);
    const free = 2 ** (BITS * (FIRST_LETTERS - length));
    let bits = firstBits(start.charCodeAt(0));
    for (let index = 1; index < length; index += 1) bits = (bits << BITS) | (start.charCodeAt(index) & LOW_BITS);
    for (let next = bits * free; next < (bits + 1) * free; next += 1)
      this.#canStart[next >> 5] = this.#flags(next) | (1 << (next & 31));
  }

  /** The 32 bits of the table among which is that of three characters. */
  #flags(bits: number): number {
    return this.#canStart[bits >> 5] ?? 0;
  }

  /** The first match at `from` or behind it. */
  find(text: string, from: number): RegExpExecArray | undefined {
    const length = text.length;
    let first = 0;
    let second = 0;
    let third = 0;
    // Two steps go beyond the end, for words of one and two letters.
    for (let end = from + 1; end < length + FIRST_LETTERS; end += 1) {
      first = second;
      second = third;
      third = end <= length ? text.charCodeAt(end - 1) : 0;
      const bits = (firstBits(first) << (2 * BITS)) | ((second & LOW_BITS) << BITS) | (third & LOW_BITS);
      if ((this.#flags(bits) & (1 << (bits & 31))) === 0 || end < from + FIRST_LETTERS) continue;
      this.#word.lastIndex = end - FIRST_LETTERS;
      const match = this.#word.exec(text);
      if (match !== null) return match;
    }
    return undefined;
  }
}

function firstBits(code: number): number {
  return (code & LOW_BITS) | ((code & 64) >> 1);
}
