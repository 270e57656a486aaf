/**
 * JSON Schema 2020-12: made from zod, checked by Ajv, faults told so that the next attempt can succeed (A14, A15).
 */
import { createRequire } from 'node:module';
import type { Ajv2020, ErrorObject, ValidateFunction } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { type Issue, PawlError } from './failure.ts';
import { unescaped } from './json-pointer.ts';
import { isLinear, linearPattern } from './pattern.ts';

export type JsonSchema = Readonly<Record<string, unknown>>;

/** What zod made, and what was checked where it was declared: nobody has to check it again. */
const knownValid = new WeakSet<JsonSchema>();

/** What callers may send. Unknown properties are refused unless the schema allows them. */
export function inputJsonSchema(schema: z.ZodType): JsonSchema {
  return toJsonSchema(schema, 'input');
}

export function outputJsonSchema(schema: z.ZodType): JsonSchema {
  return toJsonSchema(schema, 'output');
}

function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  const stranger = whyNotOfZod(schema);
  if (stranger !== undefined) throw new PawlError('CONFIGURATION', `\`${io}\` must be a schema of zod 4; ${stranger}.`);
  try {
    const made: Record<string, unknown> = { ...z.toJSONSchema(schema, { target: 'draft-2020-12', io }) };
    delete made['$schema'];
    delete made['~standard'];
    if (io === 'input') closeObjects(made);
    leaveFormatsToThemselves(made);
    knownValid.add(made);
    return made;
  } catch (error) {
    throw new PawlError(
      'CONFIGURATION',
      `This zod schema has no JSON Schema form: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
}

/** Callers without types, or with another zod, give all kinds of things. */
function whyNotOfZod(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return `got ${value === undefined ? 'nothing' : typeof value}`;
  if ('_zod' in value) return undefined;
  if ('_def' in value) return 'this one is of zod 3';
  return 'got another object: z.object({ … }) makes one, and defineUntypedTool takes plain JSON Schema';
}

/**
 * zod strips unknown properties on parse, so that a misspelt optional parameter would be lost in silence: refuse it, at every
 * depth. Not below `allOf`, whose parts describe one object together.
 */
function closeObjects(schema: unknown): void {
  if (Array.isArray(schema)) schema.forEach(closeObjects);
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return;
  const parts = schema as Record<string, unknown>;
  if (parts['type'] === 'object' && parts['additionalProperties'] === undefined) parts['additionalProperties'] = false;
  Object.values(parts['properties'] ?? {}).forEach(closeObjects);
  for (const name of ['items', 'prefixItems', 'additionalProperties', 'anyOf', 'oneOf']) closeObjects(parts[name]);
}

/**
 * zod writes its own pattern beside some formats, with look-around that has no linear form: the format says it, and zod checks
 * it again where the parameters are parsed.
 */
function leaveFormatsToThemselves(schema: unknown): void {
  if (typeof schema !== 'object' || schema === null) return;
  const parts = schema as Record<string, unknown>;
  if (typeof parts['format'] === 'string' && typeof parts['pattern'] === 'string' && !isLinear(parts['pattern']))
    delete parts['pattern'];
  Object.values(parts).forEach(leaveFormatsToThemselves);
}

/** Ajv's hook for another engine; `code` is only used where validators are written out as source, which we do not. */
const LINEAR = Object.assign((pattern: string) => linearPattern(pattern), { code: 'linearPattern' });

export type Validator = (value: unknown) => readonly Issue[];

const MAX_ISSUES = 10;
/** Longer names are told and compared by their beginning. */
const MAX_WORD_LENGTH = 128;

const require = createRequire(import.meta.url);

/** Loaded when the first schema is compiled: most commands compile none. */
function newAjv(validateSchema: boolean): Ajv2020 {
  const { Ajv2020 } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  const { default: addFormats } = require('ajv-formats') as typeof import('ajv-formats');
  const ajv = new Ajv2020({
    validateSchema,
    allErrors: true,
    ownProperties: true,
    strict: false,
    verbose: true,
    validateFormats: true,
    code: { regExp: LINEAR },
    // Of formats that nobody here knows (Rust's `uint32`), which restrict nothing.
    logger: false,
  });
  addFormats(ajv);
  return ajv;
}

/** Learning what a schema may be takes far longer than compiling one: that is done when a schema comes that nobody knows. */
let checking: Ajv2020 | undefined;
let unchecking: Ajv2020 | undefined;

/**
 * Compiles a schema once. `ownProperties` keeps inherited names such as `constructor` from satisfying `required`.
 * Throws `CONFIGURATION` when the schema itself is not valid.
 */
export function compileSchema(schema: JsonSchema): Validator {
  const ajv = ajvFor(schema);
  let validate: ValidateFunction;
  try {
    validate = ajv.compile(schema);
  } catch (error) {
    throw new PawlError(
      'CONFIGURATION',
      `The schema is not valid JSON Schema 2020-12: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  } finally {
    // What is compiled stays with whoever asked for it. What has an `$id` had an Ajv of its own.
    if (schema['$id'] === undefined) ajv.removeSchema(schema);
  }
  return (value) => {
    if (validate(value)) return [];
    return (validate.errors ?? []).slice(0, MAX_ISSUES).map(issueOf);
  };
}

function ajvFor(schema: JsonSchema): Ajv2020 {
  // Names of its own would be known to the schemas after it.
  if (JSON.stringify(schema).includes('"$id"')) return newAjv(!knownValid.has(schema));
  if (knownValid.has(schema)) {
    unchecking ??= newAjv(false);
    return unchecking;
  }
  checking ??= newAjv(true);
  return checking;
}

/** Compiles a schema when it is used first; at once, so that its fault is told, when it may have one. */
export function validatorOf(schema: JsonSchema): Validator {
  return knownValid.has(schema) && hasLinearPatterns(schema) ? compiledWhenUsed(schema) : compileSchema(schema);
}

/** A parameter may be named `pattern`, too: that is no text. */
function hasLinearPatterns(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return true;
  const { pattern } = schema as { readonly pattern?: unknown };
  return (typeof pattern !== 'string' || isLinear(pattern)) && Object.values(schema).every(hasLinearPatterns);
}

/** Compiles a schema that was checked before when it is used first: thousands of declared tools cost nothing until then. */
export function compiledWhenUsed(schema: JsonSchema): Validator {
  knownValid.add(schema);
  let compiled: Validator | undefined;
  return (value) => {
    compiled ??= compileSchema(schema);
    return compiled(value);
  };
}

function issueOf(error: ErrorObject): Issue {
  const at = error.instancePath.split('/').slice(1).map(unescaped);
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case 'required':
      return { path: [...at, String(params['missingProperty'])].join('.'), message: 'is required and missing' };
    case 'additionalProperties':
    case 'unevaluatedProperties': {
      const unknown = String(params['additionalProperty'] ?? params['unevaluatedProperty']).slice(0, MAX_WORD_LENGTH);
      const known = Object.keys((error.parentSchema?.['properties'] as object | undefined) ?? {});
      const hint = nearest(unknown, known)[0];
      return {
        path: [...at, unknown].join('.'),
        message: `is not a parameter${hint === undefined ? '.' : `; did you mean ${hint}?`} Allowed: ${known.join(', ') || 'none'}`,
      };
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
  const text = jsonOf(typeof value === 'string' ? value.slice(0, 100) : value);
  return text.length <= 80 ? text : `${text.slice(0, 80)}…`;
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
  const wanted = word.slice(0, MAX_WORD_LENGTH).toLowerCase();
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
