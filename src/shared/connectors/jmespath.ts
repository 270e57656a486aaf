/** JMESPath expressions, with which a declaration selects parts of a response. */
import { createRequire } from 'node:module';
import { PawlError, reasonOf } from '../errors/failure.ts';

type Jmespath = typeof import('@jmespath-community/jmespath');

const require = createRequire(import.meta.url);

/** Loaded with the first expression, because most processes have none. */
function jmespath(): Jmespath {
  return require('@jmespath-community/jmespath') as Jmespath;
}

/** The reason why a text is not an expression; undefined when it is one. */
export function expressionFault(expression: string): string | undefined {
  try {
    jmespath().compile(expression);
    return undefined;
  } catch (error) {
    return reasonOf(error);
  }
}

/** Throws `RESULT_INVALID` when the expression does not work on the value. */
export function evaluateExpression(expression: string, value: unknown): unknown {
  try {
    return jmespath().search((value ?? null) as Parameters<Jmespath['search']>[0], expression);
  } catch (error) {
    const message = `The expression ${JSON.stringify(expression)} does not fit what the service answered: ${reasonOf(error)}`;
    throw new PawlError('RESULT_INVALID', message, { cause: error });
  }
}
