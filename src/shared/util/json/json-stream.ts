/**
 * JSON of values of any size, written and read piece by piece, so that the event loop can run in between: JSON of 16 MiB in one step
 * blocks it for 50 to 150 ms.
 *
 * The writer leaves short parts of a value, together with their neighbours, to `JSON.stringify`, and splits only parts that are longer
 * than a piece. The reader leaves all whole members of the innermost open container to `JSON.parse`; a container or text that is
 * longer than a piece is opened and filled as its text arrives.
 */

/** The approximate number of characters that are written, and left unread, at a time. */
const PIECE_LENGTH = 64 * 1_024;
/** The length from which a text is searched for characters to escape. */
const LONG_TEXT = 4 * 1_024;
const FEW_MEMBERS = 16;
const FEW_LEVELS = 4;
/** A value at a greater depth counts as short. `JSON.stringify` writes it in one step, and refuses what it cannot write. */
const MAX_DEPTH = 64;

/** The numbers of one block that are written at a time. */
const NUMBERS_PER_PIECE = 4_096;

/** The containers of a list that are measured. To measure all costs half as much as writing them, where the records are small. */
const SAMPLES = 16;

/** Whether the value's JSON is longer than a piece, by an estimate without writing it. */
export function isLong(value: unknown): boolean {
  return remainingAfter(value, PIECE_LENGTH, 0) < 0;
}

/** The approximate length that remains after a value; below 0 when the value does not fit, where the search stops. */
function remainingAfter(value: unknown, remaining: number, depth: number): number {
  if (typeof value === 'string') return remaining - value.length - 2;
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return remaining - 4;
  if (isNumericBlock(value)) return remaining - 2 * value.length;
  if (hasOwnJson(value)) return remaining - 4;
  let budget = remaining - 2;
  if (Array.isArray(value)) {
    const step = Math.ceil(value.length / SAMPLES);
    for (let index = 0; index < value.length && budget >= 0; index += 1) {
      const isContainer = typeof value[index] === 'object' && value[index] !== null;
      // The measured containers count for those that are left out.
      if (isContainer && index % step > 0) continue;
      const previous = budget;
      budget = remainingAfter(value[index], budget - 1, depth + 1);
      if (isContainer) budget -= (previous - budget) * (step - 1);
    }
    return budget;
  }
  for (const name in value) {
    budget = remainingAfter((value as Record<string, unknown>)[name], budget - name.length - 4, depth + 1);
    if (budget < 0) break;
  }
  return budget;
}

/**
 * Numbers in one block, such as the bytes of a `Buffer`. A list of all of them, or of their names, would take many times their own
 * memory; for some hundred megabytes that is more than a process has.
 */
function isNumericBlock(value: object): value is Uint8Array {
  if (!ArrayBuffer.isView(value) || value instanceof DataView) return false;
  const { toJSON } = value as { readonly toJSON?: unknown };
  return toJSON === undefined || toJSON === Buffer.prototype.toJSON;
}

/** Whether the value itself determines its JSON. */
function hasOwnJson(value: object): boolean {
  if (typeof (value as { readonly toJSON?: unknown }).toJSON === 'function') return true;
  return value instanceof String || value instanceof Number || value instanceof Boolean;
}

/**
 * The text that `JSON.stringify` makes of a long value (`isLong`), in pieces. Throws what `JSON.stringify` throws: for a BigInt, for a
 * value that holds itself.
 */
export function* jsonPieces(value: unknown): Generator<string, void, undefined> {
  let text = '';
  for (const piece of valuePieces(value, 0, PIECE_LENGTH)) {
    text += piece;
    if (text.length < PIECE_LENGTH) continue;
    yield text;
    text = '';
  }
  if (text !== '') yield text;
}

/** The text that `JSON.stringify` makes of a value, faster where a few long texts are most of it. Throws what `JSON.stringify` throws. */
export function jsonText(value: unknown): string {
  if (remainingAfter(value, LONG_TEXT, 0) >= 0 || !hasLongText(value, 0)) return JSON.stringify(value);
  let text = '';
  for (const piece of valuePieces(value, 0, LONG_TEXT)) text += piece;
  return text;
}

/** Looks at containers with few members only, at every level. */
function hasLongText(value: unknown, depth: number): boolean {
  if (typeof value === 'string') return value.length >= LONG_TEXT;
  if (typeof value !== 'object' || value === null || depth > FEW_LEVELS) return false;
  if (isNumericBlock(value) || hasOwnJson(value)) return false;
  const members = Object.values(value);
  return members.length <= FEW_MEMBERS && members.some((member) => hasLongText(member, depth + 1));
}

