/** The places of secrets in texts, as data: behind their names, in URLs, in headers, in the arguments of well-known programs. */
import { escapePattern } from '../util/text/escape-pattern.ts';
import { WordSearch } from '../util/text/word-search.ts';
import { WORD_START } from './secret-rules.ts';

export const REDACTED = '[redacted]';

/** The words before `key` in the name of a secret key. */
const KEYS =
  'access|private|account|auth|client|master|encryption|license|shared|storage|subscription|deploy|ssh|webhook|functions|admin|service(?:[-_]?role)?|restricted|management|write';

/** Names of secrets in parameters, headers, environments and texts. */
const STEMS = [
  'passwords?|passwd|passphrase|passcode|passwort|kennwort|contraseña|mot de passe|senha|wachtwoord|hasło|heslo|şifre|lösenord|пароль|密码|密碼|パスワード|비밀번호|secrets?|token|api[-_ ]?(?:keys?|tokens)|credentials?|authorization|cookie|jwt|mnemonic|[jp](?:hp)?sess(?:ion)?id',
  '(?:db|user|admin|root|ftp|smtp|mysql)[-_]?pwd|(?:db|ssh|user|become|admin|root|ftp|smtp|mail|email|key|store)[-_]?pass|sshpass|redis(?:cli)?[-_]?auth|(?:require|store|key)pass|masterauth',
  '(?<![A-Za-z])app(?:lication)?[-_]?key|(?:seed|recovery)[-_ ]?phrase|connection[-_]?string|secret[-_]?key(?:[-_]base)?|preshared[-_]?key|client[-_]key[-_]data|code[-_]?verifier|device[-_]?code',
  `(?:${KEYS})[-_ ]?key|signing[-_]?keys?`,
];
const SUFFIX = '(?:[-_]?\\d{1,2}|[-_](?:prod(?:uction)?|staging|dev|test|old|new|base64|b64|hex|plain|hash))?';
const NAMES = `(?:${STEMS.join('|')})${SUFFIX}`;
export const NAME = `[\\w-]{0,60}${NAMES}`;
export const SECRET_NAME = new RegExp(`${NAMES}$`, 'i');
/** The members that hold the name in an object that is a pair of a name and a value. */
export const PAIR_NAMES = ['name', 'key', 'header', 'field', 'k', 'id', 'variable', 'param', 'parameter', 'property'];
/** These names have other meanings too. Their value is secret only if it looks like one. */
const WEAK_NAME = '(?:[\\w-]{0,40}[-_.])?(?:pass|pwd|pw|auth|otp|psk)';
export const WEAK_SECRET_NAME = new RegExp(`^${WEAK_NAME}$`, 'i');
/** A path, such as that of the variable `PWD`, is no secret. */
export const WEAK_SECRET = /^(?![/~.]|[A-Za-z]:[\\/])(?=\D{0,256}\d)\S{6,}$/;
/** Names of numbers that people type, most of them too short to look like a secret. */
const PIN_NAME =
  '(?:[\\w-]{0,40}[-_])?(?:pin(?:[-_ ]?code)?|cv[vc]2?|totp|[2m]fa(?:[-_]?code)?|otp|(?:verification|security|confirmation)[-_]?code)';
const WEAK_VALUE = '(?![/~.]|[a-z]:\\\\)(?=[^\\s"\'\\\\]{0,256}\\d)';

