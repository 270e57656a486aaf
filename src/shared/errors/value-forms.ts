/** The forms in which a known secret stands in texts: encoded as a whole, or with some of its characters escaped. */

import { escapePattern } from '../util/text/escape-pattern.ts';

const MIN_FORM_LENGTH = 8;
/** The largest number of forms of one value, of which a pattern counts as several. */
export const FORMS_OF_VALUE = 12;
/** A longer value is searched for without its escaped forms: it would make a very long pattern. */
const MAX_PATTERN_VALUE = 512;
/** A text without one of these holds no escaped character. */
export const ESCAPE = /[%\\&+]/;

interface ValueForms {
  /** The longest first. */
  readonly texts: readonly string[];
  /** Each with a text that stands in all that it matches. */
  readonly patterns: readonly (readonly [pattern: RegExp, hint: string])[];
}

/** A cache, because a process searches every line that it writes for the same values. */
const cache = new WeakMap<readonly string[], ValueForms>();

export function formsOf(secrets: readonly string[]): ValueForms {
  const cached = cache.get(secrets);
  if (cached !== undefined) return cached;
  const forms = { texts: encodedForms(secrets), patterns: escapedForms(secrets) };
  cache.set(secrets, forms);
  return forms;
}

/** Base64 and hexadecimal digits. */
function encodedForms(secrets: readonly string[]): readonly string[] {
  const forms = new Set<string>();
  for (const value of secrets) {
    const bytes = Buffer.from(value);
    const hex = bytes.toString('hex');
    for (const form of [hex, hex.toUpperCase()]) forms.add(form);
    // Text before the secret, such as a user name, shifts its Base64 letters by 0 to 2 bytes.
    for (const before of [0, 1, 2]) {
      const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
      // Letters that also encode neighbouring bytes are left out.
      const coreEnd = Math.floor(((before + bytes.length) * 8) / 6);
      const core = text.slice(Math.ceil((before * 8) / 6), coreEnd);
      if (core.length < MIN_FORM_LENGTH) continue;
      forms.add(core);
      forms.add(core.replaceAll('+', '-').replaceAll('/', '_'));
    }
  }
  for (const value of secrets) forms.delete(value);
  return [...forms].sort((one, other) => other.length - one.length);
}

/** Encoders of URLs, of forms, of JSON and of HTML each escape other characters, and texts are escaped several times. */
function escapedForms(secrets: readonly string[]): ValueForms['patterns'] {
  return secrets
    .filter((value) => value.length <= MAX_PATTERN_VALUE && /[^A-Za-z0-9]/.test(value))
    .map((value) => {
      const parts = value.match(/\\+|[A-Za-z0-9]+|[\s\S]/gu) ?? [];
      const [hint = ''] = (value.match(/[A-Za-z0-9]+/g) ?? []).sort((one, other) => other.length - one.length);
      return [new RegExp(parts.map(escapedPart).join(''), 'g'), hint] as const;
    });
}

/** The backslashes that JSON and others put before a character, each of which a URL may hold as `%5C`. */
const ESCAPE_CHARACTER = '(?:\\\\|%(?:25){0,3}5[cC])';
const ESCAPES = `${ESCAPE_CHARACTER}{0,31}`;
const ENTITIES: Readonly<Record<string, string>> = { '&': 'amp', '<': 'lt', '>': 'gt', '"': 'quot', "'": 'apos' };
const CONTROLS: Readonly<Record<string, string>> = { '\n': 'n', '\r': 'r', '\t': 't' };

/** A pattern for letters and digits as they are, for a run of backslashes, or for one other character in all of its forms. */
function escapedPart(part: string): string {
  if (/^[A-Za-z0-9]/.test(part)) return part;
  const bytes = [...Buffer.from(part)].map((byte) => byte.toString(16).padStart(2, '0'));
  const percent = bytes.map((byte) => `%(?:25){0,3}${inAnyCase(byte)}`).join('');
  if (part.startsWith('\\')) return `${ESCAPE_CHARACTER}{${part.length},${part.length * 32}}`;
  const units = Array.from({ length: part.length }, (_, index) => part.charCodeAt(index).toString(16).padStart(4, '0'));
  const code = part.codePointAt(0) ?? 0;
  const named = ENTITIES[part] === undefined ? '' : `${ENTITIES[part]}|`;
  const forms = [
    escapePattern(part),
    percent,
    units.map((unit) => `u${inAnyCase(unit)}`).join(ESCAPES),
    `&(?:amp;){0,3}(?:${named}#0?${code}|#[xX]${inAnyCase(code.toString(16))});`,
    ...(part === ' ' ? ['\\+'] : []),
    ...(code > 0x7f && code <= 0xff ? [`(?<=\\\\|5[cC])x${inAnyCase(code.toString(16))}`] : []),
    ...(CONTROLS[part] === undefined ? [] : [`(?<=\\\\|5[cC])${CONTROLS[part]}`]),
  ];
  return `${ESCAPES}(?:${forms.join('|')})`;
}

function inAnyCase(hex: string): string {
  return hex.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
}
