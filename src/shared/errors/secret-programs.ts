/** The places of secrets in the arguments of well-known programs, as data. */
import { getOrInsert } from '../util/get-or-insert.ts';
import { LimitedMap } from '../util/limited-map.ts';
import { WordSearch } from '../util/text/word-search.ts';
import { KEEP_HEAD, NEXT_ARGUMENT, REDACTED, type SecretPattern } from './secret-patterns.ts';

/** The arguments before: the command goes on in the next line behind a backslash. */
const ARGUMENTS = '(?:\\\\\\r?\\n|[^\\n|;&]){0,300}?';
const ARGUMENT = '(?:\\\\{0,3}"[^"\\n\\\\]{1,256}\\\\{0,3}"|\'[^\'\\n]{1,256}\'|[^\\s"\'\\\\,;|]{1,256})';
const VALUE = `(?!\\[redacted\\]|["']\\[redacted\\])(?:(?<quote>\\\\{0,3}["'])(?!,)[^"'\\n\\\\]{1,256}\\k<quote>|[^\\s"'\\\\,;|]{1,256})`;
/** A secret follows, and no option; or one as long as a token. */
const NO_OPTION = '(?!\\\\{0,3}["\']?-)';
const LONG = '(?=\\\\{0,3}["\']?[\\w.=+/-]{20})';

/** Option and value are two arguments. */
const spaced = (options: string) => `(?:${options})${NEXT_ARGUMENT}`;
const spacedOrEqual = (options: string) => `(?:${options})(?:=|${NEXT_ARGUMENT})`;
/** Words of a command, each an argument. */
const words = (text: string) => `${text.split(' ').join(NEXT_ARGUMENT)}${NEXT_ARGUMENT}`;

