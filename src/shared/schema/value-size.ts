/** The size of a value, which decides whether it is refused, checked here, or checked in a separate thread. */
import type { CheckCost } from './schema-cost.ts';

/** The largest number of values within one, because the time of a check grows with it. */
const MAX_MEMBERS = 100_000;
/** The largest number of members of one object. Each unknown member is an error of its own. */
const MAX_NAMES = 5_000;
/** The largest work on the event loop, as members times the size of the schema: some tens of milliseconds. */
const MAX_WORK = 50_000;
/** The number of characters that RE2 matches by a pattern of size 1 in the time of one unit of work. */
const CHARACTERS = 50;

interface ValueSize {
  readonly values: number;
  /** The levels below the value itself. */
  readonly depth: number;
  /** The characters of all texts and names, and of the longest one; 0 where texts are not measured. */
  readonly characters: number;
  readonly longest: number;
}

interface Bounds {
  /** The greatest depth that the schema can afford. */
  readonly maxDepth: number | undefined;
  readonly texts: boolean;
}

/** Returns a sentence where a value is too large for any check. */
export function sizeOfValue(value: unknown, { maxDepth, texts }: Bounds): ValueSize | string {
  let values = 1;
  let depth = 0;
  let characters = 0;
  let longest = 0;
  const addText = (text: string) => {
    characters += text.length;
    longest = Math.max(longest, text.length);
  };
  if (typeof value === 'string') addText(value);
  for (let level = containersOf([value]); level.length > 0; depth += 1) {
    if (maxDepth !== undefined && depth > maxDepth)
      return `is nested more than ${maxDepth} levels deep, which this schema makes too costly to check`;
    const below: object[] = [];
    for (const container of level) {
      const members: readonly unknown[] = Array.isArray(container) ? container : Object.values(container);
      values += members.length;
      if (values > MAX_MEMBERS) return `holds more than ${MAX_MEMBERS} values`;
      if (members.length > MAX_NAMES && !Array.isArray(container))
        return `has an object of more than ${MAX_NAMES} members`;
      for (const member of members)
        if (typeof member === 'object' && member !== null) below.push(member);
        else if (texts && typeof member === 'string') addText(member);
      if (texts && !Array.isArray(container)) for (const name in container) addText(name);
    }
    level = below;
  }
  return { values, depth, characters, longest };
}

/** The reason for which a value is too large for any check; undefined where it is not. */
export function sizeFault(value: unknown): string | undefined {
  const size = sizeOfValue(value, { maxDepth: undefined, texts: false });
  return typeof size === 'string' ? size : undefined;
}

function containersOf(values: readonly unknown[]): object[] {
  return values.filter((value) => typeof value === 'object' && value !== null);
}

/** Texts need not be measured where a character costs less: no value is so long that it matters. */
const MIN_TEXT_WORK = 1;

export function costsByText(cost: CheckCost): boolean {
  return cost.maxTextWork(Number.POSITIVE_INFINITY) >= MIN_TEXT_WORK;
}

/** Whether the check of a value could hold the event loop. `isQuadratic`: the work for a character grows with the text's length. */
export function isCostlyCheck(size: ValueSize, cost: CheckCost, isQuadratic: boolean): boolean {
  const characterWork = cost.maxTextWork(size.depth) + (isQuadratic ? size.longest : 0);
  return size.values * cost.maxWork(size.depth) + (size.characters * characterWork) / CHARACTERS > MAX_WORK;
}
