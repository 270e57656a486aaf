/** Turns Ajv's errors into texts with which the sender can correct the value: the expected, the received and the allowed values. */
import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Issue } from '../errors/failure.ts';
import { nearest } from '../util/text/nearest.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { startOf, withEllipsis } from '../util/text/text-cut.ts';
import { unescapeStep } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import type { Tag } from './tagged-union.ts';

const MAX_ISSUES = 10;
/** Only so many errors are read. Every item of a long list can be wrong, and the first errors are enough. */
const MAX_ERRORS = 500;
const MAX_MESSAGE_LENGTH = 300;
/** Longer names are quoted by their beginning. */
const MAX_WORD_LENGTH = 128;

/** At most ten issues, without duplicates. "No alternative matches" comes last, because the fault of the intended alternative is more useful. */
export function issuesOf(errors: readonly ErrorObject[]): readonly Issue[] {
  const first = errors.slice(0, MAX_ERRORS);
  const relevant = withoutOtherAlternatives(first).toSorted((a, b) => Number(isChoice(a)) - Number(isChoice(b)));
  const issues = new Map<string, Issue>();
  for (const error of relevant) {
    const { path, message } = issueOf(error);
    issues.set(JSON.stringify([path, message]), { path, message: withEllipsis(message, MAX_MESSAGE_LENGTH) });
    if (issues.size === MAX_ISSUES) break;
  }
  return [...issues.values()];
}

function isChoice({ keyword }: ErrorObject): boolean {
  return keyword === 'anyOf' || keyword === 'oneOf';
}

/** Removes the faults of alternatives that the value was not meant for, where the value shows that. */
function withoutOtherAlternatives(errors: readonly ErrorObject[]): readonly ErrorObject[] {
  const relevant = new Set(errors);
  for (const choice of errors.filter(isChoice)) {
    const branches = (choice.schema as readonly unknown[]).map((branch, index) => {
      const place = (branch as JsonSchema | null)?.['$ref'] ?? `${choice.schemaPath}/${index}`;
      const faults = errors.filter(
        (error) => isWithin(choice, error) && error.schemaPath.startsWith(`${String(place)}/`),
      );
      return { branch, faults };
    });
    const unintended = branches.filter(({ faults }) =>
      faults.some((fault) => branches.some((other) => pointsTo(other, choice, fault))),
    );
    if (unintended.length === 0) continue;
    for (const fault of unintended.flatMap(({ faults }) => faults)) relevant.delete(fault);
    // With one alternative left, its own faults are enough.
    const isOnly = unintended.length === branches.length - 1;
    if (isOnly && [...relevant].some((error) => error !== choice && isWithin(choice, error))) relevant.delete(choice);
  }
  return [...relevant];
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
  { branch, faults }: Alternative,
  choice: ErrorObject,
  { keyword, instancePath }: ErrorObject,
): boolean {
  const hasSameFault = faults.some((other) => isSameKind(keyword, other) && other.instancePath === instancePath);
  if (hasSameFault) return false;
  if (instancePath === choice.instancePath) return keyword === 'type';
  const names = instancePath.slice(choice.instancePath.length + 1).split('/');
  if (!(keyword === 'const' || keyword === 'enum') || names.length !== 1) return false;
  const properties = ((branch as JsonSchema | null)?.['properties'] ?? {}) as Readonly<
    Record<string, JsonSchema | undefined>
  >;
  const property = properties[unescapeStep(names[0] ?? '')];
  return property?.['const'] !== undefined || property?.['enum'] !== undefined;
}

function isSameKind(keyword: string, { keyword: other }: ErrorObject): boolean {
  return keyword === 'type' ? other === 'type' : other === 'const' || other === 'enum';
}

function issueOf(error: ErrorObject): Issue {
  const path = error.instancePath.split('/').slice(1).map(unescapeStep);
  const params = error.params as Record<string, unknown>;
  const issue = (message: string, ...below: readonly string[]) => ({ path: [...path, ...below].join('.'), message });
  const got = `; got ${quoteValue(error.data)}`;
  switch (error.keyword) {
    case 'required':
      return issue('is required and missing', String(params['missingProperty']));
    case 'additionalProperties':
    case 'unevaluatedProperties': {
      const unknown = startOf(String(params['additionalProperty'] ?? params['unevaluatedProperty']), MAX_WORD_LENGTH);
      const allowed = Object.keys((error.parentSchema?.['properties'] as object | undefined) ?? {});
      const hint = nearest(unknown, allowed)[0];
      const fault = hint === undefined ? 'is unknown' : `is unknown; did you mean ${hint}?`;
      // Schemas beside this one may allow further properties, such as those that a reference leads to.
      if (error.keyword === 'unevaluatedProperties') return issue(fault, unknown);
      return issue(`${fault}${hint === undefined ? '.' : ''} Allowed: ${allowed.join(', ') || 'none'}`, unknown);
    }
    case 'discriminator': {
      const { propertyName, alternatives } = error.schema as Tag;
      const allowed = listed(alternatives.flat());
      const data = error.data as JsonSchema;
      const message = Object.hasOwn(data, propertyName)
        ? `must be one of ${allowed}; got ${quoteValue(data[propertyName])}`
        : `is required and missing; it is one of ${allowed}`;
      return issue(message, propertyName);
    }
    case 'enum':
      return issue(`must be one of ${listed(params['allowedValues'] as unknown[])}${got}`);
    case 'const':
      return issue(`must be ${JSON.stringify(params['allowedValue'])}${got}`);
    default:
      return issue(`${error.message ?? error.keyword}${got}`);
  }
}

function listed(values: readonly unknown[]): string {
  return values.map((value) => JSON.stringify(value)).join(', ');
}
