/**
 * Asks a model again, at most twice, when its arguments are refused. It gets the invalid fields, the values, the rules and the schema.
 * This loop is separate from the retries of failed attempts, and has its own counter: no attempt has run.
 */
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { Issue } from '../../shared/errors/failure.ts';
import { repairParams } from '../../shared/model-tools/repair-params.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';

export const MAX_REASKS = 2;

type Parameters = Readonly<Record<string, unknown>>;

/** The text and data that a model receives; `message` has all of it as text. */
export interface Reask {
  readonly toolName: string;
  /** The number of this request to the model, from 1. */
  readonly reask: number;
  readonly params: Parameters;
  readonly issues: readonly (Issue & { readonly schema?: unknown })[];
  readonly schema: JsonSchema;
  readonly message: string;
}

export interface ReaskOptions {
  /** The corrected arguments, or undefined to give up. */
  ask(problem: Reask): Promise<Parameters | undefined> | Parameters | undefined;
  /** Repairs arguments before the model is asked. Default: `repairParams`, for unambiguous slips; false repairs nothing. */
  readonly repair?: ((problem: Omit<Reask, 'message'>) => Parameters | undefined) | false;
  /** Default 2. */
  readonly maxReasks?: number;
}

interface ValidationRetryDeps {
  readonly toolName: string;
  readonly schema: JsonSchema;
  /** `round` is the number of the call, from 0: each round needs its own idempotency key. */
  call(params: Parameters, round: number): Promise<ToolResultEnvelope>;
}

/** Returns the last call's result, and how many times the model was asked again. */
export async function callAgainWhenInvalid(
  params: Parameters,
  { ask, repair, maxReasks = MAX_REASKS }: ReaskOptions,
  { toolName, schema, call }: ValidationRetryDeps,
): Promise<{ readonly result: ToolResultEnvelope; readonly reasks: number }> {
  let current = params;
  let round = 0;
  let result = await call(current, round);
  for (let reasks = 0; ; reasks += 1) {
    if (result.error?.code !== 'INVALID_PARAMS') return { result, reasks };
    const problem = () => problemOf({ toolName, schema }, current, result, reasks + 1);
    const repaired = repair === false ? undefined : (repair?.(problem()) ?? repairParams(schema, current));
    if (repaired !== undefined && JSON.stringify(repaired) !== JSON.stringify(current)) {
      current = repaired;
      round += 1;
      result = await call(current, round);
      if (result.error?.code !== 'INVALID_PARAMS') return { result, reasks };
    }
    if (reasks === maxReasks) return { result, reasks };
    const corrected = await ask(problem());
    if (corrected === undefined) return { result, reasks };
    current = corrected;
    round += 1;
    result = await call(current, round);
  }
}

function problemOf(
  { toolName, schema }: { readonly toolName: string; readonly schema: JsonSchema },
  params: Parameters,
  result: ToolResultEnvelope,
  reask: number,
): Reask {
  const issues = (result.error?.issues ?? []).map((issue): Issue & { readonly schema?: unknown } => {
    const part = schemaAt(schema, issue.path);
    return part === undefined ? issue : { ...issue, schema: part };
  });
  const lines = issues.map(
    ({ path, message, schema: part }) =>
      `- ${path === '' ? 'the arguments' : path}: ${message}${part === undefined ? '' : `; schema: ${JSON.stringify(part)}`}`,
  );
  const message = [
    `The arguments of ${toolName} were refused and nothing ran: ${result.error?.message ?? ''}`,
    ...lines,
    `The whole schema: ${JSON.stringify(schema)}`,
    'Call it again with corrected arguments.',
  ].join('\n');
  return { toolName, reask, params, issues, schema, message };
}

/** The part of a schema that describes a path such as `where.city` or `items.0`. */
function schemaAt(schema: JsonSchema, path: string): unknown {
  let part: unknown = schema;
  for (const name of path === '' ? [] : path.split('.')) {
    const { properties, items } = (part ?? {}) as { readonly properties?: Parameters; readonly items?: unknown };
    part = properties !== undefined && Object.hasOwn(properties, name) ? properties[name] : items;
    if (part === undefined) return undefined;
  }
  return path === '' ? undefined : part;
}
