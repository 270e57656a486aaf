/**
 * Merges the sources of settings and validates the result. The order of precedence is option, environment, file, default. A wrong value
 * stops the start, with its path, the value and what is allowed.
 */
import type { z } from 'zod';
import { type Issue, PawlError } from '../errors/failure.ts';
import { rephraseUnknown } from '../schema/known-members.ts';
import { leafIssues, WITHOUT_RECEIVED } from '../schema/zod-issues.ts';
import { TIERS } from '../tools/tool.ts';
import { isObject } from '../util/json/json-types.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { type Settings, type SettingsInput, settingsSchema } from './config.ts';
import { type Environment, isSecret, VARIABLES, variableText } from './variables.ts';

type Values = Record<string, unknown>;

const QUOTED = /^(["'`]).*\1$/s;

/** Settings from options, the environment and a file. Throws `CONFIGURATION` with every fault. */
export function resolveSettings(sources: {
  readonly options?: Partial<SettingsInput>;
  readonly environment?: Environment;
  readonly file?: unknown;
}): Settings {
  const { environment = {} } = sources;
  const merged: Values = {};
  if (sources.file !== undefined) mergeInto(merged, fileSettings(sources.file));
  const variables = mergeVariables(merged, environment);
  const options = Object.fromEntries(Object.entries(sources.options ?? {}).filter(([, value]) => value !== undefined));
  for (const { path } of VARIABLES) if (valueAt(options, path) !== undefined) variables.delete(path.join('.'));
  mergeInto(merged, options);
  const parsed = settingsSchema.safeParse(merged, WITHOUT_RECEIVED);
  const quoted = [...variables].filter(([, name]) => QUOTED.test(variableText(environment, name) ?? ''));
  if (parsed.success && quoted.length === 0) return parsed.data;
  const faults = (parsed.error?.issues ?? [])
    .flatMap(leafIssues)
    .flatMap((issue) => issuesOf(issue, merged, variables));
  throw invalidSettings([
    ...quoted.map(([path, name]) => ({
      path: `${name} (${path})`,
      message: 'has quotes around its value, which `docker run --env-file` and some other tools keep: leave them out',
    })),
    ...faults.filter(({ path }) => !quoted.some(([, name]) => path.startsWith(`${name} (`))),
  ]);
}

function fileSettings(file: unknown): Values {
  if (!isObject(file))
    throw new PawlError('CONFIGURATION', `pawl.config must hold an object of settings; got ${kindOf(file)}.`);
  // A promise would count as an empty object, so that, for one, no API tokens would be required.
  if (file instanceof Promise)
    throw new PawlError(
      'CONFIGURATION',
      'pawl.config must hold an object, not a promise: write export default await ….',
    );
  return file;
}

function kindOf(value: unknown): string {
  return typeof value === 'function' ? 'a function: export what it returns' : quoteValue(value);
}

/** Merges the variables into the settings. Returns the name of the variable behind each setting that one sets. */
function mergeVariables(merged: Values, environment: Environment): Map<string, string> {
  const variables = new Map<string, string>();
  for (const { name, path, read } of VARIABLES) {
    const text = variableText(environment, name);
    if (text === undefined) continue;
    variables.set(path.join('.'), name);
    mergeInto(merged, path.reduceRight<unknown>((value, key) => ({ [key]: value }), read(text)) as Values);
  }
  return variables;
}

/** A hint for a name that is written as a group, such as `http.port` for `httpPort`. */
function nestedName(path: readonly PropertyKey[]): string | undefined {
  const [first = '', ...others] = path.map(String);
  const name = first + others.map((each) => each.charAt(0).toUpperCase() + each.slice(1)).join('');
  const isKnown = others.length > 0 && Object.hasOwn(settingsSchema.shape, name);
  return isKnown ? `is not a setting (did you mean ${name}?)` : undefined;
}

/** A fault of the schema, with the path, or the variable, of the setting and the value that came. Secrets are not shown. */
function issuesOf(issue: z.core.$ZodIssue, merged: Values, variables: ReadonlyMap<string, string>): readonly Issue[] {
  const path = issue.path.map(String).join('.');
  const variable = [...variables].find(([setting]) => path === setting || path.startsWith(`${setting}.`))?.[1];
  // Variables with names in them name tiers. Where one is missing, a part of the value stands in its place.
  if (issue.code === 'unrecognized_keys' && variable !== undefined)
    return issue.keys.map((key) => ({
      path: `${variable} (${path})`,
      message: `each entry must begin with a tier and "=" (${TIERS.join(', ')}); got ${isSecret(path) ? 'a value that is not shown' : quoteValue(key)}`,
    }));
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map((key) => ({
      path: [...issue.path, key].map(String).join('.'),
      message: nestedName([...issue.path, key]) ?? rephraseUnknown(issue.message, 'is not a setting'),
    }));
  const value = valueAt(merged, issue.path);
  const shown = value === undefined ? 'nothing' : quoteValue(value);
  return [
    {
      path: variable === undefined ? path : `${variable} (${path})`,
      message: `${issue.message}; got ${isSecret(path) ? 'a value that is not shown' : shown}`,
    },
  ];
}

function invalidSettings(issues: readonly Issue[]): PawlError {
  return new PawlError(
    'CONFIGURATION',
    `The configuration is not usable: ${issues.map((issue) => `${issue.path}: ${issue.message}`).join('; ')}`,
    { issues },
  );
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (node, key) =>
      typeof node === 'object' && node !== null ? (node as Record<PropertyKey, unknown>)[key] : undefined,
    value,
  );
}

/** Merges objects deeply; lists and values are replaced. */
function mergeInto(target: Values, source: Readonly<Record<string, unknown>>): void {
  for (const [key, value] of Object.entries(source)) {
    const existing = target[key];
    if (isObject(value) && isObject(existing)) {
      const merged = { ...existing };
      mergeInto(merged, value);
      target[key] = merged;
    } else target[key] = value;
  }
}