/** The JSON in pieces. Parts that are longer than `length` are split. */
function* valuePieces(value: unknown, depth: number, length: number): Generator<string, void, undefined> {
  if (typeof value === 'string') yield* stringPieces(value);
  else if (isNumericBlock(value as object)) yield* numberPieces(value as Uint8Array);
  else if (Array.isArray(value)) {
    let separator = '[';
    for (const { members, long } of groupBySize(value, (item) => item, depth, length)) {
      yield separator;
      if (long) yield* valuePieces(members[0], depth + 1, length);
      else yield JSON.stringify(members).slice(1, -1);
      separator = ',';
    }
    yield separator === '[' ? '[]' : ']';
  } else {
    let separator = '{';
    for (const { members, long } of groupBySize(
      Object.entries(value as object),
      ([, member]) => member,
      depth,
      length,
    )) {
      const text = long ? '' : JSON.stringify(Object.fromEntries(members)).slice(1, -1);
      // Members without JSON, such as functions, leave no text.
      if (!long && text === '') continue;
      yield separator;
      if (long) {
        const [name, member] = members[0] as [string, unknown];
        yield `${JSON.stringify(name)}:`;
        yield* valuePieces(member, depth + 1, length);
      } else yield text;
      separator = ',';
    }
    yield separator === '{' ? '{}' : '}';
  }
}

function* stringPieces(text: string): Generator<string, void, undefined> {
  yield '"';
  for (let from = 0; from < text.length; ) {
    const to = from + PIECE_LENGTH;
    // Half of a pair would be written as an escape.
    const isPair = to < text.length && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800;
    yield escaped(text.slice(from, isPair ? to + 1 : to));
    from = isPair ? to + 1 : to;
  }
  yield '"';
}

/** All characters that JSON escapes, except line ends. */
const ESCAPED = ['"', '\\', ...Array.from({ length: 32 }, (_none, code) => String.fromCharCode(code))].filter(
  (character) => character !== '\n',
);

/** The text between the quotes. Prose and base64 hardly need escapes, and the search for them takes a fifth of the time of writing. */
function escaped(text: string): string {
  const isPlain = text.length >= LONG_TEXT && !ESCAPED.some((character) => text.includes(character));
  return isPlain && text.isWellFormed() ? text.replaceAll('\n', '\\n') : JSON.stringify(text).slice(1, -1);
}

/** The text that stands between the quotes. Without escapes other than line ends, `JSON.parse` would copy all of it twice. */
function unescaped(json: string): string {
  for (let index = json.indexOf('\\'); index >= 0; index = json.indexOf('\\', index + 2))
    if (json[index + 1] !== 'n') return JSON.parse(`"${json}"`) as string;
  return json.replaceAll('\\n', '\n');
}

function* numberPieces(numbers: Uint8Array): Generator<string, void, undefined> {
  const isListed = 'toJSON' in numbers;
  yield isListed ? '{"type":"Buffer","data":[' : '{';
  for (let from = 0; from < numbers.length; from += NUMBERS_PER_PIECE) {
    const chunk = Array.from(numbers.subarray(from, from + NUMBERS_PER_PIECE), (number) => JSON.stringify(number));
    const members = isListed ? chunk : chunk.map((number, index) => `"${from + index}":${number}`);
    yield `${from === 0 ? '' : ','}${members.join(',')}`;
  }
  yield isListed ? ']}' : '}';
}

/** Groups neighbours that are short together; each long member is a group of its own. */
function* groupBySize<Member>(
  all: readonly Member[],
  getValue: (member: Member) => unknown,
  depth: number,
  length: number,
): Generator<{ readonly members: readonly Member[]; readonly long: boolean }, void, undefined> {
  let members: Member[] = [];
  let remaining = length;
  for (const member of all) {
    const budget = remainingAfter(getValue(member), remaining, depth + 1);
    if (budget >= 0) {
      members.push(member);
      remaining = budget;
      continue;
    }
    if (members.length > 0) yield { members, long: false };
    remaining = remainingAfter(getValue(member), length, depth + 1);
    members = remaining < 0 ? [] : [member];
    if (remaining >= 0) continue;
    yield { members: [member], long: true };
    remaining = length;
  }
  if (members.length > 0) yield { members, long: false };
}

type Container = unknown[] | Record<string, unknown>;
/** A container that has not ended yet, or the text of a member that has not. */
type OpenValue =
  | { readonly kind: 'container'; readonly value: Container }
  | { readonly kind: 'text'; value: string; readonly name: string };

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;

/** Reads JSON without white space between its tokens, as `JSON.stringify` writes it, from pieces of any length. */
export class JsonReader {
  /** The text that arrived and is not read yet. It is shorter than a piece, unless it is a name or a number. */
  #text = '';
  readonly #root: unknown[] = [];
  /** The open containers, the outermost first. The first one holds the whole value, and has no end of its own. */
  readonly #open: OpenValue[] = [{ kind: 'container', value: this.#root }];

