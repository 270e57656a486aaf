/**
 * Text as a person should see it before a decision. Characters that move a cursor, hide text or change the reading direction are
 * escaped, so that the text means what it shows.
 */

/**
 * Controls, formats such as bidirectional marks and zero-width spaces, line separators, surrogates, characters that are blank but no
 * space, and every mark above or below a letter after the fourth: many of them cover the lines around.
 */
const DECEPTIVE_IN_LINE =
  /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}\u2800\ufffc\u{16fe4}\u{1d159}]|(?<=\p{M}{4})\p{M}/gu;
/** The same but for line breaks and tabs, with which a field of one line would show a second one. */
const DECEPTIVE = new RegExp(`(?![\\n\\t])(?:${DECEPTIVE_IN_LINE.source})`, 'gu');

/** Any character but line breaks, tabs and visible ASCII. */
const BEYOND_ASCII = /[^\n\t\x20-\x7e]/;

/** Writes deceptive characters as `\u{202E}`. Line breaks and tabs stay. */
export function escapeInvisible(text: string): string {
  return text.replace(DECEPTIVE, escapeCharacter);
}

/** Escapes line breaks and tabs too, so that a field of one line stays one line. */
export function escapeLine(text: string): string {
  return text.replace(DECEPTIVE_IN_LINE, escapeCharacter);
}

/** Escapes a text of several lines. A mark begins each further line, so that none looks like a line of the program. */
export function escapeLines(text: string): string {
  return text.trimEnd().split(/\r?\n/).map(escapeLine).join('\n  | ');
}

/** A JSON value, indented, with every deceptive character escaped, in names as well as in values. */
export function formatForDisplay(value: unknown): string {
  return escapeInvisible(JSON.stringify(value, null, 2) ?? 'null');
}

/** JSON that means the same, with every deceptive character as one of JSON's own escapes. */
export function escapeJson(json: string): string {
  // Every log line passes here, and most are plain ASCII.
  if (!BEYOND_ASCII.test(json)) return json;
  return json.replace(DECEPTIVE, (character) =>
    [...Array(character.length).keys()]
      .map((index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

function escapeCharacter(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`;
}
