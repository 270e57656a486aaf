/**
 * Patterns of schemas, matched in linear time. A backtracking engine needs exponential time for some patterns on some texts,
 * which a model, or whoever writes to it, may send; what only such an engine can match (look-around, back-references) is refused
 * when the schema is compiled, before any call.
 */
import { RE2JS } from 're2js';
import { startOf } from '../util/text/text-cut.ts';

/**
 * Like `new RegExp(pattern, 'u')`, for `test` alone. Ajv tells patterns apart by their text form. Throws a `SyntaxError` for what has no linear form.
 */
export function linearPattern(pattern: string): { test(text: string): boolean; toString(): string } {
  let compiled: RE2JS;
  try {
    compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new SyntaxError(
      `The pattern ${JSON.stringify(startOf(pattern, 200))} cannot be matched in linear time (${why}); write it without look-around and back-references.`,
      { cause: error },
    );
  }
  return { test: (text) => compiled.test(text), toString: () => pattern };
}

/** Whether a pattern has a linear form. */
export function isLinear(pattern: string): boolean {
  try {
    linearPattern(pattern);
    return true;
  } catch {
    return false;
  }
}
