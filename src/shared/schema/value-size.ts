/** The size of a value, by which it is refused, checked at once, or checked in a thread of its own. */
import type { CheckCost } from './schema-cost.ts';
import type { TextCost } from './schema-weight.ts';

/** The most values within one, because the time of a check grows with them. */
const MAX_MEMBERS = 100_000;
/** The most members of one object. Each member that the schema does not know is an error of its own. */
const MAX_NAMES = 5_000;
/** The most work that is done on the event loop: members times the size of the schema. It takes some tens of milliseconds. */
const MAX_WORK = 50_000;
/** The engine for patterns matches so many characters by a pattern of size 1 in the time of one such check. */
const CHARACTERS = 50;

export interface ValueSize {
  readonly values: number;
  /** The levels below the value itself. */
  readonly depth: number;
  /** The characters of all texts and names, and of the longest; 0 where texts are not looked at. */
  readonly characters: number;
  readonly longest: number;
}

interface Bounds {
  /** The greatest depth that the schema can afford. */
  readonly deepest: number | undefined;
  readonly texts: boolean;
}

/** Returns a sentence where a value is too large for any check. */
export function sizeOfValue(value: unknown, { deepest, texts }: Bounds): ValueSize | string {
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
    if (deepest !== undefined && depth > deepest)
      return `is nested more than ${deepest} levels deep, which this schema makes too costly to check`;
    const below: object[] = [];
    for (const each of level) {
      const members: readonly unknown[] = Array.isArray(each) ? each : Object.values(each);
      values += members.length;
      if (values > MAX_MEMBERS) return `holds more than ${MAX_MEMBERS} values`;
      if (members.length > MAX_NAMES && !Array.isArray(each)) return `has an object of more than ${MAX_NAMES} members`;
      for (const member of members)
        if (typeof member === 'object' && member !== null) below.push(member);
        else if (texts && typeof member === 'string') addText(member);
      if (texts && !Array.isArray(each)) for (const name in each) addText(name);
    }
    level = below;
  }
  return { values, depth, characters, longest };
}

/** The reason for which a value is too large for any check; undefined where it is not. */
export function whyTooMany(value: unknown): string | undefined {
  const size = sizeOfValue(value, { deepest: undefined, texts: false });
  return typeof size === 'string' ? size : undefined;
}

function containersOf(values: readonly unknown[]): object[] {
  return values.filter((value) => typeof value === 'object' && value !== null);
}

/** Whether the check of a value could hold the event loop. */
export function isCostlyCheck(size: ValueSize, cost: CheckCost, { perCharacter, quadratic }: TextCost): boolean {
  const ofTexts = (size.characters * (perCharacter + (quadratic ? size.longest : 0))) / CHARACTERS;
  return size.values * cost.of(size.depth) + ofTexts > MAX_WORK;
}
