/** JSON Schema 2020-12: generated from zod and checked by Ajv, with errors that help the next attempt to succeed. */
import { createRequire } from 'node:module';
import type { Ajv2020, ValidateFunction } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { type Issue, PawlError, reasonOf } from '../errors/failure.ts';
import { getOrInsert } from '../util/get-or-insert.ts';
import { isObject } from '../util/json/json-types.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { replaceKeywords, withBareEvaluated, withProtoMember } from './ajv-changes.ts';
import { decodeStep } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import { isLinear, linearPattern } from './linear-pattern.ts';
import { type CheckCost, checkCost, tooCostly } from './schema-cost.ts';
import { issuesOf } from './schema-issues.ts';
import { hasQuadraticFormat } from './schema-weight.ts';
import { withTags } from './tagged-union.ts';
import { costsByText, isCostlyCheck, sizeOfValue } from './value-size.ts';
import { zodIssues } from './zod-issues.ts';

/**
 * A schema of any version of zod 4, or of zod/mini. zod's own types accept schemas of their own version alone, and a tool's author may
 * have another one than Pawl.
 */
export interface ZodSchema<Output = unknown, Input = unknown> {
  readonly _zod: { readonly output: Output; readonly input: Input };
}

/** Schemas that zod generated, or that were checked when they were declared. They are not checked again. */
const validSchemas = new WeakSet<JsonSchema>();

/** The schema of the values that callers may send. Unknown properties are refused unless the schema allows them. */
export function inputJsonSchema(schema: ZodSchema): JsonSchema {
  return toJsonSchema(schema, 'input');
}

export function outputJsonSchema(schema: ZodSchema): JsonSchema {
  return toJsonSchema(schema, 'output');
}

/** Finds descriptions of the tool author's own zod as well: copies before 4.2 have a registry each, which only their schemas reach. */
const metadata = {
  get: (schema: z.ZodType) => z.globalRegistry.get(schema) ?? schema.meta?.(),
} as typeof z.globalRegistry;

function toJsonSchema(schema: ZodSchema, io: 'input' | 'output'): JsonSchema {
  requireZod(schema, io);
  try {
    const jsonSchema = convertZod(schema as z.ZodType, { io, override: correctZod });
    delete jsonSchema['$schema'];
    delete jsonSchema['~standard'];
    if (io === 'input') closeObjects(jsonSchema);
    dropFormatPatterns(jsonSchema);
    validSchemas.add(jsonSchema);
    return jsonSchema;
  } catch (error) {
    const faults = zodFaults(schema as z.ZodType, io);
    throw new PawlError(
      'CONFIGURATION',
      `This zod schema has no JSON Schema form: ${faults.length === 0 ? reasonOf(error) : faults.join('; ')}`,
      { cause: error },
    );
  }
}

type ConvertOptions = Parameters<typeof z.toJSONSchema>[1] & { readonly io: 'input' | 'output' };

function convertZod(schema: z.ZodType, options: ConvertOptions): Record<string, unknown> {
  return { ...z.toJSONSchema(schema, { target: 'draft-2020-12', metadata, ...options }) };
}

/** The innermost parts of a schema that have no JSON Schema form, each with its path and with what to write instead. */
function zodFaults(schema: z.ZodType, io: 'input' | 'output'): readonly string[] {
  const parts: { path: readonly (string | number)[]; type: string; reason: string }[] = [];
  const collect = ({ zodSchema, path }: { zodSchema: z.core.$ZodTypes; path: (string | number)[] }): void => {
    try {
      convertZod(zodSchema as unknown as z.ZodType, { io });
    } catch (error) {
      parts.push({ path, type: zodSchema._zod.def.type, reason: reasonOf(error) });
    }
  };
  try {
    convertZod(schema, { io, unrepresentable: 'any', override: collect });
  } catch {
    return [];
  }
  // A schema that stands at several places is seen at its first one, so that what holds it elsewhere seems to be at fault.
  const inner = parts.toReversed().filter(({ type }) => !ZOD_CONTAINERS.includes(type));
  const byPlace = Map.groupBy(inner, ({ path }) => `${io}${zodPath(path)}`);
  return [...byPlace].map(([place, atPlace]) => {
    const advice = atPlace.flatMap(({ type }) => ZOD_ADVICE[type] ?? [])[0];
    return `${place}: ${atPlace[0]?.reason}${advice === undefined ? '' : `; use ${advice}`}`;
  });
}

const ZOD_CONTAINERS = ['object', 'array', 'tuple', 'record', 'union', 'intersection', 'lazy'];

