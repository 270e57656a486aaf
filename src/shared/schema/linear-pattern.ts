/**
 * Patterns of schemas, matched in linear time. A backtracking engine needs exponential time for some patterns on some texts, and a
 * model, or anyone who writes to it, may send such a text. Patterns that need such an engine (look-around, back-references) are
 * refused when the schema is compiled, before any call.
 */
import { createRequire } from 'node:module';
import type { RE2JS } from 're2js';
import { reasonOf } from '../errors/failure.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { startOf } from '../util/text/text-cut.ts';
import { withEcmaClasses } from './ecma-pattern.ts';
import { shortUnicodeNames, unicodePropertiesOf } from './unicode-properties.ts';

/** RE2 is loaded with the first pattern, because most schemas have none. */
const require = createRequire(import.meta.url);

/**
 * Like `new RegExp(pattern, 'u')`, for `test` alone. Ajv compares patterns by their text form. Throws a `SyntaxError` for a pattern
 * that has no linear form.
 */
export function linearPattern(pattern: string): { test(text: string): boolean; toString(): string } {
  try {
    const compiled = compileWithRe2(pattern);
    return { test: (text) => compiled.test(text), toString: () => pattern };
  } catch (error) {
    const { advice } = explained(pattern, error);
    throw new SyntaxError(`The pattern ${JSON.stringify(startOf(pattern, 200))} ${advice}.`, { cause: error });
  }
}

/** Why RE2 refuses a pattern, in a few words, and as the end of a sentence that says what to write. */
function explained(pattern: string, error: unknown): { readonly fault: string; readonly advice: string } {
  const property = unicodePropertiesOf(pattern).find((name) => !isProperty(name));
  if (property !== undefined)
    return {
      fault: 'it names a Unicode property that RE2 does not have',
      advice: `names the Unicode property ${JSON.stringify(startOf(property, 100))}, which RE2 does not have; use a general category or a script, such as \\p{L} or \\p{Greek}`,
    };
  const reason = reasonOf(error);
  const [, count] = /invalid repeat count: `(\{[\d,]+\})`/.exec(reason) ?? [];
  if (count !== undefined)
    return {
      fault: 'it repeats a part more than 1000 times',
      advice: `has the repeat count ${count}, but RE2 repeats a part 1000 times at most; bound the text with \`maxLength\` instead`,
    };
  return {
    fault: 'it cannot be matched in linear time',
    advice: `cannot be matched in linear time (${reason}); write it without look-around and back-references`,
  };
}

function compileWithRe2(pattern: string): RE2JS {
  const { RE2JS } = require('re2js') as typeof import('re2js');
  return RE2JS.compile(RE2JS.translateRegExp(withEcmaClasses(endOfText(shortUnicodeNames(pattern)))));
}

/** Python and others write `\Z` for the end of the text, which means nothing in ECMAScript. */
function endOfText(pattern: string): string {
  return pattern.replaceAll(/(?<before>(?<!\\)(?:\\\\)*)\\Z/g, '$<before>$');
}

function isProperty(name: string): boolean {
  return orUndefined(() => compileWithRe2(`\\p{${name}}`)) !== undefined;
}

/** The reason why a pattern cannot be matched; undefined for one that can. */
export function patternFault(pattern: string): string | undefined {
  try {
    compileWithRe2(pattern);
    return undefined;
  } catch (error) {
    return explained(pattern, error).fault;
  }
}

export function isLinear(pattern: string): boolean {
  return patternFault(pattern) === undefined;
}
