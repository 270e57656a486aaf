import { z } from 'zod';

const amount = z.number().min(0).max(Number.MAX_SAFE_INTEGER);

/** The costs of single operations, as a tool's author or the registry declares them. */
export const operationCostsSchema = z
  .array(
    z.strictObject({
      when: z.record(z.string().min(1), z.json()).refine((when) => Object.keys(when).length > 0, {
        error: 'must name at least one parameter',
      }),
      costUnits: amount,
    }),
  )
  .max(256);

/** The cost of calls whose parameters, defaults included, have these values. */
export interface OperationCost {
  readonly when: Readonly<Record<string, unknown>>;
  readonly costUnits: number;
}
