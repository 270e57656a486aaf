/** The size of a schema, which decides whether it is compiled and used here or in a separate thread. */
import { isObject } from '../util/json/json-types.ts';
import type { JsonSchema } from './json-schema.ts';

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

/** Ajv's pattern for the format `url` takes a time that is quadratic in the length of its text. */
export function hasQuadraticFormat(schema: unknown): boolean {
  return measure(schema, Number.POSITIVE_INFINITY).isQuadratic;
}

/** The cost of the keywords of one schema for each character, in characters that a pattern of size 1 matches in the same time. */
interface CharacterCost {
  /** For the text that the schema checks. */
  readonly text: number;
  /** For each name of the object that it checks. */
  readonly names: number;
  /** For all texts in the list that it checks, however deep they are. */
  readonly content: number;
}

/** A format costs at most as much as a pattern of this size. */
const FORMAT = 10;
/** Ajv counts the characters of a text for each bound. */
const LENGTH = 0.1;
/** Lists are compared item by item as texts. */
const UNIQUE_ITEMS = 0.5;

export function characterCost({ pattern, format, minLength, maxLength, ...schema }: JsonSchema): CharacterCost {
  const { patternProperties, uniqueItems } = schema;
  const bounds = [minLength, maxLength].filter((bound) => bound !== undefined).length;
  const patterns = isObject(patternProperties) ? Object.keys(patternProperties) : [];
  return {
    text:
      (typeof pattern === 'string' ? patternSize(pattern) : 0) + (format === undefined ? 0 : FORMAT) + bounds * LENGTH,
    names: patterns.reduce((sum, each) => sum + patternSize(each), 0),
    content: uniqueItems === true ? UNIQUE_ITEMS : 0,
  };
}

interface Weight {
  size: number;
  /** The size of all patterns. */
  patterns: number;
  isQuadratic: boolean;
}

/** Stops soon after `maxSize` values. */
function measure(schema: unknown, maxSize: number, skippedKeyword?: string): Weight {
  const weight: Weight = { size: 0, patterns: 0, isQuadratic: false };
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
  if (format === 'url') weight.isQuadratic = true;
  if (typeof patternProperties === 'object' && patternProperties !== null)
    for (const propertyPattern of Object.keys(patternProperties)) weight.patterns += patternSize(propertyPattern);
}

/** A class of Unicode characters has hundreds of ranges. */
const UNICODE_CLASS = 60;
/** RE2 looks at each character of a class for its other cases once, where a pattern ignores case. */
const FOLDED_CLASS = 300;
const IGNORES_CASE = /\(\?[a-z]*i/;

/** The approximate number of a pattern's states: its characters, times the counts of the repetitions around them. */
export function patternSize(pattern: string): number {
  const outer: number[] = [];
  let total = 0;
  let lastSize = 0;
  const add = (size: number) => {
    total += size;
    lastSize = size;
  };
  let folded = 0;
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
    } else {
      add(atomSize(part));
      folded += wideClasses(part);
    }
  }
  if (IGNORES_CASE.test(pattern)) total += folded * FOLDED_CLASS;
  return outer.reduce((sum, each) => sum + each, total);
}

/** The size of one class or character. A class in brackets may repeat its parts. */
function atomSize(part: string): number {
  const count = (pattern: RegExp) => part.match(pattern)?.length ?? 0;
  return Math.max(1, count(/\\[dDsSwW]/g) + UNICODE_CLASS * count(/\\[pP]/g));
}

/** The classes that may have thousands of characters; in brackets, the ends of ranges beyond ASCII. */
function wideClasses(part: string): number {
  const classes = part.startsWith('[') ? /\\[DSWpPux]|[^\0-\x7f]/g : /^\.$|\\[DSWpP]/g;
  return part.match(classes)?.length ?? 0;
}

/** An escaped character, a class in brackets, a repetition, or any other character. What is not closed goes on to the end. */
const PARTS = /\\[pP]\{[^}]*(?:\}|$)|\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*(?:\]|$)|\{\d+(?:,\d*)?\}|[\s\S]/g;
const REPEATED = /^\{(\d+)(?:,(\d*))?\}$/;
