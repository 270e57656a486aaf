/**
 * Text as a person should see it before deciding on it: what would move a cursor, hide, or turn the reading direction around is
 * written out, so that nothing shown means something else than it says.
 */

/** Controls (line breaks and tabs aside), formats such as bidirectional marks and zero-width spaces, line separators, surrogates. */
const DECEPTIVE = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

/** Writes deceptive characters as `\u{202E}`. */
export function shownText(text: string): string {
  return text.replace(DECEPTIVE, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`);
}

/** A JSON value, indented, with every deceptive character written out, in names as well as in values. */
export function shownJson(value: unknown): string {
  return shownText(JSON.stringify(value, null, 2) ?? 'null');
}