/** Programs, and what stands before the secret. */
const PLACES: readonly (readonly [programs: string, flags: string])[] = [
  [
    'curl',
    `(?:(?:-[a-zA-Z]{0,6}[uU]${NEXT_ARGUMENT}?|${spacedOrEqual('--user|--proxy-user')})\\\\{0,3}["']?[^\\s:"',]{0,100}:)`,
  ],
  ['curl', `(?:${spacedOrEqual('-[a-zA-Z]{0,6}b|--cookie')})(?=\\\\{0,3}["']?[^\\s"'\\\\]{1,100}=)`],
  ['curl', spacedOrEqual('--pass|--proxy-pass|--oauth2-bearer|--key-passwd')],
  ['curl', `${spacedOrEqual('-E|--cert')}\\\\{0,3}["']?[^\\s:"',]{2,200}:`],
  ['https?|xh', `${spacedOrEqual('-a|--auth')}["']?[^\\s:"',]{0,100}:`],
  // The database of these programs stands behind a space, the password does not.
  ['mysql\\w*|mariadb|mariadb-\\w+', '-p(?=[^\\s,])(?!["\'],)'],
  ['mysqladmin|mariadb-admin', `${words('password')}${NO_OPTION}`],
  ['mysqlsh', '[\\w.-]{1,60}:(?=[^\\s"\'\\\\@/]{1,256}@)'],
  ['sshpass', `-p(?:${NEXT_ARGUMENT})?`],
  [
    'docker|podman|buildah|skopeo|crane|oras|helm|az|oc',
    `(?:login${ARGUMENTS}${NEXT_ARGUMENT}|login${NEXT_ARGUMENT})-p(?:${NEXT_ARGUMENT})?`,
  ],
  ['mongo\\w*', `-p(?:${NEXT_ARGUMENT})?`],
  ['redis-cli|valkey-cli', spaced('-a|--pass')],
  ['redis-cli|valkey-cli', `(?:AUTH|auth)["'],\\s?["'][\\w.-]{1,60}["'],\\s?["']`],
  [
    'redis-cli|valkey-cli',
    `${spaced('AUTH|auth')}(?![\\w.-]{1,60}(?: |["'],\\s?["'])\\[redacted\\])(?:[\\w.-]{1,60} (?=[^\\s"'\\\\|;&]))?`,
  ],
  ['SETUSER', '["\']?>'],
  ['sqlcmd|bcp|isql|tsql|osql|ipmitool|mosquitto_\\w+|zip|unzip', `-P(?:${NEXT_ARGUMENT})?`],
  ['7za?|rar', '-(?:h?p)(?=[^\\s"\',])'],
  ['ldap\\w+|kadmin(?:\\.local)?', spaced('-w')],
  ['ldappasswd', spaced('-s|-a')],
  ['smbclient', `${spaced('-U')}["']?[^\\s%"',]{0,100}%`],
  ['vault', `login(?:${NEXT_ARGUMENT}-[\\w-]{1,30}){0,4}${NEXT_ARGUMENT}${NO_OPTION}`],
  [
    'vault',
    `(?:${words('operator unseal')}|${words('unwrap')}|token${NEXT_ARGUMENT}${spaced('revoke|renew|lookup')})${LONG}`,
  ],
  ['ssh-keygen', spaced('-N|-P')],
  ['twine|cqlsh|user(?:mod|add)|mycli|ncftp\\w*|rdesktop|psexec(?:\\.exe)?', spaced('-p')],
  ['plink|pscp|psftp|putty|cassandra', spaced('-pw')],
  ['htpasswd', `-(?!\\w{0,4}n)\\w{0,4}b\\w{0,4}(?:${NEXT_ARGUMENT}${ARGUMENT}){2}${NEXT_ARGUMENT}`],
  ['htpasswd', `-(?:nb|bn)\\w{0,3}${NEXT_ARGUMENT}${ARGUMENT}${NEXT_ARGUMENT}`],
  ['setx|ENV', `[A-Z_]{0,40}(?:PASSWORD|TOKEN|SECRET|KEY)${NEXT_ARGUMENT}`],
  ['npm|pnpm|yarn', `set${NEXT_ARGUMENT}\\S{0,200}(?:_authToken|npmAuthToken|_auth|_password)${NEXT_ARGUMENT}`],
  ['aws', `SecureString${ARGUMENTS}${NEXT_ARGUMENT}--value${NEXT_ARGUMENT}`],
  ['aws', `put-parameter(?=[^\\n|;&]{0,600}SecureString)${ARGUMENTS}${NEXT_ARGUMENT}${spacedOrEqual('--value')}`],
  ['aws', spacedOrEqual('--secret-(?:string|binary)|--token-code')],
  ['aws', `set${NEXT_ARGUMENT}[\\w.-]{0,60}(?:secret|token)[\\w.-]{0,60}${NEXT_ARGUMENT}`],
  [
    'gcloud',
    `(?:activate-refresh-token${NEXT_ARGUMENT}${ARGUMENT}|set${NEXT_ARGUMENT}[\\w/]{0,60}token)${NEXT_ARGUMENT}`,
  ],
  ['az', `secret${NEXT_ARGUMENT}set${ARGUMENTS}${NEXT_ARGUMENT}${spacedOrEqual('--value')}`],
  ['az', spacedOrEqual('--key-value')],
  ['gh|kinit|sudo|docker|gcloud|wrangler|databricks|cryptsetup|sshfs|passwd|chpasswd|smbpasswd', '<<<\\s{0,4}'],
  ['mc', `alias${NEXT_ARGUMENT}set(?:${NEXT_ARGUMENT}${ARGUMENT}){3}${NEXT_ARGUMENT}`],
  ['net', `user${NEXT_ARGUMENT}[\\w.@\\\\-]{1,100}${NEXT_ARGUMENT}(?=[^/\\s])`],
  [
    'gh',
    `secret${NEXT_ARGUMENT}set(?:${NEXT_ARGUMENT}${ARGUMENT}){1,6}?${NEXT_ARGUMENT}(?:-b|--body)(?:=|${NEXT_ARGUMENT}|(?<=-b)(?=[^\\s"',=]))`,
  ],
  ['openssl', '["\']?-pass(?:in|out)?["\',\\s]{1,4}pass:'],
  ['openssl', `enc${ARGUMENTS}${NEXT_ARGUMENT}-[kK]${NEXT_ARGUMENT}`],
  ['openssl', `passwd(?:${NEXT_ARGUMENT}-\\w{1,10}){0,3}${NEXT_ARGUMENT}${NO_OPTION}`],
  ['cargo|wandb', `${words('login')}${LONG}`],
  ['snyk|ngrok|nuget(?:\\.exe)?', `${spaced('auth|(?:add-)?authtoken|set[aA]pi[kK]ey')}${LONG}`],
  ['dotnet', `${words('nuget push')}(?:${ARGUMENT}${NEXT_ARGUMENT})?-k${NEXT_ARGUMENT}`],
  ['dotnet', `${words('user-secrets set')}${ARGUMENT}${NEXT_ARGUMENT}${NO_OPTION}`],
  ['pulumi', `${words('config set --secret')}${ARGUMENT}${NEXT_ARGUMENT}`],
  ['pulumi', `${words('config set')}(?=[^\\n|;&]{0,300}--secret)[\\w:.-]{1,100}${NEXT_ARGUMENT}`],
  [
    'doppler|netlify',
    `(?:secrets${NEXT_ARGUMENT}set|env:set)${NEXT_ARGUMENT}[A-Z][A-Z0-9_]{1,60}${NEXT_ARGUMENT}${NO_OPTION}`,
  ],
  ['bw', `(?:unlock|login${NEXT_ARGUMENT}[^\\s"'-]{1,100})${NEXT_ARGUMENT}${NO_OPTION}`],
  ['skopeo|podman|buildah', `${spacedOrEqual('--(?:src-|dest-)?creds')}["']?[^\\s:"',]{1,100}:`],
  ['etcdctl', `${spacedOrEqual('--user')}["']?[^\\s:"',]{1,100}:`],
  ['poetry|composer', `http-basic\\.[\\w.-]{1,100}${NEXT_ARGUMENT}${ARGUMENT}${NEXT_ARGUMENT}`],
  ['poetry|composer', `(?:pypi-token|\\w{1,20}-(?:oauth|token))\\.[\\w.-]{1,100}${NEXT_ARGUMENT}`],
  ['nuget(?:\\.exe)?', `${words('push')}${ARGUMENT}${NEXT_ARGUMENT}${LONG}`],
  ['vercel|netlify', `${spacedOrEqual('-t|--auth')}${LONG}`],
  ['supabase', `link${ARGUMENTS}${NEXT_ARGUMENT}-p${NEXT_ARGUMENT}`],
  ['security', `(?:unlock-keychain|import)${ARGUMENTS}${NEXT_ARGUMENT}-[pP]${NEXT_ARGUMENT}`],
  ['altool', spaced('-p')],
  ['sonar-scanner|mvnw?|gradlew?', '-Dsonar\\.login='],
  ['rclone', `(?:secret_access_key|client_secret|pass|token)(?:=|${NEXT_ARGUMENT})${NO_OPTION}`],
  ['nmcli', words('password')],
  ['wpa_passphrase', `(?!\\[)${ARGUMENT}${NEXT_ARGUMENT}`],
  ['rclone', words('obscure')],
  ['pdftk', spaced('(?:user|owner|input)_pw')],
  ['xfreerdp|wfreerdp|winrs', '[/-]p:'],
  ['signtool|schtasks', `/r?p${NEXT_ARGUMENT}`],
  ['lftp', `-u(?:${NEXT_ARGUMENT})?[^\\s,"']{1,100},`],
  ['rabbitmqctl', `(?:add_user|change_password)${NEXT_ARGUMENT}${ARGUMENT}${NEXT_ARGUMENT}`],
  ['jenkins-cli(?:\\.jar)?', `${spaced('-auth')}[^\\s:"',]{1,100}:`],
  ['influx', `${spaced('-t')}${LONG}`],
  ['snmp\\w+', spaced('-A')],
  ['snmp\\w+', spaced('-X')],
  ['snmp\\w+', spaced('-c')],
  ['db2', words('using')],
  ['swaks|smtp-cli', spaced('-ap|--pass')],
];

