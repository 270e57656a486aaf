/** Checks the options of a definition for authors without TypeScript, and for models that write tools. */
import { z } from 'zod';
import { circuitOverridesSchema } from '../circuits/circuit-policy.ts';
import { PawlError } from '../errors/failure.ts';
import { retryOverridesSchema } from '../retries/retry.ts';
import { renamedUnknown } from '../schema/known-members.ts';
import { nearest, quoteValue } from '../schema/schema-issues.ts';
import { EXPECTED } from '../schema/zod-issues.ts';
import { operationCostsSchema } from './operation-cost.ts';
import type { ToolOptions } from './tool.ts';

const callable = z.custom((value) => typeof value === 'function', 'must be a function').optional();
const flag = z.boolean('must be true or false').optional();
const positive = above('a number above 0', (value) => value > 0);
const bytes = above('a whole number above 0', (value) => Number.isSafeInteger(value) && value > 0);
const count = above('a whole number from 0 on', (value) => Number.isSafeInteger(value) && value >= 0);
const amount = above('a finite number from 0 on', (value) => value >= 0 && value <= Number.MAX_SAFE_INTEGER);
/** An option that `makeTool` checks. */
const later = z.unknown().optional();

function above(expected: string, holds: (value: number) => boolean) {
  return z.custom<number>((value) => typeof value === 'number' && holds(value), `must be ${expected}`).optional();
}

const options = {
  version: later,
  description: later,
  tier: later,
  namespace: later,
  title: z.string().optional(),
  icon: z.looseObject({ src: later, mimeType: z.string().optional() }).optional(),
  examples: z
    .array(z.strictObject({ params: z.record(z.string(), z.unknown()), description: z.string().optional() }))
    .optional(),
  effects: later,
  // Annotations of MCP servers may have further members.
  annotations: z
    .looseObject({
      readOnlyHint: flag,
      destructiveHint: flag,
      idempotentHint: flag,
      openWorldHint: flag,
      editHint: flag,
      title: z.string().optional(),
      taskSupport: z.enum(['forbidden', 'optional', 'required']).optional(),
    })
    .optional(),
  output: later,
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
  trustClass: later,
  voters: later,
  retry: retryOverridesSchema.optional(),
  circuit: circuitOverridesSchema.optional(),
  run: later,
  probe: callable,
  compensate: callable,
  normalise: callable,
  ready: callable,
  preview: callable,
  isMutating: callable,
  resource: callable,
} satisfies Record<keyof ToolOptions<unknown, unknown>, z.ZodType>;

/** Members of a tool that is spread into the definition of another one. */
const OF_A_TOOL = ['inputSchema', 'outputSchema', 'variant', 'parse'];

/**
 * Makes a check that throws `CONFIGURATION` for an unknown option and for a value of another type. `own`: the options beside those that
 * every kind of definition has.
 */
export function optionsCheck(own: readonly string[]): (spec: object) => void {
  const names = [...own, ...Object.keys(options)];
  const schema = z.strictObject({
    ...Object.fromEntries([...own, ...OF_A_TOOL].map((name) => [name, later])),
    ...options,
  });
  return (spec) => {
    if (typeof spec !== 'object' || spec === null)
      throw new PawlError('CONFIGURATION', `A tool is defined by an object of options; got ${quoteValue(spec)}.`);
    const issue = schema.safeParse(spec, EXPECTED).error?.issues[0];
    if (issue === undefined) return;
    const { name } = spec as { readonly name?: unknown };
    const fault = issue.code === 'unrecognized_keys' ? unknownOption(issue, names) : wrong(issue, spec);
    throw new PawlError('CONFIGURATION', `Tool ${quoteValue(name)}: ${fault}`);
  };
}

function unknownOption({ path, keys, message }: z.core.$ZodIssueUnrecognizedKeys, names: readonly string[]): string {
  const [unknown = ''] = keys;
  if (path.length > 0)
    return `${[...path, unknown].map(String).join('.')} ${renamedUnknown(message, 'is not an option')}`;
  const near = nearest(unknown, names);
  return `${unknown} is not an option; ${near.length === 0 ? `these are: ${names.join(', ')}.` : `did you mean ${near.join(' or ')}?`}`;
}

function wrong({ path, message }: z.core.$ZodIssue, spec: object): string {
  const value = path.reduce<unknown>((at, step) => (at as Record<PropertyKey, unknown>)[step], spec);
  return `${path.map(String).join('.')}${/^(?:must|is) /.test(message) ? ' ' : ': '}${message}; got ${quoteValue(value)}.`;
}
