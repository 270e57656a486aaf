/** The size of a schema, which decides whether it is compiled and used here or in a separate thread. */

/** A schema of more members, or with larger patterns, takes so long to compile that other calls would wait. */
const MAX_SIZE = 1_000;
const MAX_PATTERNS = 2_000;
/** So many characters of names and texts count as one member. */
const CHARACTERS = 64;

/** The number of values in a schema. Definitions are left out: they count where they are referred to. */
export function sizeOfSchema(schema: object): number {
  return measure(schema, Number.POSITIVE_INFINITY, '$defs').size;
}

/** Whether a schema is so large that compiling it could hold the event loop. */
export function isLargeSchema(schema: unknown): boolean {
  const { size, patterns } = measure(schema, MAX_SIZE);
  return size > MAX_SIZE || patterns > MAX_PATTERNS;
}

export interface TextCost {
  /** The cost of matching one character with all patterns and formats. */
  readonly perCharacter: number;
  /** Ajv's pattern for the format `url` takes a time that is quadratic in the length of its text. */
  readonly quadratic: boolean;
}

export function textCostOf(schema: unknown): TextCost {
  const { patterns, formats } = measure(schema, Number.POSITIVE_INFINITY);
  return { perCharacter: patterns + formats.size * FORMAT, quadratic: formats.has('url') };
}

/** A format costs as much as a pattern of this size. */
const FORMAT = 10;

interface Weight {
  size: number;
  /** The size of all patterns. */
  patterns: number;
  readonly formats: Set<string>;
}

/** Stops soon after `maxSize` values. */
function measure(schema: unknown, maxSize: number, skippedKeyword?: string): Weight {
  const weight: Weight = { size: 0, patterns: 0, formats: new Set() };
  const pending: unknown[] = [schema];
  while (pending.length > 0 && weight.size <= maxSize) {
    const value = pending.pop();
    weight.size += 1;
    if (typeof value === 'string') weight.size += Math.floor(value.length / CHARACTERS);
    if (typeof value !== 'object' || value === null) continue;
    if (!Array.isArray(value)) measureTexts(value as Readonly<Record<string, unknown>>, weight);
    for (const [name, member] of Object.entries(value)) if (name !== skippedKeyword) pending.push(member);
  }
  return weight;
}

/** A property may also be called `pattern`. Counting it then makes the size a little too large, which does no harm. */
function measureTexts(schema: Readonly<Record<string, unknown>>, weight: Weight): void {
  const { pattern, format, patternProperties } = schema;
  if (typeof pattern === 'string') weight.patterns += patternSize(pattern);
  if (typeof format === 'string') weight.formats.add(format);
  if (typeof patternProperties === 'object' && patternProperties !== null)
    for (const propertyPattern of Object.keys(patternProperties)) weight.patterns += patternSize(propertyPattern);
}

/** A class of Unicode characters has hundreds of ranges. */
const UNICODE_CLASS = 60;

/** The approximate number of a pattern's states: its characters, times the counts of the repetitions around them. */
export function patternSize(pattern: string): number {
  const outer: number[] = [];
  let total = 0;
  let lastSize = 0;
  const add = (size: number) => {
    total += size;
    lastSize = size;
  };
  for (const [part] of pattern.matchAll(PARTS)) {
    const repetition = REPEATED.exec(part);
    if (part === '(') {
      outer.push(total);
      total = 0;
    } else if (part === ')') {
      const group = total;
      total = outer.pop() ?? 0;
      add(group + 1);
    } else if (repetition !== null) {
      const maxSize = Math.max(Number(repetition[1]), Number(repetition[2] || 0), 1);
      total += lastSize * (maxSize - 1);
      lastSize *= maxSize;
    } else add(/^\\[pP]|\\[pP]\{/.test(part) ? UNICODE_CLASS : 1);
  }
  return outer.reduce((sum, each) => sum + each, total);
}

/** An escaped character, a class in brackets, a repetition, or any other character. */
const PARTS = /\\[pP]\{[^}]*\}|\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[\s\S]/g;
const REPEATED = /^\{(\d+)(?:,(\d*))?\}$/;
