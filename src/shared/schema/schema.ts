/**
 * JSON Schema 2020-12: made from zod, checked by Ajv, faults told so that the next attempt can succeed (A14, A15).
 */
import { createRequire } from 'node:module';
import type { Ajv2020, ValidateFunction } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { type Issue, PawlError } from '../errors/failure.ts';
import { canonicalJson } from './canonical-json.ts';
import { decoded } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import { isLinear, linearPattern } from './linear-pattern.ts';
import { deepestValue, isDeeper } from './schema-cost.ts';
import { issuesOf } from './schema-issues.ts';
import { withTags } from './tagged-union.ts';
import { zodIssues } from './zod-issues.ts';

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
 * depth. Not below `allOf`, whose parts describe one object together, nor in definitions that stand there as well.
 */
function closeObjects(root: Readonly<Record<string, unknown>>): void {
  const definitions: Readonly<Record<string, unknown>> = { ...(root['$defs'] as object | undefined), [ROOT]: root };
  const together = new Set<string>();
  referencesBelowAllOf(root, false, together);
  // What such a definition refers to stands below `allOf` with it: those join the ones that this loop goes through.
  for (const name of together) referencesBelowAllOf(definitions[name], true, together);
  for (const [name, definition] of Object.entries(definitions)) if (!together.has(name)) close(definition);
}

function close(schema: unknown): void {
  if (Array.isArray(schema)) schema.forEach(close);
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return;
  const parts = schema as Record<string, unknown>;
  if (parts['type'] === 'object' && parts['additionalProperties'] === undefined) parts['additionalProperties'] = false;
  Object.values(parts['properties'] ?? {}).forEach(close);
  for (const name of ['items', 'prefixItems', 'additionalProperties', 'anyOf', 'oneOf']) close(parts[name]);
}

/** How a schema refers to itself. */
const ROOT = '#';

/** Adds the names of definitions, as zod refers to them. Definitions are looked at where they are referred to. */
function referencesBelowAllOf(schema: unknown, isBelow: boolean, found: Set<string>): void {
  if (typeof schema !== 'object' || schema === null) return;
  for (const [keyword, value] of Object.entries(schema)) {
    if (isBelow && keyword === '$ref' && typeof value === 'string')
      found.add(value.startsWith(DEFINITIONS) ? decoded(value.slice(DEFINITIONS.length)) : value);
    referencesBelowAllOf(value, isBelow || keyword === 'allOf', found);
  }
}

const DEFINITIONS = '#/$defs/';

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

const require = createRequire(import.meta.url);

/** Loaded when the first schema is compiled: most commands compile none. */
function newAjv(validateSchema: boolean, discriminator: boolean): Ajv2020 {
  const { Ajv2020 } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  const { default: addFormats } = require('ajv-formats') as typeof import('ajv-formats');
  const ajv = new Ajv2020({
    validateSchema,
    discriminator,
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
  // Ajv compares each item with each other.
  ajv.removeKeyword('uniqueItems');
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    errors: false,
    error: { message: 'must NOT have duplicate items' },
    compile: (isAsked: boolean) => (isAsked ? hasUniqueItems : () => true),
  });
  return ajv;
}

function hasUniqueItems(items: readonly unknown[]): boolean {
  return new Set(items.map((item) => canonicalJson(item))).size === items.length;
}

/** Learning what a schema may be takes far longer than compiling one: that is done when a schema comes that nobody knows. */
const kept = new Map<string, Ajv2020>();

/** Checking takes as long as a value has members. */
const MAX_MEMBERS = 100_000;
/** Each member that the schema does not know is a fault of its own. */
const MAX_NAMES = 5_000;

/**
 * Compiles a schema once. `ownProperties` keeps inherited names such as `constructor` from satisfying `required`.
 * Throws `CONFIGURATION` when the schema itself is not valid, or when checking by it could cost too much.
 */