type ProgramRule = readonly [programs: string, ...pattern: SecretPattern];

const commandRule = ([programs, flags]: (typeof PLACES)[number]): ProgramRule => [
  programs,
  new RegExp(`(?<head>(?<![\\w-])(?:${programs})(?=[\\s"'\\\\])${ARGUMENTS}${NEXT_ARGUMENT}(?:${flags}))${VALUE}`, 'g'),
  KEEP_HEAD,
];
/** A list of `name=value`, each as one argument. */
const PAIRS = `(?:${NEXT_ARGUMENT}(?!-)\\\\{0,3}["']?[\\w./-]{1,100}=[^\\s"'\\\\,;|]{1,256}){1,20}`;

const RULES: readonly ProgramRule[] = [
  [
    'curl',
    /(?<head>(?<![\w-])curl(?=\s)[^\n]{0,300}?\s(?:-[a-zA-Z]{0,6}[uU]|--user|--proxy-user)[= ]?(?<quote>\\{0,31}["'])[\w.@-]{1,100}:)(?!\[redacted\]|\/\/)[^"'\n\\]{1,256}\k<quote>/g,
    `$<head>${REDACTED}$<quote>`,
  ],
  ...PLACES.map(commandRule),
  // A key in place of the user, without a password.
  [
    'curl',
    new RegExp(
      `((?<![\\w-])curl(?=[\\s"'\\\\])${ARGUMENTS}${NEXT_ARGUMENT}(?:-u|--user)(?:=|${NEXT_ARGUMENT}))[\\w-]{16,256}(?=:(?:[\\s"'\\\\]|$))`,
      'g',
    ),
    `$1${REDACTED}`,
  ],
  [
    'vault',
    new RegExp(
      `((?<![\\w-])vault${NEXT_ARGUMENT}(?:kv${NEXT_ARGUMENT}(?:put|patch)|write)(?:${NEXT_ARGUMENT}-[\\w=/-]{1,60}){0,4}${NEXT_ARGUMENT}[\\w./-]{1,200}(?=["'\\s\\\\]))${PAIRS}`,
      'g',
    ),
    `$1 ${REDACTED}`,
  ],
  [
    'fly|flyctl|doppler|heroku',
    new RegExp(
      `((?<![\\w-])(?:fly|flyctl|doppler|heroku)${NEXT_ARGUMENT}(?:secrets${NEXT_ARGUMENT}set|config:set))${PAIRS}`,
      'g',
    ),
    `$1 ${REDACTED}`,
  ],
  // A secret that is JSON, in quotes or as an argument in a list.
  ['aws', /(--secret-string[= ]{1,4}')(?!\[redacted\])[^'\n]{1,8192}(?=')/g, `$1${REDACTED}`],
  ['aws', /("--secret-(?:string|binary)"\s{0,4},\s{0,4}")(?:[^"\\]|\\.){1,8192}(?=")/g, `$1${REDACTED}`],
  [
    'echo|printf',
    /(?<head>(?<![\w-])(?:echo|printf)\s{1,4}(?:-n\s{1,4}|\\{0,3}["']%s(?:\\{1,4}n)?\\{0,3}["']\s{1,4})?)(?!\[redacted\])(?:(?<quote>\\{0,3}["'])[^"'\n\\]{1,256}\k<quote>|[^\s"'\\|]{1,256})(?=\s{0,4}\|\s{0,4}(?:[^\n|]{0,120}(?:--password-stdin|--with-token|--data-file=-|\bsecrets?\s+(?:set|put|create)\b)|vercel\s+env\s+add|cryptsetup|sudo\s+-S|kinit|passwd|chpasswd|smbpasswd|openssl\s))/g,
    KEEP_HEAD,
  ],
  [
    'sqlplus|expdp|impdp|sqlldr|rman',
    /((?:sqlplus|expdp|impdp|sqlldr|rman)\s{1,4}(?:-\w\s{1,4}){0,4}[\w$#]{1,60}\/(?:\\{0,3}")?)[^\s"'\\@[]{1,256}(?=(?:\\{0,3}")?@)/g,
    `$1${REDACTED}`,
  ],
  // A Kubernetes secret as kubectl prints it: its members are in the order of the alphabet.
  [
    'Secret',
    /((?:^|[\s"]|\\{1,4}n)(?:data|stringData):)(?:(?:\r?\n|\\{1,4}n)[ \t]{1,20}[\w.-]{1,100}:[ \t]{1,20}[^\n"\\]{1,8192}(?=[\n\\])){1,100}(?=[\s\S]{0,200}?kind: Secret\b)/g,
    `$1 ${REDACTED}`,
  ],
  [
    'Secret',
    /(?<head>(?<quote>\\{0,31}")(?:data|stringData)\k<quote>\s{0,4}:\s{0,4}\{)[^{}]{1,16384}(?=\}[\s\S]{0,200}?"kind\\{0,31}"\s{0,4}:\s{0,4}\\{0,31}"Secret\\{0,31}")/g,
    `$<head>$<quote>${REDACTED}$<quote>:0`,
  ],
  [
    'Secret',
    /(?<head>(?<quote>\\{0,31}")kind\k<quote>\s{0,4}:\s{0,4}\k<quote>Secret\k<quote>[\s\S]{0,1024}?\k<quote>(?:data|stringData)\k<quote>\s{0,4}:\s{0,4}\{)[^{}]{1,16384}(?=\})/g,
    `$<head>$<quote>${REDACTED}$<quote>:0`,
  ],
];

/** The names of the programs, each a pattern: the bars between them, but not those in a group. */
const PROGRAMS = [...new Set(RULES.flatMap(([programs]) => programs.split(/\|(?![^(]*\))/)))];
/** The letters with which a name begins in any case. */
const startOfName = (name: string) => /^[\w-]+?(?=\w[?*]|[^\w-]|$)/.exec(name)?.[0] ?? name;
/** Most texts name none of these programs. */
export const PROGRAM_NAME = new WordSearch(
  new RegExp(`(?<![\\w-])(?:${PROGRAMS.join('|')})(?![\\w-])`),
  PROGRAMS.map(startOfName),
);

export function programPatterns(text: string): readonly SecretPattern[] {
  const named = new Set<string>();
  for (let found = PROGRAM_NAME.find(text, 0); found !== undefined; ) {
    const [name] = found;
    named.add(name);
    found = PROGRAM_NAME.find(text, found.index + name.length);
  }
  return [...named].flatMap(patternsOf);
}

/** A cache, because commands name the same programs again and again. */
const patternsByProgram = new LimitedMap<string, readonly SecretPattern[]>(1_000);

function patternsOf(program: string): readonly SecretPattern[] {
  return getOrInsert(patternsByProgram, program, () =>
    RULES.filter(([programs]) => new RegExp(`^(?:${programs})$`).test(program)).map(
      ([, ...pattern]): SecretPattern => pattern,
    ),
  );
}
