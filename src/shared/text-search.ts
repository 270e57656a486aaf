/** Where a text stands in another one, in linear time: the engine's own search takes the product of both lengths for some texts. */

/** Of both lengths: what its search does at once, whatever the texts are. */
const MAX_PRODUCT = 2 ** 30;

/** The first places, at most `limit` of them; none overlaps the one before. */
export function placesOf(text: string, wanted: string, limit = Number.POSITIVE_INFINITY): number[] {
  const find =
    text.length * wanted.length <= MAX_PRODUCT
      ? (from: number) => text.indexOf(wanted, from)
      : linearSearch(text, wanted);
  const places: number[] = [];
  for (let at = find(0); at !== -1 && places.length < limit; at = find(at + wanted.length)) places.push(at);
  return places;
}

/** Knuth, Morris and Pratt. */
function linearSearch(text: string, wanted: string): (from: number) => number {
  /** How many characters of the wanted are still matched where the next one differs. */
  const back = new Int32Array(wanted.length);
  const follow = (matched: number, code: number) => {
    let length = matched;
    while (length > 0 && wanted.charCodeAt(length) !== code) length = back[length - 1] ?? 0;
    return wanted.charCodeAt(length) === code ? length + 1 : length;
  };
  for (let at = 1, length = 0; at < wanted.length; at += 1) {
    length = follow(length, wanted.charCodeAt(at));
    back[at] = length;
  }
  return (from) => {
    for (let at = from, length = 0; at < text.length; at += 1) {
      length = follow(length, text.charCodeAt(at));
      if (length === wanted.length) return at + 1 - length;
    }
    return -1;
  };
}