export function compileSchema(schema: JsonSchema): Validator {
  const deepest = deepestValue(schema);
  let validate: ValidateFunction;
  try {
    validate = compiledWithTags(schema) ?? compiled(schema, !knownValid.has(schema), false);
  } catch (error) {
    throw new PawlError(
      'CONFIGURATION',
      `The schema is not valid JSON Schema 2020-12: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
  return (value) => {
    const tooMuch = whyTooMuch(value, deepest);
    if (tooMuch !== undefined) return [{ path: '', message: tooMuch }];
    return validate(value) ? [] : issuesOf(validate.errors ?? []);
  };
}

function whyTooMuch(value: unknown, deepest: number | undefined): string | undefined {
  if (deepest !== undefined && isDeeper(value, deepest))
    return `is nested more than ${deepest} levels deep, which this schema makes too costly to check`;
  let count = 1;
  const pending: unknown[] = [value];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (typeof next !== 'object' || next === null) continue;
    const members = Object.values(next);
    count += members.length;
    if (count > MAX_MEMBERS) return `holds more than ${MAX_MEMBERS} values`;
    if (members.length > MAX_NAMES && !Array.isArray(next)) return `has an object of more than ${MAX_NAMES} members`;
    for (const member of members) if (typeof member === 'object') pending.push(member);
  }
  return undefined;
}

/** Undefined where no tag helps. What is wrong with the schema, and what refers into its unions, shows without tags. */
function compiledWithTags(schema: JsonSchema): ValidateFunction | undefined {
  const tagged = withTags(schema);
  if (tagged === undefined) return undefined;
  try {
    return compiled(tagged, !knownValid.has(schema), true);
  } catch {
    return undefined;
  }
}

function compiled(schema: JsonSchema, isChecked: boolean, hasTags: boolean): ValidateFunction {
  const ajv = ajvFor(schema, isChecked, hasTags);
  try {
    return ajv.compile(schema);
  } finally {
    // What is compiled stays with whoever asked for it. What has an `$id` had an Ajv of its own.
    if (schema['$id'] === undefined) ajv.removeSchema(schema);
  }
}

function ajvFor(schema: JsonSchema, isChecked: boolean, hasTags: boolean): Ajv2020 {
  // Names of its own would be known to the schemas after it.
  if (JSON.stringify(schema).includes('"$id"')) return newAjv(isChecked, hasTags);
  const name = `${isChecked} ${hasTags}`;
  const ajv = kept.get(name) ?? newAjv(isChecked, hasTags);
  kept.set(name, ajv);
  return ajv;
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
  let validate: Validator | undefined;
  return (value) => {
    validate ??= compileSchema(schema);
    return validate(value);
  };
}

export { nearest, shown } from './schema-issues.ts';

/**
 * Parameters as a tool takes them. Throws `INVALID_PARAMS` for what no JSON Schema says, and the tool's schema refuses (zod's `refine`);
 * `TOOL_FAILED` for a schema that is asynchronous.
 */
export function parsedBy<Schema extends z.ZodType>(schema: Schema, params: unknown): z.output<Schema> {
  const parsed = safelyParsedBy(schema, params);
  if (!parsed.success) throw new PawlError('INVALID_PARAMS', undefined, { issues: zodIssues(parsed.error) });
  return parsed.data;
}

function safelyParsedBy<Schema extends z.ZodType>(schema: Schema, params: unknown) {
  try {
    return schema.safeParse(params);
  } catch (error) {
    if (!(error instanceof z.core.$ZodAsyncError)) throw error;
    throw new PawlError(
      'TOOL_FAILED',
      'The tool’s zod schema has an asynchronous refinement or transform, which would run outside of the call’s time limit: `run` is the place for it.',
      { cause: error },
    );
  }
}

/** What a tool gets in the place of parameters that a call leaves out. */
export function defaultsOf(schema: JsonSchema | undefined): Readonly<Record<string, unknown>> {
  const properties = Object.entries((schema?.['properties'] ?? {}) as Readonly<Record<string, unknown>>);
  return Object.fromEntries(
    properties.flatMap(([name, described]) => {
      const byDefault = (described as { readonly default?: unknown } | null)?.default;
      return byDefault === undefined ? [] : [[name, byDefault]];
    }),
  );
}
