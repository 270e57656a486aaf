/** Where some things stand among others, in linear time: the engine's own search takes the product of both lengths for some texts. */

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

function linearSearch(text: string, wanted: string): (from: number) => number {
  const codes = Uint16Array.from({ length: wanted.length }, (_, at) => wanted.charCodeAt(at));
  return (from) => {
    const ends = matcher(codes);
    for (let at = from; at < text.length; at += 1) if (ends(text.charCodeAt(at))) return at + 1 - wanted.length;
    return -1;
  };
}

/** Knuth, Morris and Pratt: what is given one item after the other, and answers whether the wanted ones end with it. They may overlap. */
export function matcher<Item>(wanted: ArrayLike<Item>): (item: Item | undefined) => boolean {
  /** How many of the wanted are still matched where the next one differs. */
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
