/** Searches in linear time. The engine's own search takes the product of both lengths for some texts. */

/** The greatest product of both lengths that the engine's search does at once, whatever the texts are. */
const MAX_PRODUCT = 2 ** 30;

/** The first places of a text in another, at most `limit`. `overlaps` says whether a place that begins within the previous counts. */
export function placesOf(
  text: string,
  wanted: string,
  limit = Number.POSITIVE_INFINITY,
  overlaps: 'count' | 'skip' = 'skip',
): number[] {
  const places: number[] = [];
  if (text.length * wanted.length <= MAX_PRODUCT) {
    const step = overlaps === 'count' ? 1 : wanted.length;
    for (let at = text.indexOf(wanted); at !== -1 && places.length < limit; at = text.indexOf(wanted, at + step))
      places.push(at);
    return places;
  }
  const codes = Uint16Array.from({ length: wanted.length }, (_, at) => wanted.charCodeAt(at));
  let ends = matcher(codes);
  for (let at = 0; at < text.length && places.length < limit; at += 1) {
    if (!ends(text.charCodeAt(at))) continue;
    places.push(at + 1 - wanted.length);
    if (overlaps === 'skip') ends = matcher(codes);
  }
  return places;
}

/** The search of Knuth, Morris and Pratt. It takes one item after the other and answers whether a match ends there; matches may overlap. */
export function matcher<Item>(wanted: ArrayLike<Item>): (item: Item | undefined) => boolean {
  /** The number of wanted items that are still matched where the next one differs. */
  const back = new Int32Array(wanted.length);
  const follow = (matched: number, item: Item | undefined) => {
    let length = matched;
    while (length > 0 && (length === wanted.length || wanted[length] !== item)) length = back[length - 1] ?? 0;
    return wanted[length] === item ? length + 1 : length;
  };
  for (let at = 1, length = 0; at < wanted.length; at += 1) {
    length = follow(length, wanted[at]);
    back[at] = length;
  }
  let matched = 0;
  return (item) => {
    matched = follow(matched, item);
    return matched === wanted.length;
  };
}
