/**
 * Text as a person should see it before deciding on it: what would move a cursor, hide, or turn the reading direction around is
 * written out, so that nothing shown means something else than it says.
 */

/** Controls (line breaks and tabs aside), formats such as bidirectional marks and zero-width spaces, line separators, surrogates. */
const DECEPTIVE = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;
/** The same, with line breaks and tabs: a field of one line would draw a second one with them. */
const DECEPTIVE_IN_LINE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

/** Anything but line breaks, tabs and what ASCII can show. */
const BEYOND_ASCII = /[^\n\t\x20-\x7e]/;

/** Writes deceptive characters as `\u{202E}`. Line breaks and tabs stay. */
export function escapeInvisible(text: string): string {
  return text.replace(DECEPTIVE, escapeOf);
}

/** The same for a field of one line: it stays one line. */
export function shownLine(text: string): string {
  return text.replace(DECEPTIVE_IN_LINE, escapeOf);
}

/** A JSON value, indented, with every deceptive character written out, in names as well as in values. */
export function formatForDisplay(value: unknown): string {
  return escapeInvisible(JSON.stringify(value, null, 2) ?? 'null');
}

/** JSON that means the same, with every deceptive character as one of JSON's own escapes. */
export function escapeJson(json: string): string {
  // Every log line comes by here, and most are plain ASCII.
  if (!BEYOND_ASCII.test(json)) return json;
  return json.replace(DECEPTIVE, (character) =>
    [...Array(character.length).keys()]
      .map((index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

function escapeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`;
}