/** The replacements of types that JSON does not have. */
const ZOD_ADVICE: Readonly<Record<string, string>> = {
  date: 'z.iso.datetime(), a text, and make the date in `run`',
  bigint: 'z.int(), or z.string() with its digits',
  map: 'z.record()',
  set: 'z.array()',
  transform: 'a schema of what comes in before the transform, and of what comes out behind it, by .pipe()',
  custom: 'a schema of its JSON value, with .refine()',
  symbol: 'z.enum()',
  undefined: 'z.null(), or .optional() around a type',
  void: 'z.null(), or leave it out',
  nan: 'z.number()',
  function: 'a schema of its result',
  literal: 'a text or a number',
};

/** A place within a value: `.orders[].placed`, `.byName.*`. */
function zodPath([keyword, name, ...rest]: readonly (string | number)[]): string {
  const below = name === undefined ? [] : [name, ...rest];
  switch (keyword) {
    case undefined:
      return '';
    case 'properties':
      return `.${name}${zodPath(rest)}`;
    case 'prefixItems':
      return `[${name}]${zodPath(rest)}`;
    case 'items':
      return `[]${zodPath(below)}`;
    case 'additionalProperties':
      return `.*${zodPath(below)}`;
    case 'patternProperties':
      return `.*${zodPath(rest)}`;
    default:
      // The step before a number, and the number, choose an alternative of the same place.
      return zodPath(below);
  }
}

/**
 * Corrects what zod writes otherwise than it parses. It leaves out the flags of patterns, and writes infinite bounds and empty lists of
 * schemas, which JSON Schema does not have.
 */
