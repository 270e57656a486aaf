/**
 * Redaction: secrets are removed from text that is kept or shown, by known value and by what tokens look like. Logs, error messages
 * and Bull Board use it. Parameters in the ledger and results are left alone, because tools and models need them as they are.
 */

import { orUndefined } from '../util/or-undefined.ts';
import { escapePattern } from '../util/text/escape-pattern.ts';
import { PAIR_PATTERNS } from './secret-pairs.ts';
import {
  PAIR_NAMES,
  PATTERN_HINT,
  PATTERNS,
  REDACTED,
  SECRET_NAME,
  type SecretPattern,
  WEAK_SECRET,
  WEAK_SECRET_NAME,
} from './secret-patterns.ts';
import { PROGRAM_NAME, programPatterns } from './secret-programs.ts';
import { MIXED_PREFIXES, PLAIN_PREFIXES, SERVICE_HINT, SERVICE_KEYS, TOKEN_FORMS, WORD_START } from './secret-rules.ts';
import { ESCAPE, FORMS_OF_VALUE, formsOf } from './value-forms.ts';

const MIN_VALUE_LENGTH = 8;
const MAX_DEPTH = 16;
const anyOf = (texts: readonly string[]) => texts.map(escapePattern).join('|');
const TOKEN_END = '[\\w+/=~-]*(?:\\.[\\w+/=~-]+)*';
const TOKENS = new RegExp(
  `${WORD_START}(?:(?:${anyOf(PLAIN_PREFIXES)})(?=[A-Za-z0-9]{16})|(?:${anyOf(MIXED_PREFIXES)})(?=[\\w+/=.~-]{16}))${TOKEN_END}`,
  'g',
);
/** Most texts have no token. A search for the prefixes alone costs a tenth of the full one. */
const TOKEN_HINT = new RegExp(anyOf([...PLAIN_PREFIXES, ...MIXED_PREFIXES]));
/** Each form of a token has so many of these letters in a row. */
const TOKEN_LETTERS = 16;
const IS_TOKEN_LETTER = Uint8Array.from({ length: 128 }, (_, code) =>
  /[\w+/=.~-]/.test(String.fromCharCode(code)) ? 1 : 0,
);
/** Most texts have neither a word that stands before secrets nor the name of a program whose arguments hold them. */
const SECRET_HINT = PROGRAM_NAME.or(PATTERN_HINT);
/** A possible payment card number: 15 or 16 digits of the known issuers, in their usual groups. */
const CARD = /(?<![\w.-])(?:3[47]\d{2}[ -]?\d{6}[ -]?\d{5}|[3-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{4})(?![\w-]|\.\d)/g;
/** An e-mail address, but no tool or package with its version, such as `tools.get_weather@1.0.0`. */
const ADDRESS = /\b[A-Za-z0-9._%+-]{1,64}@(?!\d+\.\d+\.\d+(?!\.?\d))[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b/g;

/**
 * The largest cost of one search for known values, in characters. A caller can send hundreds of thousands of secrets, or very long ones,
 * and every text about its call would be searched for all of them.
 */
const MAX_SEARCH_COST = 2 ** 25;
/** Longer texts are not searched for tokens, because some texts take a second for each million characters. */
const MAX_LENGTH = 2 ** 20;
/** The cost of a value in an empty text. A long value costs more, because some texts make the engine compare all of it at each position. */
const COST_OF_VALUE = 200;
const LENGTH_PER_COST = 64;

/** A value in Base64 or hexadecimal digits, in lines as encoders wrap them. In JSON, line breaks are escaped. */
const WRAPPED =
  /(?<![\w+/-])(?:[\w+/-]{40,200}[ \t]{0,8}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,8}){1,2000}[\w+/-]{1,200}={0,2}/g;
const WRAPPED_LETTERS = 40;
const LINE_BREAKS = /[ \t\r\n]|\\+[rn]/g;

/** One list for all, because the encoded forms of a list are cached. */
const NO_SECRETS: readonly string[] = [];

/** Characters that are not shown. A secret with one of them inside is still a secret to a reader. */
const INVISIBLE = /[\u180e\u200b-\u200f\u2060-\u2064\ufeff]/;
const ALL_INVISIBLE = /[\u00ad\u180e\u200b-\u200f\u2060-\u2064\ufeff]/g;

/**
 * Removes known secrets and whatever looks like a token. Replaces the whole text where the search would take long. A text whose secret
 * holds invisible characters loses all of these.
 */
export function redact(text: string, secrets = NO_SECRETS): string {
  // The soft hyphen stands apart: a class without it cannot match in most texts, and is then not searched for.
  if (!(INVISIBLE.test(text) || text.includes('\u00ad'))) return redactVisible(text, secrets);
  const bare = text.replace(ALL_INVISIBLE, '');
  const redacted = redactVisible(bare, secrets.map((value) => value.replace(ALL_INVISIBLE, '')).filter(Boolean));
  return redacted === bare ? text : redacted;
}

function redactVisible(text: string, secrets: readonly string[]): string {
  const valueCost = secrets.reduce((sum, value) => sum + 1 + value.length / LENGTH_PER_COST, 0);
  const cost = valueCost * (text.length + COST_OF_VALUE);
  if (text.length > MAX_LENGTH || cost > MAX_SEARCH_COST) return REDACTED;
  let clean = text;
  for (const value of secrets) {
    clean = clean.replaceAll(value, REDACTED);
    // The same value, escaped as in a JSON string.
    const escaped = JSON.stringify(value).slice(1, -1);
    if (escaped !== value) clean = clean.replaceAll(escaped, REDACTED);
  }
  // Very many values are searched for as they are, without their encoded forms.
  if (cost * FORMS_OF_VALUE <= MAX_SEARCH_COST) {
    const { texts, patterns } = formsOf(secrets);
    for (const form of texts) clean = clean.replaceAll(form, REDACTED);
    if (texts.length > 0 && hasTokenRun(clean, WRAPPED_LETTERS)) clean = withoutWrapped(clean, texts);
    if (ESCAPE.test(clean))
      for (const [pattern, hint] of patterns) if (clean.includes(hint)) clean = clean.replace(pattern, REDACTED);
  }
  clean = withoutCards(clean);
  if (hasTokenRun(clean, TOKEN_LETTERS)) clean = withoutTokens(clean);
  if (SECRET_HINT.find(clean, 0) === undefined) return clean;
  clean = replaceAll(clean, programPatterns(clean));
  return PATTERN_HINT.find(clean, 0) === undefined ? clean : replaceAll(replaceAll(clean, PAIR_PATTERNS), PATTERNS);
}

/** The whole of a wrapped text goes: its parts would show what the secret stands in, but not the secret's own end. */
function withoutWrapped(text: string, forms: readonly string[]): string {
  return text.replace(WRAPPED, (wrapped) => {
    const joined = wrapped.replace(LINE_BREAKS, '');
    return forms.some((form) => joined.includes(form)) ? REDACTED : wrapped;
  });
}

function withoutTokens(text: string): string {
  let clean = TOKEN_HINT.test(text) ? text.replace(TOKENS, REDACTED) : text;
  for (const [hint, form] of TOKEN_FORMS) if (clean.includes(hint)) clean = clean.replace(form, REDACTED);
  return SERVICE_HINT.test(clean) ? clean.replace(SERVICE_KEYS, `$1${REDACTED}`) : clean;
}

/**
 * Whether the text has a run of so many token letters, such as those of the shortest token. Most texts have none. Each step looks
 * backwards from where a run would end, and skips to behind the letter that breaks it: a tenth of the cost of a search for the prefixes.
 */
function hasTokenRun(text: string, letters: number): boolean {
  let from = 0;
  while (from + letters <= text.length) {
    let index = from + letters - 1;
    while (index >= from && isTokenLetter(text.charCodeAt(index))) index -= 1;
    if (index < from) return true;
    from = index + 1;
  }
  return false;
}

function isTokenLetter(code: number): boolean {
  return code < 128 && IS_TOKEN_LETTER[code] === 1;
}

function replaceAll(text: string, patterns: readonly SecretPattern[]): string {
  let clean = text;
  for (const [pattern, replacement, hint = ''] of patterns)
    if (clean.includes(hint)) clean = clean.replace(pattern, replacement);
  return clean;
}

function withoutCards(text: string): string {
  return text.replace(CARD, (found, ...groups) => {
    if (!hasCheckDigit(found)) return found;
    const offset = groups.at(-2) as number;
    // A number in JSON stays a number.
    const isJsonNumber = /[:,[]$/.test(text.slice(0, offset)) && /^[,}\]]/.test(text.slice(offset + found.length));
    return isJsonNumber ? '0' : REDACTED;
  });
}