  push(piece: string): void {
    this.#text += piece;
    while (this.#read());
  }

  /** The value, when all text has arrived. Throws a `SyntaxError` for text that is no JSON. */
  end(): unknown {
    if (this.#open.length > 1) throw new SyntaxError('The JSON ends before its value does.');
    if (this.#text !== '') this.#root.push(JSON.parse(this.#text));
    this.#text = '';
    if (this.#root.length !== 1) throw new SyntaxError(`The JSON holds ${this.#root.length} values in place of one.`);
    return this.#root[0];
  }

  /** Reads one step; false when more text must arrive first. */
  #read(): boolean {
    const open = this.#open.at(-1) as OpenValue;
    return open.kind === 'text' ? this.#readText(open) : this.#readMembers(open.value);
  }

  #readText(open: Extract<OpenValue, { kind: 'text' }>): boolean {
    const end = endOfString(this.#text, 0);
    const to = end < 0 ? endOfEscapes(this.#text) : end;
    open.value += unescaped(this.#text.slice(0, to));
    this.#text = this.#text.slice(end < 0 ? to : end + 1);
    if (end < 0) return false;
    this.#open.pop();
    add(this.#container(), open.name, open.value);
    return true;
  }

  #readMembers(container: Container): boolean {
    const from = this.#text.charCodeAt(0) === COMMA ? 1 : 0;
    const { comma, close } = findBoundary(this.#text, from);
    const to = close ?? comma;
    if (to !== undefined) {
      addAll(container, this.#text.slice(from, to));
      this.#text = this.#text.slice(to + 1);
      if (close !== undefined) {
        if (this.#open.length === 1) throw new SyntaxError('The JSON closes what it did not open.');
        this.#open.pop();
        return true;
      }
    } else this.#text = this.#text.slice(from);
    return this.#text.length > PIECE_LENGTH && this.#openMember(container);
  }

  /** Opens the member that has begun. A name or a number must have arrived whole. */
  #openMember(container: Container): boolean {
    let name = '';
    let index = 0;
    if (!Array.isArray(container)) {
      const end = endOfString(this.#text, 1);
      if (end < 0 || end + 2 >= this.#text.length) return false;
      name = JSON.parse(this.#text.slice(0, end + 1)) as string;
      index = end + 2;
    }
    const first = this.#text[index];
    if (first !== '"' && first !== '[' && first !== '{') return false;
    this.#text = this.#text.slice(index + 1);
    if (first === '"') this.#open.push({ kind: 'text', value: '', name });
    else {
      const value: Container = first === '[' ? [] : {};
      add(container, name, value);
      this.#open.push({ kind: 'container', value });
    }
    return true;
  }

  #container(): Container {
    return (this.#open.at(-1) as Extract<OpenValue, { kind: 'container' }>).value;
  }
}

function add(container: Container, name: string, value: unknown): void {
  if (Array.isArray(container)) container.push(value);
  // An assignment to `__proto__` would change the object's prototype.
  else if (name === '__proto__')
    Object.defineProperty(container, name, { value, writable: true, enumerable: true, configurable: true });
  else container[name] = value;
}

function addAll(container: Container, members: string): void {
  if (members === '') return;
  if (Array.isArray(container)) for (const item of JSON.parse(`[${members}]`) as unknown[]) container.push(item);
  else for (const [name, value] of Object.entries(JSON.parse(`{${members}}`) as object)) add(container, name, value);
}

/** The index of the last comma between members, or of the end of their container, as far as the text has arrived. */
function findBoundary(text: string, from: number): { readonly comma?: number; readonly close?: number } {
  let depth = 0;
  let comma: number | undefined;
  for (let index = from; index < text.length; index += 1) {
    switch (text.charCodeAt(index)) {
      case QUOTE:
        index = endOfString(text, index + 1);
        if (index < 0) return comma === undefined ? {} : { comma };
        break;
      case 0x5b: // [
      case 0x7b: // {
        depth += 1;
        break;
      case 0x5d: // ]
      case 0x7d: // }
        if (depth === 0) return { close: index };
        depth -= 1;
        break;
      case COMMA:
        if (depth === 0) comma = index;
        break;
    }
  }
  return comma === undefined ? {} : { comma };
}

/** The index of the quote that ends a string, whose characters start at `from`; -1 before it has arrived. */
export function endOfString(text: string, from: number): number {
  for (let quote = text.indexOf('"', from); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    if (backslashesBefore(text, quote, from) % 2 === 0) return quote;
  }
  return -1;
}

function backslashesBefore(text: string, index: number, from: number): number {
  let first = index;
  while (first > from && text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
  return index - first;
}

/** The length of the longest escape, `\\uXXXX`. */
const ESCAPE_LENGTH = 6;

/** The length of an unfinished string without a part of an escape at its end. */
function endOfEscapes(text: string): number {
  const last = text.slice(-ESCAPE_LENGTH).lastIndexOf('\\');
  if (last < 0) return text.length;
  const index = Math.max(0, text.length - ESCAPE_LENGTH) + last;
  if (backslashesBefore(text, index, 0) % 2 === 1) return text.length;
  const length = text[index + 1] === 'u' ? ESCAPE_LENGTH : 2;
  return index + length > text.length ? index : text.length;
}