function correctZod({ zodSchema, jsonSchema }: { zodSchema: z.core.$ZodTypes; jsonSchema: JsonSchema }): void {
  const parts = jsonSchema as Record<string, unknown>;
  const patterns = new Map(patternsOf(zodSchema).map((pattern) => [pattern.source, withFlags(pattern)]));
  for (const place of [parts, ...(Array.isArray(parts['allOf']) ? parts['allOf'] : [])] as Record<string, unknown>[]) {
    const { pattern } = place;
    if (typeof pattern !== 'string' || !patterns.has(pattern)) continue;
    if (patterns.get(pattern) === undefined) delete place['pattern'];
    else place['pattern'] = patterns.get(pattern);
  }
  for (const keyword of ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'])
    if (parts[keyword] !== undefined && !Number.isFinite(parts[keyword])) delete parts[keyword];
  for (const keyword of ['allOf', 'prefixItems'])
    if (Array.isArray(parts[keyword]) && parts[keyword].length === 0) delete parts[keyword];
  if (Array.isArray(parts['anyOf']) && parts['anyOf'].length === 0) {
    delete parts['anyOf'];
    parts['not'] = {};
  }
}

/** The pattern with its flags within it; undefined for a syntax that JSON Schema does not have, which zod alone checks. */
function withFlags({ source, flags }: RegExp): string | undefined {
  if (flags.includes('v')) return undefined;
  const modifiers = flags.replaceAll(/[^ims]/g, '');
  return modifiers === '' ? source : `(?${modifiers}:${source})`;
}

function patternsOf({ _zod: { def } }: z.core.$ZodTypes): readonly RegExp[] {
  const defs = [def, ...(def.checks ?? []).map((check) => check._zod.def)];
  return defs.flatMap((each) => ('pattern' in each && each.pattern instanceof RegExp ? [each.pattern] : []));
}

export function requireZod(schema: ZodSchema, io: 'input' | 'output'): void {
  const fault = zodFault(schema);
  if (fault !== undefined) throw new PawlError('CONFIGURATION', `\`${io}\` must be a schema of zod 4; ${fault}.`);
}

/** The reason why a value is no schema of zod 4. Callers without types, or with another zod, may pass any value. */
function zodFault(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return `got ${value === undefined ? 'nothing' : typeof value}`;
  if ('_zod' in value) return undefined;
  if ('_def' in value) return 'this one is of zod 3';
  return 'got another object: z.object({ … }) makes one, and defineUntypedTool takes plain JSON Schema';
}

/**
 * Refuses unknown properties at every depth. zod strips them on parse, so that a misspelt optional parameter would be lost in silence.
 * Schemas below `allOf` stay open, because they describe one object together, and so do the definitions that are used there.
 */
function closeObjects(root: Readonly<Record<string, unknown>>): void {
  const definitions: Readonly<Record<string, unknown>> = { ...(root['$defs'] as object | undefined), [ROOT]: root };
  const belowAllOf = new Set<string>();
  referencesBelowAllOf(root, false, belowAllOf);
  // A definition that is used below `allOf` takes its own references with it, and this loop then visits them too.
  for (const name of belowAllOf) referencesBelowAllOf(definitions[name], true, belowAllOf);
  for (const [name, definition] of Object.entries(definitions)) if (!belowAllOf.has(name)) close(definition);
}

function close(schema: unknown): void {
  if (Array.isArray(schema)) schema.forEach(close);
  if (!isObject(schema)) return;
  if (schema['type'] === 'object' && schema['additionalProperties'] === undefined)
    schema['additionalProperties'] = false;
  Object.values(schema['properties'] ?? {}).forEach(close);
  for (const name of ['items', 'prefixItems', 'additionalProperties', 'anyOf', 'oneOf']) close(schema[name]);
}

/** The reference of a schema to itself. */
const ROOT = '#';

/** Adds the names of definitions, as zod refers to them. Definitions are read where they are referred to. */
function referencesBelowAllOf(schema: unknown, isBelow: boolean, found: Set<string>): void {
  if (typeof schema !== 'object' || schema === null) return;
  for (const [keyword, value] of Object.entries(schema)) {
    if (isBelow && keyword === '$ref' && typeof value === 'string')
      found.add(value.startsWith(DEFINITIONS) ? decodeStep(value.slice(DEFINITIONS.length)) : value);
    referencesBelowAllOf(value, isBelow || keyword === 'allOf', found);
  }
}

const DEFINITIONS = '#/$defs/';

/**
 * Removes patterns without a linear form that zod writes beside some formats. The format itself remains, and zod checks its own
 * pattern again when it parses the parameters.
 */
function dropFormatPatterns(schema: unknown): void {
  if (typeof schema !== 'object' || schema === null) return;
  const parts = schema as Record<string, unknown>;
  if (typeof parts['format'] === 'string' && typeof parts['pattern'] === 'string' && !isLinear(parts['pattern']))
    delete parts['pattern'];
  Object.values(parts).forEach(dropFormatPatterns);
}

/** Ajv's option for another regular expression engine. Ajv reads `code` only for validators written as source, which Pawl has none of. */
const LINEAR_ENGINE = Object.assign((pattern: string) => linearPattern(pattern), { code: 'linearPattern' });

const require = createRequire(import.meta.url);

/** Ajv is loaded when the first schema is compiled, because most commands compile none. */
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
    // Ajv would otherwise copy a definition of any size to each reference.
    inlineRefs: 20,
    // 19.99 is a multiple of 0.01, although their quotient is not whole in binary.
    multipleOfPrecision: 6,
    // Shortening the code takes a time that is quadratic in its length, and makes checks no faster.
    code: { regExp: LINEAR_ENGINE, process: withBareEvaluated, optimize: false },
    // Ajv would warn of unknown formats (Rust's `uint32`), which restrict nothing.
    logger: false,
  });
  // Its keywords, such as `formatMinimum`, are not of JSON Schema, and refuse schemas that use the names otherwise.
  addFormats(ajv, { keywords: false });
  replaceKeywords(ajv, discriminator);
  return ajv;
}

/** One Ajv for each set of options. Creating one takes far longer than compiling a schema. */
const ajvByOptions = new Map<string, Ajv2020>();

/** A schema that is ready for checks in this thread. */
export interface CompiledSchema {
  /** Checks a value, however long it takes. */
  check(value: unknown): readonly Issue[];
  /** Checks a value; undefined where that could hold the event loop. */
  checkNow(value: unknown): readonly Issue[] | undefined;
}

/**
 * Compiles a schema once. `ownProperties` keeps inherited names such as `constructor` from satisfying `required`.
 * Throws `CONFIGURATION` when the schema itself is not valid, or when checking by it could cost too much.
 */
export function compileSchema(schema: JsonSchema): CompiledSchema['check'] {
  return compiledSchema(schema).check;
}