/** The Luhn check: every second digit from the right counts twice. */
function hasCheckDigit(number: string): boolean {
  const digits = number.replace(/\D/g, '').split('').reverse().map(Number);
  const sum = digits.reduce((total, digit, index) => {
    const counted = index % 2 === 0 ? digit : digit * 2;
    return total + (counted > 9 ? counted - 9 : counted);
  }, 0);
  return sum % 10 === 0;
}

/** A line of a log, as JSON with its line end, without secrets and mail addresses. */
export function redactLine(line: string, secrets: readonly string[] = []): string {
  const clean = redact(line, secrets);
  return clean === REDACTED
    ? `${JSON.stringify({ msg: REDACTED })}\n`
    : clean.includes('@')
      ? clean.replace(ADDRESS, '[address]')
      : clean;
}

/** The texts under secret names, at every depth. The longest comes first, so that none leaves a part of another. */
export function secretsIn(value: unknown): string[] {
  let found: Set<string> | undefined;
  const visit = (part: unknown, secret: boolean, depth: number): void => {
    if (depth > MAX_DEPTH) return;
    if (typeof part === 'string') {
      if (!secret) for (const password of urlPasswords(part)) visit(password, true, depth + 1);
      if (!secret || part.length < MIN_VALUE_LENGTH) return;
      found ??= new Set();
      found.add(part);
    } else if (Array.isArray(part)) {
      for (const [index, item] of part.entries()) visit(item, secret || followsSecretName(part, index), depth + 1);
      if (!secret) for (const item of part) visit(inlineSecret(item), true, depth + 1);
    } else if (typeof part === 'object' && part !== null) {
      const isNamed = isSecretName(pairName(part));
      for (const [name, member] of Object.entries(part))
        visit(
          member,
          secret ||
            isSecretName(name) ||
            (isNamed && VALUE_MEMBERS.has(name.toLowerCase())) ||
            (typeof member === 'string' && isWeakSecret(name, member)),
          depth + 1,
        );
    }
  };
  visit(value, false, 0);
  return found === undefined ? [] : [...found].sort((one, other) => other.length - one.length);
}

