/** Ajv's faults as whoever sent the value can mend them (A14, A15): what was expected, what came, what is allowed. */
import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Issue } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';
import { unescaped } from './json-pointer.ts';
import type { Tag } from './tagged-union.ts';

type Parts = Readonly<Record<string, unknown>>;

const MAX_ISSUES = 10;
/** A long list can be wrong in each item: what is told is found among the first. */
const MAX_ERRORS = 500;
const MAX_MESSAGE_LENGTH = 300;
/** Longer names are told and compared by their beginning. */
const MAX_WORD_LENGTH = 128;

/** At most ten, each once. That no alternative fits is told last: what is wrong with the one that was meant says more. */
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

/** Without the faults of alternatives that were not meant, as far as the value tells which was. */
function withoutOtherAlternatives(errors: readonly ErrorObject[]): readonly ErrorObject[] {
  const left = new Set(errors);
  for (const choice of errors.filter(isChoice)) {
    const branches = (choice.schema as readonly unknown[]).map((branch, index) => {
      const partition = (branch as Parts | null)?.['$ref'] ?? `${choice.schemaPath}/${index}`;
      const faults = errors.filter(
        (error) => isWithin(choice, error) && error.schemaPath.startsWith(`${String(partition)}/`),
      );
      return { branch, faults };
    });
    const others = branches.filter(({ faults }) =>
      faults.some((fault) => branches.some((meant) => isTold(choice, fault, meant.branch, meant.faults))),
    );
    if (others.length === 0) continue;
    for (const fault of others.flatMap(({ faults }) => faults)) left.delete(fault);
    // What is wrong with the only one that is left says all.
    const isOnly = others.length === branches.length - 1;
    if (isOnly && [...left].some((error) => error !== choice && isWithin(choice, error))) left.delete(choice);
  }
  return [...left];
}

function isWithin({ instancePath }: ErrorObject, error: ErrorObject): boolean {
  return error.instancePath === instancePath || error.instancePath.startsWith(`${instancePath}/`);
}

/** Whether a fault of one alternative says that another was meant, which has no such fault: the value's type, or a property's values. */
function isTold(
  choice: ErrorObject,
  { keyword, instancePath }: ErrorObject,
  meant: unknown,
  faults: readonly ErrorObject[],
): boolean {
  const hasTheSame = faults.some((other) => isValues(keyword, other) && other.instancePath === instancePath);
  if (hasTheSame) return false;
  if (instancePath === choice.instancePath) return keyword === 'type';
  const names = instancePath.slice(choice.instancePath.length + 1).split('/');
  if (!(keyword === 'const' || keyword === 'enum') || names.length !== 1) return false;
  const properties = ((meant as Parts | null)?.['properties'] ?? {}) as Readonly<Record<string, Parts | undefined>>;
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
      const data = error.data as Parts;
      const message = Object.hasOwn(data, propertyName)
        ? `must be one of ${allowed}; got ${shown(data[propertyName])}`
        : `is required and missing; it is one of ${allowed}`;
      return { path: [...at, propertyName].join('.'), message };
    }
    case 'enum':
      return {
        path: at.join('.'),
        message: `must be one of ${(params['allowedValues'] as unknown[]).map((value) => JSON.stringify(value)).join(', ')}; got ${shown(error.data)}`,
      };
    case 'const':
      return {
        path: at.join('.'),
        message: `must be ${JSON.stringify(params['allowedValue'])}; got ${shown(error.data)}`,
      };
    default:
      return { path: at.join('.'), message: `${error.message ?? error.keyword}; got ${shown(error.data)}` };
  }
}

/** A value as an error's sentence quotes it. */
export function shown(value: unknown): string {
  const text = jsonOf(typeof value === 'string' ? startOf(value, 100) : value);
  return text.length <= 80 ? text : `${startOf(text, 80)}…`;
}

/** What is nested too deep to be written is named by its type. */
function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return `a deeply nested ${typeof value}`;
  }
}

/** Up to three candidates that look most like the word, the best first; none when all are far off. */
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