/** Like `compileSchema`, for values whose check may move to another thread. */
export function compiledSchema(schema: JsonSchema): CompiledSchema {
  // Ajv answers such a check with a promise, which looks like success.
  if (schema['$async'] !== undefined)
    throw new PawlError('CONFIGURATION', 'The schema has the keyword $async: checks by it are never asynchronous.');
  const cost = checkCost(schema);
  const isQuadratic = hasQuadraticFormat(schema);
  let validate: ValidateFunction;
  try {
    const isChecked = !validSchemas.has(schema);
    const named = withProtoMember(schema);
    validate = compileWithTags(named, isChecked) ?? compileWithAjv(named, isChecked, false);
  } catch (error) {
    if (error instanceof RangeError) throw tooCostly('it is nested too deep');
    throw new PawlError('CONFIGURATION', `The schema is not valid JSON Schema 2020-12: ${reasonOf(error)}`, {
      cause: error,
    });
  }
  const issues = (value: unknown) => (validate(value) ? [] : issuesOf(validate.errors ?? []));
  return {
    check: (value) => sizeIssues(value, cost) ?? issues(value),
    checkNow: (value) => {
      const size = sizeOfValue(value, { maxDepth: cost.maxDepth, texts: costsByText(cost) });
      if (typeof size === 'string') return [{ path: '', message: size }];
      return isCostlyCheck(size, cost, isQuadratic) ? undefined : issues(value);
    },
  };
}

function sizeIssues(value: unknown, { maxDepth }: CheckCost): readonly Issue[] | undefined {
  const size = sizeOfValue(value, { maxDepth, texts: false });
  return typeof size === 'string' ? [{ path: '', message: size }] : undefined;
}

/** Undefined where tags cannot be used. The caller then compiles without tags, which reports faults and allows references into unions. */
function compileWithTags(schema: JsonSchema, isChecked: boolean): ValidateFunction | undefined {
  const tagged = withTags(schema);
  return tagged && orUndefined(() => compileWithAjv(tagged, isChecked, true));
}

function compileWithAjv(schema: JsonSchema, isChecked: boolean, hasTags: boolean): ValidateFunction {
  const ajv = ajvFor(schema, isChecked, hasTags);
  try {
    return ajv.compile(schema);
  } finally {
    // The caller holds the compiled schema, so Ajv's cache need not. A schema with an `$id` has an Ajv of its own.
    if (schema['$id'] === undefined) ajv.removeSchema(schema);
  }
}

function ajvFor(schema: JsonSchema, isChecked: boolean, hasTags: boolean): Ajv2020 {
  // A shared Ajv would keep the schema's names for the schemas after it.
  if (JSON.stringify(schema).includes('"$id"')) return newAjv(isChecked, hasTags);
  return getOrInsert(ajvByOptions, `${isChecked} ${hasTags}`, () => newAjv(isChecked, hasTags));
}

/** Loads Ajv, and runs its code once. A process that does so while it is idle spares its first call that time. */
export function loadAjv(): void {
  const schema = { type: 'object', properties: { text: { type: 'string' } } };
  // An error shows when a tool's schema is compiled.
  if (ajvByOptions.size === 0) orUndefined(() => compileWithAjv(schema, false, false));
}

/** Marks a schema that was checked before, so that it is not checked again. */
export function markValid(schema: JsonSchema): void {
  validSchemas.add(schema);
}

export function isMarkedValid(schema: JsonSchema): boolean {
  return validSchemas.has(schema);
}

/**
 * Parses parameters for a tool. Throws `INVALID_PARAMS` where a rule fails that JSON Schema cannot express (zod's `refine`), and
 * `TOOL_FAILED` for an asynchronous schema.
 */
export function parseWith<Schema extends ZodSchema>(schema: Schema, params: unknown): z.output<Schema> {
  const parsed = safeParseWith(schema as unknown as z.ZodType<z.output<Schema>>, params);
  if (!parsed.success) throw new PawlError('INVALID_PARAMS', undefined, { issues: zodIssues(parsed.error) });
  return parsed.data;
}

function safeParseWith<Schema extends z.ZodType>(schema: Schema, params: unknown) {
  try {
    return schema.safeParse(params);
  } catch (error) {
    if (!isAsync(schema, params, error)) throw new PawlError('INVALID_PARAMS', reasonOf(error), { cause: error });
    throw new PawlError(
      'TOOL_FAILED',
      'The tool’s zod schema has an asynchronous refinement or transform, which would run outside of the call’s time limit: `run` is the place for it.',
      { cause: error },
    );
  }
}

/** zod's generated code fails in other ways where it meets a promise; its interpreter tells. */
function isAsync(schema: z.ZodType, params: unknown, error: unknown): boolean {
  if (!(error instanceof TypeError)) return isAsyncError(error);
  try {
    schema.safeParse(params, { jitless: true });
    return false;
  } catch (again) {
    return isAsyncError(again);
  }
}

/** By name: the tool author's zod may be another copy, with a class of its own. */
function isAsyncError(error: unknown): boolean {
  return (error as Error | null)?.constructor?.name === z.core.$ZodAsyncError.name;
}