/** A JSON string inside a JSON string. */
const INNER_JSON_TEXT = '(?:[^"\\\\]|\\\\\\\\(?:\\\\.|[^\\\\"]))*';
/** A quote in a URL, or in HTML. */
const ENCODED_QUOTE = '(?:%(?:25)?2[27]|&(?:quot|apos|#34|#39);)';
/** Code and documents have these in the place of a secret: types, calls, variables, placeholders. */
const NO_SECRET = [
  `(?:%20)?(?:${ENCODED_QUOTE}|\`)?\\[redacted\\]`,
  '(?:string|str|bool(?:ean)?|number|none|null|undefined|true|false|required|optional|missing|invalid|expired|unset|inherit|include|same-origin|omit|await|token|password|secret|api_?key|credentials)(?![^\\s"\'\\\\,;|&)}\\]])',
  '[A-Za-z_][\\w.:]{0,60}[([]\\\\{0,31}["\']?\\[redacted\\]',
  // A member or a parameter with the name of a secret, in code.
  '(?:(?:[a-z_$][\\w$]{0,40}\\??\\.#?){1,4}|[:@])[\\w$]{0,40}(?:passw(?:or)?d|token|secret|key|credentials?)(?![\\w.-])',
  '(?:process|import\\.meta)\\.env|os\\.(?:environ|getenv)|\\$\\{|\\$[A-Z_]+\\b(?!\\S)|\\{\\{|<[\\w ./-]{1,60}>',
  '[a-z_][\\w.]{0,60}\\([^()\\s"\']{0,60}\\)(?:[\\s.,;)]|$)|[a-z_][\\w.]{0,60}\\[\\w{1,60}\\](?:[\\s.,;)]|$)',
].join('|');
/** A value in quotes, or up to the next space. A quote may be escaped, as in JSON. */
const secretValue = (length: number, check = '') =>
  `(?:(?<quote>\\\\{0,31}["'\`])(?!\\[redacted\\]|\\{\\{|\\$\\{|same-origin)${check}(?:(?!\\k<quote>)(?:[^"\\n\\\\]|\\\\+[^"\\n])){${length},1024}\\k<quote>|\\\\{0,31}["']?(?!${NO_SECRET})${check}[^\\s"'\\\\,;|&}\\])]{${length},})`;
export const KEEP_HEAD = `$<head>$<quote>${REDACTED}$<quote>`;
/** A tag or an anchor before a value in YAML. */
const YAML_TAG = '(?:(?:!{1,2}[\\w./:-]{0,60}|&[\\w-]{1,60})[ \\t]{1,4}){0,2}';
const REDACTED_TAG = '[!&][^\\s"\']{0,60}[ \\t]{1,4}(?:[!&]\\S{0,60}[ \\t]{1,4})?\\\\{0,31}["\']?\\[redacted\\]';
/** The end of one argument and the beginning of the next, in a command line or in a list of arguments. */
export const NEXT_ARGUMENT = '(?:\\\\{0,31}["\'],\\s?\\\\{0,31}["\']|["\']?\\s{1,8}|["\']?\\\\{1,4}n\\s{0,8})';
const QUOTE = '\\\\{0,31}["\']';
const BREAK = '(?:\\r?\\n|(?:\\\\{1,4}r)?\\\\{1,4}n)';
/** Separates the words of a command: in a line, in a list, or in Redis' own protocol. */
const NEXT_WORD = `(?: {1,4}|${QUOTE},?\\s{0,4}${QUOTE}|${BREAK}\\$\\d{1,4}${BREAK})`;
const WORD_WITH_DIGIT = '(?!\\[redacted\\])(?=[^\\s"\'\\\\]{0,256}\\d)[^\\s"\'\\\\,;|()]{6,256}';
export type SecretPattern = readonly [pattern: RegExp, replacement: string, hint?: string];

