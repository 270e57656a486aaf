import type { z } from 'zod';
import type { Issue } from '../errors/failure.ts';

/** The issues of a zod error, each with its path: `budget.costs.0.costUnits`. */
export function zodIssues(error: z.ZodError): Issue[] {
  return error.issues.map((issue) => ({ path: issue.path.map(String).join('.'), message: issue.message }));
}
