/**
 * Patterns of schemas, matched in linear time. A backtracking engine needs exponential time for some patterns on some texts, and a
 * model, or anyone who writes to it, may send such a text. Patterns that need such an engine (look-around, back-references) are
 * refused when the schema is compiled, before any call.
 */
import { RE2JS } from 're2js';
import { startOf } from '../util/text/text-cut.ts';

/**
 * Like `new RegExp(pattern, 'u')`, for `test` alone. Ajv compares patterns by their text form. Throws a `SyntaxError` for a pattern
 * that has no linear form.
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
