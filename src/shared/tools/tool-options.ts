/** Checks the options of a definition for authors without TypeScript, and for models that write tools. */
import { z } from 'zod';
import { circuitOverridesSchema } from '../circuits/circuit-policy.ts';
import { PawlError } from '../errors/failure.ts';
import { retryOverridesSchema } from '../retries/retry.ts';
import { rephraseUnknown } from '../schema/known-members.ts';
import { WITHOUT_RECEIVED } from '../schema/zod-issues.ts';
import { didYouMean } from '../util/text/nearest.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { operationCostsSchema } from './operation-cost.ts';
import type { ToolOptions } from './tool.ts';

const callable = z.custom((value) => typeof value === 'function', 'must be a function').optional();
const flag = z.boolean('must be true or false').optional();
const positive = numberThat('a number above 0', (value) => value > 0);
const bytes = numberThat('a whole number above 0', (value) => Number.isSafeInteger(value) && value > 0);
const count = numberThat('a whole number from 0 on', (value) => Number.isSafeInteger(value) && value >= 0);
const amount = numberThat('a finite number from 0 on', (value) => value >= 0 && value <= Number.MAX_SAFE_INTEGER);
/** The members of a tool's annotations. */
export const annotationShape = {
  readOnlyHint: z.boolean(),
  destructiveHint: z.boolean(),
  idempotentHint: z.boolean(),
  openWorldHint: z.boolean(),
  editHint: z.boolean(),
  title: z.string(),
  taskSupport: z.enum(['forbidden', 'optional', 'required']),
};
/** An option that `checkDefinition` checks. */
const checkedElsewhere = z.unknown().optional();

function numberThat(expected: string, isValid: (value: number) => boolean) {
  return z.custom<number>((value) => typeof value === 'number' && isValid(value), `must be ${expected}`).optional();
}

const options = {
  version: checkedElsewhere,
  description: checkedElsewhere,
  tier: checkedElsewhere,
  namespace: checkedElsewhere,
  title: z.string().optional(),
  icon: z.looseObject({ src: checkedElsewhere, mimeType: z.string().optional() }).optional(),
  examples: z
    .array(z.strictObject({ params: z.record(z.string(), z.unknown()), description: z.string().optional() }))
    .optional(),
  effects: checkedElsewhere,
  // Annotations of MCP servers may have further members.
  annotations: z.looseObject(annotationShape).partial().optional(),
  output: checkedElsewhere,
  needs: z.array(z.unknown(), 'must be a list').optional(),
  parallel: flag,
  timeoutMs: positive,
  maxResultBytes: bytes,
  maxOutputBytes: bytes,
  budget: z
    .strictObject({
      costUnits: amount,
      costs: operationCostsSchema.optional(),
      maxCallsPerTurn: count,
      maxCallsPerSession: count,
    })
    .optional(),
  trustClass: checkedElsewhere,
  voters: checkedElsewhere,
  retry: retryOverridesSchema.optional(),
  circuit: circuitOverridesSchema.optional(),
  run: checkedElsewhere,
  probe: callable,
  compensate: callable,
  normalise: callable,
  ready: callable,
  preview: callable,
  isMutating: callable,
  resource: callable,
} satisfies Record<keyof ToolOptions<unknown, unknown>, z.ZodType>;

/** Members of a tool that is spread into the definition of another one. */
const TOOL_MEMBERS = ['inputSchema', 'outputSchema', 'variant', 'parse'];

/**
 * Makes a check that throws `CONFIGURATION` for an unknown option and for a value of another type. `extraOptions`: those of one kind of
 * definition alone.
 */
export function optionsCheck(extraOptions: readonly string[]): (spec: object) => void {
  const names = [...extraOptions, ...Object.keys(options)];
  const schema = z.strictObject({
    ...Object.fromEntries([...extraOptions, ...TOOL_MEMBERS].map((name) => [name, checkedElsewhere])),
    ...options,
  });
  return (spec) => {
    if (typeof spec !== 'object' || spec === null)
      throw new PawlError('CONFIGURATION', `A tool is defined by an object of options; got ${quoteValue(spec)}.`);
    const { issues = [] } = schema.safeParse(spec, WITHOUT_RECEIVED).error ?? {};
    if (issues.length === 0) return;
    const { name } = spec as { readonly name?: unknown };
    const faults = issues.map((issue) =>
      issue.code === 'unrecognized_keys' ? unknownOption(issue, names) : describeIssue(issue, spec),
    );
    throw new PawlError('CONFIGURATION', `Tool ${quoteValue(name)}: ${faults.join(' ')}`);
  };
}

function unknownOption({ path, keys, message }: z.core.$ZodIssueUnrecognizedKeys, names: readonly string[]): string {
  const [unknown = ''] = keys;
  if (path.length > 0)
    return `${[...path, unknown].map(String).join('.')} ${rephraseUnknown(message, 'is not an option')}`;
  return `${unknown} is not an option; ${didYouMean(unknown, names) || `these are: ${names.join(', ')}.`}`;
}

function describeIssue({ path, message }: z.core.$ZodIssue, spec: object): string {
  const value = path.reduce<unknown>((node, key) => (node as Record<PropertyKey, unknown>)[key], spec);
  return `${path.map(String).join('.')}${/^(?:must|is) /.test(message) ? ' ' : ': '}${message}; got ${quoteValue(value)}.`;
}
