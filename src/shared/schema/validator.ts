/** Validators that never block the event loop: large schemas and values are compiled and checked in a separate thread. */
import { type Issue, PawlError } from '../errors/failure.ts';
import { LimitedMap } from '../util/limited-map.ts';
import type { JsonSchema } from './json-schema.ts';
import { isLinear } from './linear-pattern.ts';
import { type CompiledSchema, compiledSchema, isMarkedValid, markValid } from './schema.ts';
import { type SanitizedSchema, sanitizeSchema } from './schema-sanitize.ts';
import { checkInThread, sanitizeInThread, withoutNullsInThread } from './schema-thread.ts';
import { isLargeSchema } from './schema-weight.ts';
import { holdsNull, withoutNulls } from './without-nulls.ts';

/** The issues of a value: at once, or later where the check takes place in a thread. Throws `CONFIGURATION` for a wrong schema. */
export type Validator = (value: unknown) => readonly Issue[] | Promise<readonly Issue[]>;

/**
 * A value in the form that its schema accepts, or its issues. Models and programs send null for optional members that were presented as
 * required; such nulls are removed, if the value is valid without them. `firstCheck`: the validator's answer, where the caller has it.
 */
export async function fitToSchema(
  schema: JsonSchema,
  validate: Validator,
  value: unknown,
  firstCheck = validate(value),
): Promise<{ readonly value: unknown; readonly issues: readonly Issue[] }> {
  const issues = await firstCheck;
  if (issues.length === 0 || !holdsNull(value)) return { value, issues };
  const isCostly = firstCheck instanceof Promise;
  const withoutNull = isCostly ? await withoutNullsInThread(schema, value) : withoutNulls(schema, value);
  if (withoutNull === value || (await validate(withoutNull)).length > 0) return { value, issues };
  return { value: withoutNull, issues: [] };
}

/** Compiles a schema at its first use. A small schema that may have a fault is compiled at once, so that the fault shows. */
export function validatorOf(schema: JsonSchema): Validator {
  if (isLargeSchema(schema)) return (value) => checkInThread(schema, value);
  return isMarkedValid(schema) && hasLinearPatterns(schema) ? lazyValidator(schema) : eagerValidator(schema);
}

/** A `pattern` that is no text is a parameter called `pattern`. */
function hasLinearPatterns(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return true;
  const { pattern } = schema as { readonly pattern?: unknown };
  return (typeof pattern !== 'string' || isLinear(pattern)) && Object.values(schema).every(hasLinearPatterns);
}

function eagerValidator(schema: JsonSchema): Validator {
  const compiled = compiledSchema(schema);
  return (value) => compiled.checkNow(value) ?? checkInThread(schema, value);
}

/** Compiles a schema that was checked before at its first use, so that thousands of declared tools cost nothing until then. */
export function lazyValidator(schema: JsonSchema): Validator {
  markValid(schema);
  let isLarge: boolean | undefined;
  let compiled: CompiledSchema | undefined;
  return (value) => {
    isLarge ??= isLargeSchema(schema);
    if (isLarge) return checkInThread(schema, value);
    compiled ??= compiledSchema(schema);
    return compiled.checkNow(value) ?? checkInThread(schema, value);
  };
}

const MAX_CACHED = 100;
const cachedValidators = new LimitedMap<string, Validator>(MAX_CACHED);

/** The validator of a schema that each request reads again, such as a tool's output schema. The last used ones are kept. */
export function cachedValidator(schema: JsonSchema, make = validatorOf): Validator {
  if (isLargeSchema(schema)) return make(schema);
  const text = JSON.stringify(schema);
  const validator = cachedValidators.get(text) ?? make(schema);
  cachedValidators.set(text, validator);
  return validator;
}

/** A bound, because processes hold the text of each declared schema, and write it into lists of tools. */
const MAX_SCHEMA_LENGTH = 1_048_576;

/**
 * Repairs a foreign schema and compiles it once. Throws `CONFIGURATION` for a schema that is not valid, is too costly, or takes too long.
 */
export async function usableSchema(foreign: JsonSchema, of: 'parameters' | 'output'): Promise<SanitizedSchema> {
  const characters = JSON.stringify(foreign).length;
  if (characters > MAX_SCHEMA_LENGTH)
    throw new PawlError(
      'CONFIGURATION',
      `The schema is too large: it has ${characters} characters of JSON; at most ${MAX_SCHEMA_LENGTH} are allowed.`,
    );
  if (isLargeSchema(foreign)) return sanitizeInThread(foreign, of);
  const sanitized = sanitizeSchema(foreign, of);
  compiledSchema(sanitized.schema);
  return sanitized;
}