/**
 * The secrets among parameters, before those of the process. Most parameters have none: the answer is then the list of the process itself,
 * whose encoded forms are cached.
 */
export function secretsOfCall(params: unknown, processSecrets: readonly string[]): readonly string[] {
  const paramSecrets = secretsIn(params);
  return paramSecrets.length === 0 ? processSecrets : [...paramSecrets, ...processSecrets];
}

const NAME_MEMBERS: ReadonlySet<string> = new Set(PAIR_NAMES);
const VALUE_MEMBERS: ReadonlySet<string> = new Set(['value', 'values', 'val', 'v']);

/** The name in an object that is a pair, such as `{ name: 'Authorization', value: '…' }`; '' for any other. */
function pairName(pair: object): string {
  for (const member of Object.keys(pair)) {
    const name: unknown = pair[member as keyof typeof pair];
    if (typeof name === 'string' && name.length <= MAX_NAME_LENGTH && NAME_MEMBERS.has(member.toLowerCase()))
      return name;
  }
  return '';
}

/** Whether the item before is a secret's name, as in `['X-Api-Key', '…']`, in a list of headers, or in `['--token', '…']`. */
function followsSecretName(list: readonly unknown[], index: number): boolean {
  const [before, item] = [list[index - 1], list[index]];
  if (typeof before !== 'string' || typeof item !== 'string' || before.length > MAX_NAME_LENGTH) return false;
  // A list of names is no list of pairs.
  const looksLikeAValue = list.length === 2 || before.startsWith('-') || /[^a-z_ ]/.test(item);
  return looksLikeAValue && isSecretName(before);
}

