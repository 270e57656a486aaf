import { z } from 'zod';
import type { Issue } from '../errors/failure.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { parameterFault } from '../schema/known-members.ts';
import { defined } from '../util/json/omit-undefined.ts';

export const costUnitsSchema = z.number().min(0).max(Number.MAX_SAFE_INTEGER);

/** The costs of single operations, as a tool's author or the registry declares them. */
export const operationCostsSchema = z
  .array(
    z.strictObject({
      when: z.record(z.string().min(1), z.json()).refine((when) => Object.keys(when).length > 0, {
        error: 'must name at least one parameter',
      }),
      costUnits: costUnitsSchema,
    }),
  )
  .max(256);

/** The cost of calls whose parameters, defaults included, have these values. */
export interface OperationCost {
  readonly when: Readonly<Record<string, unknown>>;
  readonly costUnits: number;
}

interface CostFault {
  readonly path: string;
  /** Completes the sentence "it must be …". */
  readonly expected: string;
  readonly actual: unknown;
}

/** The schema of conditions: that of the parameters, of which none is required. Undefined where it has nothing to say. */
export function conditionSchema(inputSchema: JsonSchema): JsonSchema | undefined {
  const { properties, $defs, definitions, oneOf, anyOf = oneOf } = inputSchema;
  const parts = (Array.isArray(anyOf) ? anyOf : [{}]).map((part) => withPropertiesAlone(part, properties));
  if (parts.includes(undefined)) return undefined;
  return defined({ $defs, definitions, ...(parts.length === 1 ? parts[0] : { anyOf: parts }) });
}

function withPropertiesAlone(alternative: unknown, shared: unknown): JsonSchema | undefined {
  const { properties, additionalProperties } = (alternative ?? {}) as JsonSchema;
  if (properties === undefined && shared === undefined) return undefined;
  return defined({ properties: { ...(shared as object), ...(properties as object) }, additionalProperties });
}

/**
 * The first condition on a parameter, or on a value of one, that no call can have: it would never hold. `issues`: those of each condition
 * by the schema of conditions.
 */
export function costFault(
  costs: readonly OperationCost[],
  inputSchema: JsonSchema,
  issues: readonly (readonly Issue[])[],
): CostFault | undefined {
  for (const [index, { when }] of costs.entries()) {
    const path = `budget.costs[${index}].when`;
    for (const name of Object.keys(when)) {
      const expected = parameterFault(name, inputSchema);
      if (expected !== undefined) return { path, expected: `about ${expected}`, actual: name };
    }
    const [issue] = issues[index] ?? [];
    if (issue !== undefined)
      return {
        path: [path, issue.path].filter(Boolean).join('.'),
        expected: 'as the schema says',
        actual: issue.message,
      };
  }
  return undefined;
}
