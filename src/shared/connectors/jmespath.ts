/** JMESPath expressions, with which a declaration selects parts of an answer. */
import { compile, search } from '@jmespath-community/jmespath';
import { PawlError } from '../errors/failure.ts';

/** The reason why a text is not an expression; undefined when it is one. */
export function expressionFault(expression: string): string | undefined {
  try {
    compile(expression);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Throws `RESULT_INVALID` when the expression does not work on the value. */
export function evaluateExpression(expression: string, value: unknown): unknown {
  try {
    return search((value ?? null) as Parameters<typeof search>[0], expression);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new PawlError(
      'RESULT_INVALID',
      `The expression ${JSON.stringify(expression)} does not fit what the service answered: ${why}`,
      {
        cause: error,
      },
    );
  }
}

export function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || value === '';
}
