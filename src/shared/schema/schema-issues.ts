/** Ajv's errors as texts by which the sender can correct the value: what was expected, what came, what is allowed. */
import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Issue } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';
import { unescaped } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import type { Tag } from './tagged-union.ts';

const MAX_ISSUES = 10;
/** The errors that are read. A long list can be wrong in each item, and the first ones are enough. */
const MAX_ERRORS = 500;
const MAX_MESSAGE_LENGTH = 300;
/** Longer names are quoted and compared by their beginning. */
const MAX_WORD_LENGTH = 128;

/** At most ten issues, each once. "No alternative fits" comes last, because the fault of the intended alternative says more. */
export function issuesOf(errors: readonly ErrorObject[]): readonly Issue[] {
  const first = errors.slice(0, MAX_ERRORS);
  const left = withoutOtherAlternatives(first).toSorted((a, b) => Number(isChoice(a)) - Number(isChoice(b)));
  const issues = new Map<string, Issue>();
  for (const error of left) {
    const { path, message } = issueOf(error);
    issues.set(JSON.stringify([path, message]), { path, message: clipped(message) });
    if (issues.size === MAX_ISSUES) break;
  }
  return [...issues.values()];
}

function clipped(message: string): string {
  return message.length <= MAX_MESSAGE_LENGTH ? message : `${startOf(message, MAX_MESSAGE_LENGTH)}…`;
}

function isChoice({ keyword }: ErrorObject): boolean {
  return keyword === 'anyOf' || keyword === 'oneOf';
}

/** Removes the faults of alternatives that were not intended, as far as the value shows which one was. */
function withoutOtherAlternatives(errors: readonly ErrorObject[]): readonly ErrorObject[] {
  const left = new Set(errors);
  for (const choice of errors.filter(isChoice)) {
    const branches = (choice.schema as readonly unknown[]).map((branch, index) => {
      const place = (branch as JsonSchema | null)?.['$ref'] ?? `${choice.schemaPath}/${index}`;
      const faults = errors.filter(
        (error) => isWithin(choice, error) && error.schemaPath.startsWith(`${String(place)}/`),
      );
      return { branch, faults };
    });
    const others = branches.filter(({ faults }) =>
      faults.some((fault) => branches.some((other) => pointsTo(other, choice, fault))),
    );
    if (others.length === 0) continue;
    for (const fault of others.flatMap(({ faults }) => faults)) left.delete(fault);
    // The faults of the only alternative that is left say all.
    const isOnly = others.length === branches.length - 1;
    if (isOnly && [...left].some((error) => error !== choice && isWithin(choice, error))) left.delete(choice);
  }
  return [...left];
}

function isWithin({ instancePath }: ErrorObject, error: ErrorObject): boolean {
  return error.instancePath === instancePath || error.instancePath.startsWith(`${instancePath}/`);
}

interface Alternative {
  readonly branch: unknown;
  readonly faults: readonly ErrorObject[];
}

/**
 * Whether a fault of another alternative shows that this one was intended: the value's type, or a property's values, fit here and
 * not there.
 */
function pointsTo(
  { branch: meant, faults }: Alternative,
  choice: ErrorObject,
  { keyword, instancePath }: ErrorObject,
): boolean {
  const hasTheSame = faults.some((other) => isValues(keyword, other) && other.instancePath === instancePath);
  if (hasTheSame) return false;
  if (instancePath === choice.instancePath) return keyword === 'type';
  const names = instancePath.slice(choice.instancePath.length + 1).split('/');
  if (!(keyword === 'const' || keyword === 'enum') || names.length !== 1) return false;
  const properties = ((meant as JsonSchema | null)?.['properties'] ?? {}) as Readonly<
    Record<string, JsonSchema | undefined>
  >;
  const property = properties[unescaped(names[0] ?? '')];
  return property?.['const'] !== undefined || property?.['enum'] !== undefined;
}

function isValues(keyword: string, { keyword: other }: ErrorObject): boolean {
  return keyword === 'type' ? other === 'type' : other === 'const' || other === 'enum';
}

function issueOf(error: ErrorObject): Issue {
  const at = error.instancePath.split('/').slice(1).map(unescaped);
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case 'required':
      return { path: [...at, String(params['missingProperty'])].join('.'), message: 'is required and missing' };
    case 'additionalProperties':
    case 'unevaluatedProperties': {
      const unknown = startOf(String(params['additionalProperty'] ?? params['unevaluatedProperty']), MAX_WORD_LENGTH);
      const known = Object.keys((error.parentSchema?.['properties'] as object | undefined) ?? {});
      const hint = nearest(unknown, known)[0];
      return {
        path: [...at, unknown].join('.'),
        message: `is not a parameter${hint === undefined ? '.' : `; did you mean ${hint}?`} Allowed: ${known.join(', ') || 'none'}`,
      };
    }
    case 'discriminator': {
      const { propertyName, values } = error.schema as Tag;
      const allowed = values.map((value) => JSON.stringify(value)).join(', ');
      const data = error.data as JsonSchema;
      const message = Object.hasOwn(data, propertyName)
        ? `must be one of ${allowed}; got ${quoteValue(data[propertyName])}`
        : `is required and missing; it is one of ${allowed}`;
      return { path: [...at, propertyName].join('.'), message };
    }
    case 'enum':
      return {
        path: at.join('.'),
        message: `must be one of ${(params['allowedValues'] as unknown[]).map((value) => JSON.stringify(value)).join(', ')}; got ${quoteValue(error.data)}`,
      };
    case 'const':
      return {
        path: at.join('.'),
        message: `must be ${JSON.stringify(params['allowedValue'])}; got ${quoteValue(error.data)}`,
      };
    default:
      return { path: at.join('.'), message: `${error.message ?? error.keyword}; got ${quoteValue(error.data)}` };
  }
}

/** Quotes the beginning of a value, for an error's sentence. */
export function quoteValue(value: unknown): string {
  const text = jsonOf(typeof value === 'string' ? startOf(value, 100) : value);
  return text.length <= 80 ? text : `${startOf(text, 80)}…`;
}

/** The value's JSON, or its type where it is nested too deep to be written. JSON would write null for NaN. */
function jsonOf(value: unknown): string {
  if (typeof value === 'number') return String(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return `a deeply nested ${typeof value}`;
  }
}

/** Up to three candidates that resemble the word most, the best first; none when all are far off. */
export function nearest(word: string, candidates: readonly string[]): string[] {
  const wanted = startOf(word, MAX_WORD_LENGTH).toLowerCase();
  return candidates
    .map((candidate) => ({
      candidate,
      distance: editDistance(wanted, candidate.toLowerCase()),
      within: candidate.toLowerCase().includes(wanted) || wanted.includes(candidate.toLowerCase()),
    }))
    .filter(
      ({ candidate, distance, within }) =>
        within || distance <= Math.max(2, Math.floor(Math.max(wanted.length, candidate.length) / 3)),
    )
    .sort((a, b) => a.distance - b.distance)
    .slice(0, 3)
    .map(({ candidate }) => candidate);
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const substitution = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      current.push(Math.min(substitution, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    previous = current;
  }
  return previous[b.length] ?? 0;
}
