import { z } from 'zod';
import type { JsonSchema } from '../schema/json-schema.ts';
import { parameterFault } from '../schema/known-members.ts';
import { compileSchema } from '../schema/schema.ts';
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

export interface CostFault {
  readonly path: string;
  /** Completes the sentence "it must be …". */
  readonly expected: string;
  readonly actual: unknown;
}

/** The first condition on a parameter, or on a value of one, that no call can have: it would never hold. */
export function costFault(costs: readonly OperationCost[] = [], inputSchema: JsonSchema): CostFault | undefined {
  const { properties, $defs, definitions } = inputSchema;
  if (costs.length === 0 || properties === undefined) return undefined;
  const validate = compileSchema(defined({ $defs, definitions, properties }));
  for (const [index, { when }] of costs.entries()) {
    const path = `budget.costs[${index}].when`;
    for (const name of Object.keys(when)) {
      const expected = parameterFault(name, inputSchema);
      if (expected !== undefined) return { path, expected: `about ${expected}`, actual: name };
    }
    const [issue] = validate(when);
    if (issue !== undefined)
      return { path: `${path}.${issue.path}`, expected: 'as the schema says', actual: issue.message };
  }
  return undefined;
}
