/**
 * Takes secrets out of text that is kept or shown (R31): by known value, and by what tokens look like. Used by logs, error messages
 * and Bull Board. Parameters in the ledger and results are no such text: tools and models need them as they are.
 */

export const REDACTED = '[redacted]';
const MIN_VALUE_LENGTH = 8;
const MAX_DEPTH = 16;
/** Names under which secrets stand, in parameters, headers, environments and texts. */
const NAMES =
  '(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|signing[-_]?keys?|credentials?|authorization|cookie)';
const SECRET_NAME = new RegExp(`${NAMES}$`, 'i');

/** The groups before the secret stay. */
const PATTERNS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)/g, REDACTED],
  [/\b(Bearer|Basic)(\s+)[A-Za-z0-9._~+/=-]{8,}/gi, `$1$2${REDACTED}`],
  // JSON Web Tokens, and the keys of well-known services.
  [/\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?/g, REDACTED],
  [/\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}/g, REDACTED],
  [
    /\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,})/g,
    REDACTED,
  ],
  [/\bxox[abeoprs]-[A-Za-z0-9-]{10,}/g, REDACTED],
  [/\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g, REDACTED],
  [/\bAIza[A-Za-z0-9_-]{30,}/g, REDACTED],
  // scheme://user:password@host
  [/([a-z][a-z0-9+.-]{0,30}:\/\/[^\s:/@"]{0,256}):[^\s/@"]{1,256}@/gi, `$1:${REDACTED}@`],
  // The whole of a text in JSON, and in JSON that stands in a JSON string.
  [new RegExp(`("[\\w-]{0,60}${NAMES}"\\s{0,4}:\\s{0,4}")(?:[^"\\\\]|\\\\.)*"`, 'gi'), `$1${REDACTED}"`],
  [new RegExp(`(\\\\"[\\w-]{0,60}${NAMES}\\\\"\\s{0,4}:\\s{0,4}\\\\")[^"\\\\]*`, 'gi'), `$1${REDACTED}`],
  // Other schemes than those above are taken for a part of the secret; of cookies, all.
  [
    /(authorization(?:\\*["'])?\s{0,4}[:=]\s{0,4}(?:\\*["'])?)(?!Bearer |Basic )[a-z][\w-]{0,30}[ \t]{1,4}[^\s"'\\,;]{8,}/gi,
    `$1${REDACTED}`,
  ],
  [/(cookie\s{0,4}:\s{0,4})[^\s=;"\\]{1,256}=[^\r\n"\\]*/gi, `$1${REDACTED}`],
  // JSON stays JSON: a number becomes a text.
  [new RegExp(`("[\\w-]{0,60}${NAMES}"\\s{0,4}:\\s{0,4})-?\\d[\\d.eE+-]{3,}(?=[\\s,}\\]])`, 'gi'), `$1"${REDACTED}"`],
  // name=value and name: value, up to the next space. What else JSON has there is no secret.
  [
    new RegExp(
      `(${NAMES}(?:\\\\*["'])?\\s{0,4}[:=]\\s{0,4}(?:\\\\*["'])?)(?!\\[redacted\\]|Bearer |Basic |(?<=":\\s{0,4})(?:[[{]|(?:true|false|null)\\b))[^\\s"'\\\\,;&}\\])]{4,}`,
      'gi',
    ),
    `$1${REDACTED}`,
  ],
];
/** Every pattern needs one of these: most texts have none, and looking for them all at once costs a tenth. */
const SIGN =
  /:\/\/|-----|bearer|basic|pass|secret|token|key|credential|authorization|cookie|eyJ|[spr]k[-_]|gh[pousr]_|_pat_|glpat|npm_|hf_|xox|A[KS]IA|AIza/i;
/** What may be the number of a payment card: 15 or 16 digits of the known issuers, in their usual groups. */
const CARD = /(?<![\w.-])(?:3[47]\d{2}[ -]?\d{6}[ -]?\d{5}|[3-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{4})(?![\w-]|\.\d)/g;
/** Not `tools.get_weather@1.0.0`: a tool with its version, or a package. */
const ADDRESS = /\b[A-Za-z0-9._%+-]{1,64}@(?!\d+\.\d+\.\d+(?!\.?\d))[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b/g;

/**
 * Characters that are looked through for known values at most, once for each of them: a caller can send hundreds of thousands, or very
 * long ones, and all of them would be looked for in what is said of its call.
 */
const MAX_LOOKED_THROUGH = 2 ** 25;
/** What looks like a token is looked for in no longer text: that takes a second for each million characters of some. */
const MAX_LENGTH = 2 ** 20;
/** What a value costs in a text without any, and a long one beside its share: the engine compares all of it at every place of some texts. */
const COST_OF_VALUE = 200;
const LENGTH_OF_SHARE = 64;

/** The text without the values that are known to be secret and without what looks like a token. Nothing of it where that takes long. */
export function redact(text: string, known: readonly string[] = []): string {
  const shares = known.reduce((sum, value) => sum + 1 + value.length / LENGTH_OF_SHARE, 0);
  if (text.length > MAX_LENGTH || shares * (text.length + COST_OF_VALUE) > MAX_LOOKED_THROUGH) return REDACTED;
  let clean = text;
  for (const value of known) {
    clean = clean.replaceAll(value, REDACTED);
    // As it stands inside a JSON string.
    const escaped = JSON.stringify(value).slice(1, -1);
    if (escaped !== value) clean = clean.replaceAll(escaped, REDACTED);
  }
  clean = withoutCards(clean);
  if (!SIGN.test(clean)) return clean;
  for (const [pattern, replacement] of PATTERNS) clean = clean.replace(pattern, replacement);
  return clean;
}

function withoutCards(text: string): string {
  return text.replace(CARD, (found, ...more) => {
    if (!hasCheckDigit(found)) return found;
    const at = more.at(-2) as number;
    // A number in JSON stays one.
    const bare = /[:,[]$/.test(text.slice(0, at)) && /^[,}\]]/.test(text.slice(at + found.length));
    return bare ? '0' : REDACTED;
  });
}

/** Luhn's: every second digit from the right counts twice. */
function hasCheckDigit(number: string): boolean {
  const digits = number.replace(/\D/g, '').split('').reverse().map(Number);
  const sum = digits.reduce((total, digit, index) => {
    const counted = index % 2 === 0 ? digit : digit * 2;
    return total + (counted > 9 ? counted - 9 : counted);
  }, 0);
  return sum % 10 === 0;
}

/** A line of a log, JSON and its end: no secrets, and nobody's mail address. */
export function redactLine(line: string, known: readonly string[] = []): string {
  const clean = redact(line, known);
  return clean === REDACTED ? `${JSON.stringify({ msg: REDACTED })}\n` : clean.replace(ADDRESS, '[address]');
}

/** The texts under names that say they are secret, at every depth. The longest first, so that none leaves a part of another. */
export function secretsIn(value: unknown): string[] {
  let found: Set<string> | undefined;
  const look = (part: unknown, secret: boolean, depth: number): void => {
    if (depth > MAX_DEPTH) return;
    if (typeof part === 'string') {
      if (!secret || part.length < MIN_VALUE_LENGTH) return;
      found ??= new Set();
      found.add(part);
    } else if (Array.isArray(part)) for (const item of part) look(item, secret, depth + 1);
    else if (typeof part === 'object' && part !== null)
      for (const name of Object.keys(part))
        look((part as Record<string, unknown>)[name], secret || isSecretName(name), depth + 1);
  };
  look(value, false, 0);
  return found === undefined ? [] : [...found].sort((one, other) => other.length - one.length);
}

/** Names come again and again: what was found of the newest is remembered, as far as they are short. */
const MAX_NAMES = 1_000;
const MAX_NAME_LENGTH = 64;
const secretNames = new Map<string, boolean>();

function isSecretName(name: string): boolean {
  const known = secretNames.get(name);
  if (known !== undefined) return known;
  const secret = SECRET_NAME.test(name);
  if (secretNames.size >= MAX_NAMES) secretNames.clear();
  if (name.length <= MAX_NAME_LENGTH) secretNames.set(name, secret);
  return secret;
}

/** What a process must never say: its keys, its callers' tokens, the password of its Redis, and secrets of its environment. */
export function secretsOf(
  settings: {
    readonly signingKeys?: readonly { readonly key: string }[];
    readonly workerKeys?: Readonly<Record<string, readonly { readonly key: string }[] | undefined>>;
    readonly apiTokens?: readonly { readonly token: string }[];
    readonly redisUrl?: string | undefined;
  },
  environment: Readonly<Record<string, string | undefined>>,
): string[] {
  const { signingKeys = [], workerKeys = {}, apiTokens = [], redisUrl = '' } = settings;
  return secretsIn({
    ...environment,
    secret: [...signingKeys, ...Object.values(workerKeys).flatMap((keys) => keys ?? [])].map(({ key }) => key),
    token: apiTokens.map(({ token }) => token),
    password: [
      /:([^:@/]+)@/.exec(redisUrl)?.[1],
      ...[...redisUrl.matchAll(/password=([^&#,]+)/gi)].map(([, value]) => value),
    ],
  });
}

/** The fields of a log line, as JSON will show them. */
export function redactFields(fields: object | undefined, known: readonly string[]): object {
  if (fields === undefined || known.length === 0) return fields ?? {};
  try {
    return JSON.parse(redact(JSON.stringify(fields), known)) as object;
  } catch {
    // What JSON cannot say cannot be looked through either.
    return { fields: REDACTED };
  }
}
