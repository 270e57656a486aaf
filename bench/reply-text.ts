/**
 * Texts of a given length, made once, so that no side pays for making them. They are words in a random order, and get two to three
 * times smaller when compressed, as logs and listings do: a text of one letter would flatter whoever compresses.
 */
const texts = new Map<number, string>();

const WORDS = 4_096;
const LETTERS = 'etaoinshrdlucmfw';

export function replyText(bytes: number): string {
  let text = texts.get(bytes);
  if (text === undefined) {
    text = makeText(bytes);
    texts.set(bytes, text);
  }
  return text;
}

function makeText(bytes: number): string {
  const below = seededRandom(1);
  const word = () => Array.from({ length: 2 + below(9) }, () => LETTERS[below(LETTERS.length)]).join('');
  const words = Array.from({ length: WORDS }, word);
  const parts: string[] = [];
  for (let length = 0; length < bytes; length += (parts.at(-1)?.length ?? 0) + 1) parts.push(words[below(WORDS)] ?? '');
  return parts.join(' ').slice(0, bytes).padEnd(bytes);
}

/** Whole numbers below a limit, the same ones in every process (xorshift32). */
function seededRandom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % limit;
  };
}
