/** Searches in linear time. The engine's own search takes quadratic time for some texts. */

/** Up to this product of both lengths, the engine's own search is fast enough for any text. */
const MAX_PRODUCT = 2 ** 30;

/** The first places of a text in another, at most `limit`. `overlaps` says whether a place that begins within the previous counts. */
export function findAll(
  text: string,
  pattern: string,
  limit = Number.POSITIVE_INFINITY,
  overlaps: 'count' | 'skip' = 'skip',
): number[] {
  const indexes: number[] = [];
  if (text.length * pattern.length <= MAX_PRODUCT) {
    const step = overlaps === 'count' ? 1 : pattern.length;
    for (
      let index = text.indexOf(pattern);
      index !== -1 && indexes.length < limit;
      index = text.indexOf(pattern, index + step)
    )
      indexes.push(index);
    return indexes;
  }
  const codes = Uint16Array.from({ length: pattern.length }, (_, index) => pattern.charCodeAt(index));
  let isMatchEnd = matcher(codes);
  for (let index = 0; index < text.length && indexes.length < limit; index += 1) {
    if (!isMatchEnd(text.charCodeAt(index))) continue;
    indexes.push(index + 1 - pattern.length);
    if (overlaps === 'skip') isMatchEnd = matcher(codes);
  }
  return indexes;
}

/** The search of Knuth, Morris and Pratt. It takes items one by one, and returns whether a match ends there; matches may overlap. */
export function matcher<Item>(pattern: ArrayLike<Item>): (item: Item | undefined) => boolean {
  /** The number of wanted items that are still matched where the next one differs. */
  const fallbacks = new Int32Array(pattern.length);
  const advance = (matched: number, item: Item | undefined) => {
    let length = matched;
    while (length > 0 && (length === pattern.length || pattern[length] !== item)) length = fallbacks[length - 1] ?? 0;
    return pattern[length] === item ? length + 1 : length;
  };
  for (let index = 1, length = 0; index < pattern.length; index += 1) {
    length = advance(length, pattern[index]);
    fallbacks[index] = length;
  }
  let matched = 0;
  return (item) => {
    matched = advance(matched, item);
    return matched === pattern.length;
  };
}