/** Patterns of secrets. The groups before the secret stay; a text without the hint is not searched. */
export const PATTERNS: readonly SecretPattern[] = [
  [
    /-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}(?:[\s\S]{0,8192}?-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|(?:[^"\\]|\\+[^"\\])*)/g,
    REDACTED,
    '----',
  ],
  [
    /(Private-Lines: \d{1,4}(?:\s|\\{1,4}[rn]){1,4})(?:[A-Za-z0-9+/=]{16,}(?:\s|\\{1,4}[rn]){0,4}){1,200}/g,
    `$1${REDACTED}`,
    'Private-Lines',
  ],
  // The same in Base64. Certificates and public keys are no secret.
  [/LS0tLS1CRUdJTi(?!BDRV|BQVUJ)[A-Za-z0-9+/_-]{40,}={0,2}/g, REDACTED, 'LS0tLS1CRUdJTi'],
  [
    /(authorization(?:\\*["'])?\s{0,4}[:=]\s{0,4}(?:\\*["'])?(?:Bearer|Basic)\s{1,8})[A-Za-z0-9._~+/=-]{8,}/gi,
    `$1${REDACTED}`,
  ],
  // A plain word behind a scheme belongs to a sentence.
  [
    new RegExp(
      `${WORD_START}([Bb]earer|BEARER|[Bb]asic|BASIC)(\\s{1,8})(?![A-Z]?[a-z-]{1,24}(?![\\w~+/=]|\\.\\w))[A-Za-z0-9._~+/=-]{8,}`,
      'g',
    ),
    `$1$2${REDACTED}`,
  ],
  // JSON Web Tokens, signed and encrypted.
  [new RegExp(`${WORD_START}ey[JI][A-Za-z0-9_-]{8,}(?:\\.[A-Za-z0-9_-]*){1,4}`, 'g'), REDACTED],
  // A token in place of the user, with a word such as `x-oauth-basic` in place of the password.
  [/(https?:\/\/)[^\s:/@"'\\?#[]{16,256}(?=:[^\s/@"]{1,256}@)/gi, `$1${REDACTED}`, '://'],
  // scheme://user:password@host. A password may hold an `@`, and people write a `/` into it.
  [
    /([a-z][a-z0-9+.-]{0,30}:\/\/[^\s:/@"'<>]{0,256}):(?!\d{1,5}[/?#]|\/|\[redacted\])(?:[^\s/"]{1,256}@(?=[^\s/@"]{0,256}(?:[\s/"?#]|$))|[^\s"'<>@\\]{1,256}@)/gi,
    `$1:${REDACTED}@`,
    '://',
  ],
  // A token in place of the user.
  [/(https?:\/\/)[^\s:/@"'\\?#[]{16,256}@/gi, `$1${REDACTED}@`, '://'],
  [/(\b(?:nats|amqps?|mqtts?|wss?|rediss?):\/\/)(?=\w{0,256}\d)\w{24,256}@/gi, `$1${REDACTED}@`, '://'],
  [/(bearer(?:%20|\+|,\s?))[\w.~-]{16,}/gi, `$1${REDACTED}`],
  [
    /(\b(?:token|secret|password|passphrase|api[ _-]?key)\s{1,4}\\{0,31}["'`]?)(?=[A-Za-z_-]{0,256}\d)(?=[\d_-]{0,256}[A-Za-z])[\w-]{20,}/gi,
    `$1${REDACTED}`,
  ],
  [
    /(\b(?:token|password|passphrase|api[ _-]?key)\s{1,4}(\\{0,31}["'`]))(?=[^\s"'`\\]{0,256}\d)[^\s"'`\\[]{8,256}(?=\2)/gi,
    `$1${REDACTED}`,
  ],
  [
    new RegExp(
      `(\\b(?:with|using|wrong|bad|invalid|incorrect) (?:the )?(?:password|passphrase) )(?=\\w{0,256}[A-Za-z])${WORD_WITH_DIGIT}`,
      'gi',
    ),
    `$1${REDACTED}`,
  ],
  [/(jdbc:oracle:\w{1,10}:[^\s/@"']{1,100}\/)(?!\[redacted\])[^\s@"']{1,256}(?=@)/gi, `$1${REDACTED}`, 'jdbc:'],
  [
    /((?<![\w.-])(?:[\w.-]{0,40}(?:sig|signature|hmac|jwt|credential|security-token|token_hint|verifier|assertion|SAMLResponse))=)(?!\[redacted\])[^\s&#"'\\<>;]{8,}/gi,
    `$1${REDACTED}`,
  ],
  [/([?&](?:[\w.-]{0,40}[-_.])?(?:auth|pwd|pass|sid|tkn)=)(?!\[redacted\])[^\s&#"'\\<>;]{8,}/gi, `$1${REDACTED}`],
  [/([?&](?:code|key)=)(?=[^\s&#"'\\<>;]{0,256}\d)[^\s&#"'\\<>;[]{8,}/gi, `$1${REDACTED}`],
  // The proofs in headers whose other parts are public.
  [/(\b(?:Signature|response|mac|oauth_signature)=\\{0,3}"?)[\w+/=%-]{16,}/g, `$1${REDACTED}`],
  // Pairs of a name and a value in lists, XML and commands.
  [
    new RegExp(`('${NAME}'\\s{0,4},\\s{0,4}')(?=[^']{0,256}[^'a-z_ ])[^'\\\\\\n[]{6,1024}(?=')`, 'gi'),
    `$1${REDACTED}`,
    "'",
  ],
  [new RegExp(`(<[\\w:-]{0,60}${NAMES}(?:\\s[^<>]{0,200})?(?<!/)>)[^<]{1,4096}(?=<)`, 'gi'), `$1${REDACTED}`, '<'],
  [
    new RegExp(
      `(?<head>(?:name|key|type)=\\\\{0,3}["']${NAME}\\\\{0,3}["'][^<>\\n]{0,100}?\\svalue=)(?<quote>\\\\{0,3}["'])[^"'\\n]{1,1024}?\\k<quote>`,
      'gi',
    ),
    KEEP_HEAD,
    'value=',
  ],
  // A list of variables in YAML.
  [
    new RegExp(
      `(?<head>name:\\s{0,4}["']?${NAME}["']?(?:\\s|\\\\{1,4}[rn]){1,40}value:[ \\t]{0,4})(?![|>{\\[])${secretValue(4)}`,
      'gi',
    ),
    KEEP_HEAD,
    'value:',
  ],
  // A block of lines in YAML.
  [
    new RegExp(
      `(${NAMES}["']?:[ \\t]{0,4}${YAML_TAG}[|>][-+\\d]{0,2}[ \\t]{0,4}(?:\\r?\\n|\\\\{1,4}n)(?![ \\t]{1,40}\\[redacted\\])([ \\t]{1,40}))[^\\n"\\\\]{1,4096}(?:(?:\\n|\\\\{1,4}n)\\2[^\\n"\\\\]{1,4096}){0,100}`,
      'gi',
    ),
    `$1${REDACTED}`,
  ],
  // A table of names and values.
  [
    /(\b[A-Z_]{0,40}(?:PASSWORD|TOKEN|SECRET|API_KEY|ACCESS_KEY)[ \t]{2,60})(?=\S{0,256}\d)[^\s"'\\=:|[]{8,}(?=[\s"\\]|$)/g,
    `$1${REDACTED}`,
  ],
  [
    new RegExp(`(\\|\\s{0,20}\`?${NAME}\`?\\s{0,40}\\|\\s{0,20}\`?)(?=[^\\s|]{0,256}\\d)[^\\s|"\\\\[]{6,}`, 'gi'),
    `$1${REDACTED}`,
    '|',
  ],
  [
    new RegExp(`(?<head>(?<![\\w-])-{1,2}${NAME}${NEXT_ARGUMENT})(?!\\[redacted\\]|-)${secretValue(4)}`, 'gi'),
    KEEP_HEAD,
    '-',
  ],
  // Short numbers are secret only beside a name that says so.
  [
    new RegExp(
      `((?<![A-Za-z])${PIN_NAME}\\\\{0,31}["']?\\s{0,4}(?:[:=]\\s{0,4}|\\sis\\s)\\\\{0,31}["'])\\d{3,10}(?=\\\\{0,31}["'])`,
      'gi',
    ),
    `$1${REDACTED}`,
  ],
  [
    new RegExp(`((?<![A-Za-z])${PIN_NAME}(\\\\{0,31}")\\s{0,4}:\\s{0,4})\\d{4,10}(?=\\s{0,4}(?:[,}"\\\\]|$))`, 'gi'),
    `$1$2${REDACTED}$2`,
  ],
  [
    new RegExp(`((?<![A-Za-z])${PIN_NAME}(?:\\s{0,4}[:=]\\s{0,4}|\\sis\\s))\\d{4,10}(?![\\w.-]\\w|[\\w:-])`, 'gi'),
    `$1${REDACTED}`,
  ],
  [/((?<![A-Za-z])cv[vc]2?\s{0,4}[:=]\s{0,4})\d{3,4}(?![\w.-])/gi, `$1${REDACTED}`],
  [
    /((?:verification|security|confirmation|one-time|login|sign-in|2fa|mfa)[ -](?:code|pin)(?:\s{0,2}:|\sis)\s{1,4})\d{4,8}(?![\w.-]\w)/gi,
    `$1${REDACTED}`,
  ],
  [
    new RegExp(
      `(?<head>--from-literal(?:=|${NEXT_ARGUMENT})\\\\{0,3}["']?[\\w.-]{1,100}=)(?!\\[redacted\\])[^\\s"'\\\\,;|]{1,256}`,
      'g',
    ),
    `$<head>${REDACTED}`,
    '--from-literal',
  ],
  [
    /((?<![\w-])auth(?:\s{0,2}=\s{0,2})?\(\\{0,3}["'][^"'\n\\]{1,100}\\{0,3}["'],\s{0,4}\\{0,3}["'])(?!\[redacted\])[^"'\n\\]{1,256}/g,
    `$1${REDACTED}`,
  ],
  [/((?<![\w.])PASSWORD\(\\{0,3}["'])(?!\[redacted\])[^"'\n\\]{1,256}(?=\\{0,3}["']\))/g, `$1${REDACTED}`],
  [/(machine\s\S{1,256}\s{1,8}login\s\S{1,256}\s{1,8}password\s{1,4})\S{1,256}/gi, `$1${REDACTED}`],
  // The user and password of a registry, in npm's settings.
  [/(:_auth\s{0,4}=\s{0,4}["']?)(?!\[redacted\])[^\s"'\\]{8,}/g, `$1${REDACTED}`, ':_auth'],
  // Lines of PostgreSQL's file of passwords.
  [
    /((?:^|(?<=["\s]|\\n))[\w.*-]{1,256}:(?:\d{4,5}|\*):[^\s:"]{1,100}:[^\s:"]{1,100}:)[^\s":\\[]{1,256}(?=$|["\s\\])/g,
    `$1${REDACTED}`,
    ':',
  ],
  [
    /(?<head>(?:IDENTIFIED(?: WITH \w{1,40})? BY|PASSWORD)\s{1,4})(?<quote>\\{0,3}["'])(?!\[redacted\])[^'"\n\\]{1,256}\k<quote>/gi,
    KEEP_HEAD,
  ],
  [new RegExp(`(IDENTIFIED(?: WITH \\w{1,40})? BY )${WORD_WITH_DIGIT}`, 'gi'), `$1${REDACTED}`],
  [
    /(ConvertTo-SecureString\s{1,4}(?:-String\s{1,4})?\\{0,3}["']?)(?!\[redacted\])[^\s"'\\]{1,256}/gi,
    `$1${REDACTED}`,
    'SecureString',
  ],
  // The whole of a text in JSON, and in JSON that stands in a JSON string.
  [new RegExp(`("[\\w-]{0,60}${NAMES}"\\s{0,4}:\\s{0,4}")(?:[^"\\\\]|\\\\.)*"`, 'gi'), `$1${REDACTED}"`],
  [
    new RegExp(
      `(\\\\{0,31}"${WEAK_NAME}\\\\{0,31}"\\s{0,4}:\\s{0,4}(\\\\{0,31}"))${WEAK_VALUE}(?!\\[redacted\\])[^"\\\\\\s]{6,}\\2`,
      'gi',
    ),
    `$1${REDACTED}$2`,
  ],
  [new RegExp(`(\\\\"[\\w-]{0,60}${NAMES}\\\\"\\s{0,4}:\\s{0,4}\\\\")${INNER_JSON_TEXT}`, 'gi'), `$1${REDACTED}`],
  // A scheme other than Bearer and Basic is redacted with the secret; a cookie is redacted whole.
  [
    /(authorization(?:\\*["'])?\s{0,4}[:=]\s{0,4}(?:\\*["'])?)(?!Bearer |Basic )[a-z][\w-]{0,30}[ \t]{1,4}[^\s"'\\,;]{8,}/gi,
    `$1${REDACTED}`,
  ],
  [/(cookie\\*["']?\s{0,4}[:=]\s{0,4}\\*["']?)[^\s=;"'\\]{1,256}=[^\r\n"'\\]*/gi, `$1${REDACTED}`],
  // JSON stays JSON: a number becomes a text.
  [new RegExp(`("[\\w-]{0,60}${NAMES}"\\s{0,4}:\\s{0,4})-?\\d[\\d.eE+-]{3,}(?=[\\s,}\\]])`, 'gi'), `$1"${REDACTED}"`],
  // The words of a wallet.
  [/((?:mnemonic|phrase)\W{1,8})[a-z]{3,8}(?:[ ,]{1,2}[a-z]{3,8}){11,23}/gi, `$1${REDACTED}`],
  [
    new RegExp(
      `(?<head>(?:password|passwort|token|secret|api[ _-]?key)[*_\`]{0,3}\\s(?:is|was|set\\sto|to|ist|lautet):?\\s)(?=\\S{0,256}\\d)${secretValue(6)}`,
      'gi',
    ),
    KEEP_HEAD,
  ],
  // The data of a Kubernetes secret.
  [
    /(kind: Secret\b[\s\S]{0,1024}?(?:\n|\\{1,4}n)(?:data|stringData):)(?:(?:\r?\n|\\{1,4}n)[ \t]{1,20}[\w.-]{1,100}:[ \t]{1,20}[^\n"\\]{1,8192}){1,100}/g,
    `$1 ${REDACTED}`,
    'kind: Secret',
  ],
  // "name=value" as one argument.
  [
    new RegExp(
      `(?<head>(?<quote>\\\\{0,3}["'])(?:[\\w.-]{0,60}[-_.])?${NAMES}=)(?!\\[redacted\\])(?:(?!\\k<quote>)[^"\\n\\\\]){4,1024}(?=\\k<quote>)`,
      'gi',
    ),
    `$<head>${REDACTED}`,
    '=',
  ],
  [/((?<![\w-])(?:requirepass|masterauth|AUTH default)\s{1,4}["']?)(?!\[redacted\])[^\s"'\\]{4,256}/g, `$1${REDACTED}`],
  // Values as debuggers and classes print them: `Password(…)`, `SecretStr('…')`, `Some("…")`.
  [
    new RegExp(
      `(?<head>(?<![\\w.])(?:Secret|Password|Passphrase|Token|ApiKey|Credentials?)(?:Str|String|Text|Value)?\\((?:\\w{1,20}=)?)(?:(?<quote>${QUOTE})(?!\\[redacted\\])(?=[^"']{0,256}[^"'a-z_ ])[^"'\\n\\\\]{4,1024}\\k<quote>|${WORD_WITH_DIGIT})(?=\\))`,
      'g',
    ),
    KEEP_HEAD,
    '(',
  ],
  [
    new RegExp(`(${NAMES}\\s{0,4}[:=]\\s{0,4}(?:Some|Just|Optional)[([])${WORD_WITH_DIGIT}(?=[)\\]])`, 'gi'),
    `$1${REDACTED}`,
  ],
  // Commands of Redis, of mail, of file transfer and of chats.
  [
    new RegExp(
      `((?<=^|[^\\w-]|\\\\[nrt])AUTH${NEXT_WORD}(?:PLAIN|LOGIN|XOAUTH2|CRAM-MD5)${NEXT_WORD})[A-Za-z0-9+/]{8,}={0,2}`,
      'g',
    ),
    `$1${REDACTED}`,
    'AUTH',
  ],
  [
    new RegExp(`((?<=^|[^\\w-]|\\\\[nrt])AUTH${NEXT_WORD}(?:[\\w.@-]{1,60}${NEXT_WORD})?)${WORD_WITH_DIGIT}`, 'g'),
    `$1${REDACTED}`,
    'AUTH',
  ],
  [
    new RegExp(
      `(?<head>name${QUOTE}?:\\s{0,4}${QUOTE}auth${QUOTE},\\s{0,20}${QUOTE}?args${QUOTE}?:\\s{0,4}\\[\\s{0,20}(?<quote>${QUOTE}))(?!\\[redacted\\])[^\\]]{1,512}?\\k<quote>(?=\\s{0,20}\\])`,
      'gi',
    ),
    `$<head>${REDACTED}$<quote>`,
    'args',
  ],
  [
    new RegExp(`((?:[>:] |USER \\S{1,100}?${BREAK}(?:\\d{3}[^\\n\\\\]{0,200}${BREAK})?)PASS )${WORD_WITH_DIGIT}`, 'g'),
    `$1${REDACTED}`,
    'PASS ',
  ],
  [new RegExp(`(\\b[A-Za-z]{0,4}\\d{1,6} LOGIN [^\\s\\\\]{1,100} )${WORD_WITH_DIGIT}`, 'g'), `$1${REDACTED}`, 'LOGIN'],
  [new RegExp(`(\\bIDENTIFY )${WORD_WITH_DIGIT}`, 'g'), `$1${REDACTED}`, 'IDENTIFY'],
  [
    /((?:^|[\s"'=>])[\w.-]{1,64}:)(?=[^\s"'\\@/]{0,256}\d)[^\s"'\\@/:[]{6,256}(?=@(?:(?:tcp|udp|unix)\(|[\w.-]{1,200}:\d{2,5}(?![\w.])))/g,
    `$1${REDACTED}`,
    '@',
  ],
  // The password of a program that no rule knows.
  [
    /((?<![\w-])-p)(?=[\w!@#%^*+-]{0,256}[a-z])(?=[\w!@#%^*+-]{0,256}[A-Z])(?=[\w!@#%^*+-]{0,256}\d)[\w!@#%^*+-]{8,256}(?=$|[\s"'\\])/g,
    `$1${REDACTED}`,
    '-p',
  ],
  // A field of a form, a member of a property list, a variable of PHP or of Terraform.
  [
    new RegExp(`(name=${QUOTE}?${NAME}${QUOTE}?${BREAK}{2})(?!\\[redacted\\])[^\\s"'\\\\]{1,1024}`, 'gi'),
    `$1${REDACTED}`,
    'name=',
  ],
  [
    new RegExp(`(<key>${NAME}</key>(?:\\s|\\\\{1,4}[nrt]){0,40}<string>)[^<]{1,4096}(?=<)`, 'gi'),
    `$1${REDACTED}`,
    '<string>',
  ],
  [
    new RegExp(
      `(?<head>${NAMES}${QUOTE}(?:\\]=>(?:\\s|\\\\{1,4}n){0,40}string\\(\\d{1,5}\\) |;s:\\d{1,5}:)(?<quote>${QUOTE}))(?!\\[redacted\\])[^"'\\n\\\\]{1,1024}\\k<quote>`,
      'gi',
    ),
    `$<head>${REDACTED}$<quote>`,
    's',
  ],
  [
    new RegExp(`(?<head>variable ${QUOTE}${NAME}${QUOTE} \\{[^{}]{0,300}?default\\s{0,20}= )${secretValue(4)}`, 'gi'),
    KEEP_HEAD,
    'variable',
  ],
  // The bytes of a key, as a list and as JSON writes a Buffer. The list stays one.
  [
    new RegExp(
      `(?<head>${NAMES}(?:${QUOTE})?\\s{0,4}[:=]\\s{0,4}(?:\\{\\s?${QUOTE}type${QUOTE}:\\s?${QUOTE}Buffer${QUOTE},\\s?${QUOTE}data${QUOTE}:\\s?|[A-Za-z.]{0,20}\\(\\d{0,4}\\)?\\s?)?\\[)(?:\\s{0,20}\\d{1,3}\\s{0,4},){7,8192}\\s{0,20}\\d{1,3}(?=\\s{0,20}\\])`,
      'gi',
    ),
    '$<head>0',
    '[',
  ],
  // name=value and name: value. JSON objects, lists, booleans and null are no secrets.
  [
    new RegExp(
      `(?<head>${NAMES}(?:\\\\*["']\\]?|\\]|${ENCODED_QUOTE}|[*_\`]{1,3}|\\s(?:provided|given|supplied|received|used))?(?:\\s{0,4}:\\s{0,4}[A-Za-z]{1,20})?\\s{0,4}(?:=>|:=|[:=：＝]|%(?:25)?3[AD]|(?<=\\s)(?:->|→)(?=\\s))(?:[*_]{1,3}(?=[\\s\`]))?\\s{0,4}(?:%20)?${YAML_TAG}(?:${ENCODED_QUOTE}|[bfru]{1,2}(?=["'])|[A-Za-z_][\\w.:]{0,60}\\((?=${QUOTE})|\\\\{0,31}"\\\\{0,31}"(?=\\\\{0,31}"))?)(?!Bearer |${REDACTED_TAG}|Basic |(?<=":\\s{0,4})(?:[[{]|(?:true|false|null)\\b))${secretValue(4)}`,
      'gi',
    ),
    KEEP_HEAD,
  ],
  [
    new RegExp(`(?<head>(?<![\\w.-])${WEAK_NAME}\\s{0,2}[:=]\\s{0,2}\\{?)${secretValue(6, WEAK_VALUE)}`, 'gi'),
    KEEP_HEAD,
  ],
];

const PIN_VALUE = String.raw`[\\"']{0,4}\s{0,4}(?:[:=]|is\s)[\\"'\s]{0,8}\d{3}`;

/** Every pattern above needs one of these: how it begins, and what follows. Most texts have none. */
const HINTS: readonly (readonly [start: string, rest?: string])[] = [
  ['ey', '[JI]'],
  ['-p', '\\w'],
  ['sig', '(?:nature)?='],
  ['sess', '(?:ion)?id'],
  ['device', '[-_]?code'],
  ['key', `(?<=(?:api|app|application|signing|${KEYS})[-_ ]?key)`],
  ['@', '(?:(?:tcp|udp|unix)\\(|[\\w.-]{1,200}:\\d)'],
  ...Array.from({ length: 10 }, (_, digit) => [`:${digit}`, '\\d{3,4}:'] as const),
  ...['pin', 'code', 'cvv', 'cvv2', 'cvc', 'cvc2', 'totp', '2fa', 'mfa'].map((name) => [name, PIN_VALUE] as const),
  ...(
    '://|----|LS0t|bearer|basic|pass|pw|secret|secure|token|?key=|&key=|kennwort|contraseña|mot de passe|senha|wachtwoord|hasło|heslo|' +
    'şifre|lösenord|пароль|密码|密碼|パスワード|비밀번호|verifier|credential|cookie|jwt|phrase|mnemonic|string|auth|otp|' +
    'psk|hmac=|sid=|code=|assertion|response|mac=|identif|login|jdbc:|private-lines'
  )
    .split('|')
    .map((word) => [word] as const),
];

/** Finds the first hint in a text. */
export const PATTERN_HINT = new WordSearch(
  new RegExp(HINTS.map(([start, rest = '']) => escapePattern(start) + rest).join('|'), 'i'),
  HINTS.map(([start]) => start),
);
