/** Whole numbers beyond 2^53 in outputs. Their digits are kept as texts, which a schema of numbers would refuse. */
import type { Issue } from '../errors/failure.ts';
import { isLongInteger } from '../util/json/exact-json.ts';
import type { Validator } from './validator.ts';

/** The same validator, for which a text of digits that has an issue counts as the whole number beyond 2^53 that it stands for. */
export function acceptingDigits(
  validate: Validator,
): (value: unknown, found?: ReturnType<Validator>) => ReturnType<Validator> {
  const again = (value: unknown, issues: readonly Issue[]) => {
    if (issues.length === 0) return issues;
    const meant = withNumbers(value, pathsOf(issues), Number);
    return meant === value ? issues : validate(meant);
  };
  return (value, found = validate(value)) =>
    found instanceof Promise ? found.then((issues) => again(value, issues)) : again(value, found);
}

/** TypeScript does not know this function yet. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object };

/**
 * The value for JSON: a text of digits is a number with all of them where the schema asks for one. Programs whose numbers hold fewer
 * digits round it when they read it.
 */
export async function withDigitsAsNumbers(validate: Validator, value: unknown): Promise<unknown> {
  const issues = await validate(value);
  return withNumbers(value, pathsOf(issues), rawJSON);
}

function pathsOf(issues: readonly Issue[]): ReadonlySet<string> {
  return new Set(issues.map(({ path }) => withoutIndexes(path)));
}

/** Issues name only the first entries of a list. */
function withoutIndexes(path: string): string {
  return path.replaceAll(/(?<=^|\.)\d+(?=\.|$)/g, '*');
}

function withNumbers(
  value: unknown,
  paths: ReadonlySet<string>,
  numberOf: (digits: string) => unknown,
  path = '',
): unknown {
  if (typeof value === 'string') return isLongInteger(value) && paths.has(path) ? numberOf(value) : value;
  if (typeof value !== 'object' || value === null) return value;
  const within = (name: string, member: unknown) =>
    withNumbers(member, paths, numberOf, path === '' ? name : `${path}.${name}`);
  if (Array.isArray(value)) {
    const entries = value.map((entry: unknown) => within('*', entry));
    return entries.some((entry, index) => entry !== value[index]) ? entries : value;
  }
  const members = Object.entries(value).map(([name, member]) => ({
    name,
    member,
    converted: within(withoutIndexes(name), member),
  }));
  if (members.every(({ member, converted }) => member === converted)) return value;
  return Object.fromEntries(members.map(({ name, converted }) => [name, converted]));
}
