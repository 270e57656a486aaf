/** Bits of a character that a table distinguishes: all of ASCII, but not the two cases of a letter. */
const BITS = 6;
const FIRST_LETTERS = 3;
const ALL_BITS = 2 ** (BITS * FIRST_LETTERS) - 1;

/**
 * A search for any of many words. A table tells for each three characters whether a word can begin with them, so that the expression
 * runs at few places of a text. With a hundred words, the search takes half the time that the expression takes by itself.
 *
 * @example new WordSearch(/(?:curl|wget)(?!\w)/, ['curl', 'wget']).find('a wget here', 0)?.index // 2
 */
export class WordSearch {
  readonly #word: RegExp;
  /** One bit for each three characters: a larger table would not stay in the processor's cache. */
  readonly #canStart = new Uint32Array((ALL_BITS + 1) / 32);

  /** Each match of `word` must begin with one of the `starts`, none of which is empty. */
  constructor(word: RegExp, starts: readonly string[]) {
    this.#word = new RegExp(word.source, `${word.flags}y`);
    for (const start of starts) {
      this.#add(start.toLowerCase());
      this.#add(start.toUpperCase());
    }
  }

  /** Behind a shorter start, any character may follow. */
  #add(start: string): void {
    const length = Math.min(start.length, FIRST_LETTERS);
    const free = 2 ** (BITS * (FIRST_LETTERS - length));
    let bits = 0;
    for (let index = 0; index < length; index += 1) bits = (bits << BITS) | bitsOf(start.charCodeAt(index));
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
    let bits = 0;
    // Two steps go beyond the end, for words of one and two letters.
    for (let end = from + 1; end < length + FIRST_LETTERS; end += 1) {
      const code = end <= length ? text.charCodeAt(end - 1) : 0;
      bits = ((bits << BITS) | bitsOf(code)) & ALL_BITS;
      if ((this.#flags(bits) & (1 << (bits & 31))) === 0 || end < from + FIRST_LETTERS) continue;
      this.#word.lastIndex = end - FIRST_LETTERS;
      const match = this.#word.exec(text);
      if (match !== null) return match;
    }
    return undefined;
  }
}

function bitsOf(code: number): number {
  return (code & 31) | ((code & 64) >> 1);
}
