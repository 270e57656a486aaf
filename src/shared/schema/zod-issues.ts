/** Faults of values by Pawl's own zod schemas: the path, the expected value and the received one. */
import type { z } from 'zod';
import type { Issue } from '../errors/failure.ts';
import { plural } from '../util/text/plural.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { startOf } from '../util/text/text-cut.ts';
import { describeUnknown } from './known-members.ts';

/** Messages with the expected and the received value. `zodIssues` adds the received value to messages that a schema defines itself. */
export const WITH_RECEIVED: z.core.ParseContext<z.core.$ZodIssue> = {
  reportInput: true,
  error: (issue) => {
    const expected = expectation(issue);
    if (expected === undefined) return;
    const value = issue.code === 'invalid_union' ? taggedValue(issue) : issue.input;
    if (value === undefined || issue.code === 'unrecognized_keys') return expected;
    return `${expected}; got ${Array.isArray(value) ? `a list of ${value.length}` : quoteValue(value)}`;
  },
};

/** Messages without the received value, which may be secret. */
export const WITHOUT_RECEIVED: z.core.ParseContext<z.core.$ZodIssue> = { error: (issue) => expectation(issue) };

/** Every item of a long list can be wrong; the first faults are enough. */
const MAX_ISSUES = 50;
const MAX_PATH_LENGTH = 300;
const MAX_MESSAGE_LENGTH = 2_000;

/** The first issues of a zod error, each with its path: `budget.costs.0.costUnits`. */
export function zodIssues(error: z.ZodError): Issue[] {
  const first = error.issues.slice(0, MAX_ISSUES).flatMap(leafIssues).slice(0, MAX_ISSUES);
  return first.map((issue) => ({
    path: startOf(issue.path.map(String).join('.'), MAX_PATH_LENGTH),
    message: startOf(withValue(issue), MAX_MESSAGE_LENGTH),
  }));
}

/** A union's issue, replaced by those of the alternative that the value was meant for. Paths begin at the root. */
export function leafIssues(issue: z.core.$ZodIssue): z.core.$ZodIssue[] {
  const alternative = issue.code === 'invalid_union' ? intendedAlternative(issue.errors) : undefined;
  const inner = issue.code === 'invalid_key' ? issue.issues : alternative;
  if (inner === undefined) return [issue];
  return inner.flatMap((each) => leafIssues({ ...each, path: [...issue.path, ...each.path] }));
}

/** Objects are not quoted: a rule about several members names the fault itself. */
function withValue({ message, input }: z.core.$ZodIssue): string {
  const isPlain = typeof input === 'string' || typeof input === 'number' || typeof input === 'boolean';
  return isPlain && message.startsWith('must ') && !message.includes('; got ')
    ? `${message}; got ${quoteValue(input)}`
    : message;
}

/** The alternative that takes values of this type, if it is the only one. */
function intendedAlternative(alternatives: readonly (readonly z.core.$ZodIssue[])[]) {
  const fitting = alternatives.filter((issues) => !issues.some(isOtherType));
  return fitting.length === 1 ? fitting[0] : undefined;
}

function isOtherType({ code, path }: z.core.$ZodIssue): boolean {
  return path.length === 0 && (code === 'invalid_type' || code === 'invalid_value');
}

function expectation(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined ? 'is required and missing' : `must be ${typeName(issue.expected)}`;
    case 'invalid_value':
      return oneOf(issue.values, issue.input);
    case 'unrecognized_keys':
      return unknownMember(issue);
    case 'too_small':
      return `must ${bound(issue.origin, issue.inclusive === false ? 'more than' : 'at least', issue.minimum)}`;
    case 'too_big':
      return `must ${bound(issue.origin, issue.inclusive === false ? 'less than' : 'at most', issue.maximum)}`;
    case 'invalid_format':
      return `must be ${FORMATS[issue.format] ?? `a text of the form ${issue.pattern ?? issue.format}`}`;
    case 'invalid_union':
      return unionOf(issue);
    default:
      return;
  }
}

const TYPES: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
  null: 'null',
};
const FORMATS: Readonly<Record<string, string>> = { url: 'a URL', datetime: 'an ISO 8601 time' };

function typeName(expected: string): string {
  return TYPES[expected] ?? `of the type ${expected}`;
}

function oneOf(values: readonly unknown[], received: unknown): string {
  const allowed = values.map((value) => JSON.stringify(value)).join(', ');
  const choice = values.length === 1 ? allowed : `one of ${allowed}`;
  return received === undefined ? `is required and missing; it is ${choice}` : `must be ${choice}`;
}

function bound(origin: string, relation: string, limit: number | bigint): string {
  if (origin === 'string') return `have ${relation} ${plural(limit, 'character')}`;
  if (origin === 'array' || origin === 'set') return `have ${relation} ${plural(limit, 'item')}`;
  return `be ${relation} ${limit}`;
}

type RawIssue<Code extends z.core.$ZodIssue['code']> = Extract<z.core.$ZodRawIssue, { readonly code: Code }>;

function unknownMember({ keys, inst }: RawIssue<'unrecognized_keys'>): string {
  const { shape = {} } = (inst?._zod.def ?? {}) as { readonly shape?: object };
  return describeUnknown(keys, Object.keys(shape));
}

/** The tag of an object that no alternative has, or the whole value where alternatives have no tag. */
function taggedValue({ input, discriminator }: RawIssue<'invalid_union'>): unknown {
  if (discriminator === undefined) return input;
  return (input as Readonly<Record<string, unknown>> | undefined)?.[discriminator];
}

function unionOf(issue: RawIssue<'invalid_union'>): string | undefined {
  if (issue.discriminator !== undefined)
    return oneOf((issue as { readonly options?: readonly unknown[] }).options ?? [], taggedValue(issue));
  const roots = issue.errors.flat().filter(isOtherType);
  const types = new Set(
    roots.map(({ message }) => /^must be (?<what>.*?)(?:; got .*)?$/s.exec(message)?.groups?.['what']),
  );
  types.delete(undefined);
  return types.size === 0 ? undefined : `must be ${[...types].join(', or ')}`;
}
