/**
 * Unicode properties of patterns, in the short form that RE2 takes. ECMAScript allows `\p{Letter}`, `\p{General_Category=L}` and
 * `\p{Script=Greek}`; RE2 knows `\p{L}` and `\p{Greek}`.
 */

/** General categories by their long names (Unicode Standard Annex 44). */
const CATEGORIES: Readonly<Record<string, string>> = {
  ...{ Letter: 'L', Cased_Letter: 'LC', Uppercase_Letter: 'Lu', Lowercase_Letter: 'Ll', Titlecase_Letter: 'Lt' },
  ...{ Modifier_Letter: 'Lm', Other_Letter: 'Lo', Mark: 'M', Combining_Mark: 'M', Nonspacing_Mark: 'Mn' },
  ...{ Spacing_Mark: 'Mc', Enclosing_Mark: 'Me', Number: 'N', Decimal_Number: 'Nd', digit: 'Nd', Letter_Number: 'Nl' },
  ...{ Other_Number: 'No', Punctuation: 'P', punct: 'P', Connector_Punctuation: 'Pc', Dash_Punctuation: 'Pd' },
  ...{ Open_Punctuation: 'Ps', Close_Punctuation: 'Pe', Initial_Punctuation: 'Pi', Final_Punctuation: 'Pf' },
  ...{ Other_Punctuation: 'Po', Symbol: 'S', Math_Symbol: 'Sm', Currency_Symbol: 'Sc', Modifier_Symbol: 'Sk' },
  ...{ Other_Symbol: 'So', Separator: 'Z', Space_Separator: 'Zs', Line_Separator: 'Zl', Paragraph_Separator: 'Zp' },
  ...{ Other: 'C', Control: 'Cc', cntrl: 'Cc', Format: 'Cf', Surrogate: 'Cs', Private_Use: 'Co' },
};
/** Scripts by their four letters (ISO 15924), the commonest. */
const SCRIPTS: Readonly<Record<string, string>> = {
  ...{ Latn: 'Latin', Grek: 'Greek', Cyrl: 'Cyrillic', Hani: 'Han', Hira: 'Hiragana', Kana: 'Katakana' },
  ...{ Hang: 'Hangul', Arab: 'Arabic', Hebr: 'Hebrew', Deva: 'Devanagari', Beng: 'Bengali', Taml: 'Tamil' },
  ...{ Armn: 'Armenian', Geor: 'Georgian' },
};
/** A property whose backslash is not escaped itself. */
const PROPERTY = /(?<before>(?<!\\)(?:\\\\)*)\\(?<sign>[pP])\{(?<name>[^{}]*)\}/g;

/** The pattern with the short names of its properties. Names that RE2 takes, or does not know, stay as they are. */
export function shortUnicodeNames(pattern: string): string {
  return pattern.replace(
    PROPERTY,
    (_whole, before: string, sign: string, name: string) => `${before}\\${sign}{${shortName(name)}}`,
  );
}

function shortName(name: string): string {
  const [, key, value = ''] = /^(General_Category|gc|Script|sc)=(.+)$/.exec(name) ?? [];
  if (key === 'Script' || key === 'sc') return SCRIPTS[value] ?? value;
  if (key !== undefined) return CATEGORIES[value] ?? value;
  return CATEGORIES[name] ?? name;
}

/** The Unicode properties that a pattern names, as its author wrote them. */
export function unicodePropertiesOf(pattern: string): readonly string[] {
  return [...pattern.matchAll(PROPERTY)].map(({ groups }) => groups?.['name'] ?? '');
}