/** The value in an item such as `X-Api-Key: …` or `--token=…`; undefined for any other. */
function inlineSecret(item: unknown): string | undefined {
  if (typeof item !== 'string' || item.length > 8_192) return undefined;
  const { name = '', value } =
    /^-{0,2}(?<name>[\w-]{1,64})\s{0,4}[:=]\s{0,4}(?:(?:Bearer|Basic|Token) )?(?<value>.+)$/is.exec(item)?.groups ?? {};
  return isSecretName(name) ? value : undefined;
}

/** A cache of short names and whether they are secret, because the same names come many times. */
const MAX_NAMES = 1_000;
const MAX_NAME_LENGTH = 64;
const secretNames = new Map<string, boolean>();

function isSecretName(name: string): boolean {
  const cached = secretNames.get(name);
  if (cached !== undefined) return cached;
  const secret = SECRET_NAME.test(name);
  if (secretNames.size >= MAX_NAMES) secretNames.clear();
  if (name.length <= MAX_NAME_LENGTH) secretNames.set(name, secret);
  return secret;
}

function isWeakSecret(name: string, value: string): boolean {
  return name.length <= MAX_NAME_LENGTH && WEAK_SECRET_NAME.test(name) && WEAK_SECRET.test(value);
}

/** The secrets of a process: its keys, its callers' tokens, the password of its Redis, and secrets of its environment. */
export function secretsOf(
  settings: {
    readonly signingKeys?: readonly { readonly key: string }[];
    readonly workerKeys?: Readonly<Record<string, readonly { readonly key: string }[] | undefined>>;
    readonly apiTokens?: readonly { readonly token: string }[];
    readonly callbackSecrets?: readonly string[];
    readonly redisUrl?: string | undefined;
    readonly boardRedisUrl?: string | undefined;
  },
  environment: Readonly<Record<string, string | undefined>>,
): string[] {
  const { signingKeys = [], workerKeys = {}, apiTokens = [], callbackSecrets = [] } = settings;
  return secretsIn({
    ...environment,
    secret: [...signingKeys, ...Object.values(workerKeys).flatMap((keys) => keys ?? [])].map(({ key }) => key),
    token: [...apiTokens.map(({ token }) => token), ...callbackSecrets],
    password: [settings.redisUrl, settings.boardRedisUrl].flatMap((url) => passwordsIn(url ?? '')),
  });
}

const MAX_URL_LENGTH = 4_096;

function urlPasswords(text: string): readonly string[] {
  if (text.length > MAX_URL_LENGTH || !text.includes('://') || !text.includes('@')) return [];
  // Example passwords are words, such as `postgres`, which other texts hold, too.
  return passwordsIn(text).filter((password) => WEAK_SECRET.test(password));
}

/** The passwords in an address, such as that of Redis, as they stand there and decoded. */
function passwordsIn(url: string): string[] {
  const written = url
    .split(/,(?=\s*\w+:\/\/)/)
    .flatMap((node) => [...node.matchAll(/\/\/[^:@/?#]*:([^/?#]+)@|password=([^&#]+)/gi)])
    .map(([, inPlace, inQuery]) => inPlace ?? inQuery ?? '');
  return written.flatMap((each) => [each, decoded(each)]);
}

function decoded(text: string): string {
  return orUndefined(() => decodeURIComponent(text)) ?? text;
}

/** The fields of a log line, as JSON will show them. */
export function redactFields(fields: object | undefined, secrets: readonly string[]): object {
  if (fields === undefined || secrets.length === 0) return fields ?? {};
  // Fields that are not JSON-serializable cannot be searched either.
  return orUndefined(() => JSON.parse(redact(JSON.stringify(fields), secrets)) as object) ?? { fields: REDACTED };
}
