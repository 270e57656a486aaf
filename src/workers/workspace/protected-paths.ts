/**
 * The trust boundary for all workspaces of this process. A call can write no code that runs outside of the sandbox, and no file that such
 * code reads as instructions. A workspace is often the very folder in which Pawl was started, and then holds both.
 *
 * - Hidden: Pawl's data folder, its configuration, files with secrets, other tenants' workspaces, credentials in home folders.
 * - Read-only: what Pawl executes and loads (`protectCode`), existing or not, and what the workspace's owner runs later (`owner-files.ts`).
 *
 * Every access to a workspace checks this: file tools for each name on their way, sandboxes for their mounts.
 */
import { existsSync, lstatSync, readdirSync, realpathSync, type Stats } from 'node:fs';
import { homedir, tmpdir, userInfo } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';
import { readOnlyPathsOf } from '../../shared/policy/read-only-paths.ts';
import { liesIn } from '../../shared/util/file-path.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { foldersAbove, pathsNamedIn } from './named-files.ts';
import { foldCase, isOwnerFile } from './owner-files.ts';
import { codeOfOthers, writeCodeNames } from './shared-code.ts';

/** Each name with its folded form: where a file system ignores case, another spelling leads to the same file. */
type Names = Map<string, string>;

const folders: Names = new Map();
const files: Names = new Map();
const code: Names = new Map();
let ownerFiles: readonly string[] = readOnlyPathsOf(undefined);

/** Hides a folder from all tools. It need not exist yet. */
export function protectFolder(path: string): void {
  addName(folders, resolve(path));
}

/** Hides a file, existing or not, given by its real path. */
export function protectFile(path: string): void {
  addName(files, resolve(path));
}

/** Makes code that Pawl executes or loads read-only: a file or a folder, existing or not. Tools may read it. */
export function protectCode(path: string): void {
  const name = realName(path);
  if (![...code.keys()].some((each) => liesIn(each, name))) addName(code, name);
}

function addName(names: Names, name: string): void {
  names.set(name, foldCase(name));
}

function hasName(names: Names, path: string): boolean {
  return [...names.values()].includes(foldCase(path));
}

/** Shares this process's code with the other processes of the data folder on this machine, and protects theirs from its calls. */
export function shareCode(dataDir: string): void {
  writeCodeNames(dataDir, [...code.keys()]);
}

/** Adds the code of the other processes that run. It stays code when they end, because they may start again. */
function addCodeOfOthers(): void {
  for (const name of codeOfOthers()) addName(code, name);
}

/** Makes the files that a workspace's owner runs later read-only, as the setting `readOnlyPaths` names them. */
export function protectOwnerFiles(paths: readonly string[]): void {
  ownerFiles = paths;
}

/** Whether `path` is a hidden file. A search checks this for every file. */
export function isProtectedFile(path: string): boolean {
  return hasName(files, path);
}

/** Whether `path`, a real one, is a hidden folder or file. */
export function isProtected(path: string): boolean {
  if (hasName(files, path) || hasName(folders, path)) return true;
  const folded = foldCase(path);
  return [...protectedFolders(), ...credentials()].some((each) => foldCase(each) === folded);
}

/** Real paths of the hidden folders that exist. */
export function protectedFolders(): readonly string[] {
  return realPaths([...folders.keys()]);
}

/** The real paths of those that exist. */
export function realPaths(paths: readonly string[]): readonly string[] {
  return paths.filter((path) => existsSync(path)).map((path) => realpathSync(path));
}

/** Hidden files, existing or not. */
export function protectedFiles(): readonly string[] {
  return [...files.keys()];
}

/** Code that Pawl executes or loads, existing or not, by the real paths of its folders. */
export function protectedCode(): readonly string[] {
  addCodeOfOthers();
  return [...code.keys()];
}

/** All protected names, each by the real path of its folder. A name may be a link, which is then not followed. */
export function protectedNames(): readonly string[] {
  return [...[...folders.keys()].map(realName), ...files.keys(), ...protectedCode()];
}

export function isProtectedCode(path: string): boolean {
  addCodeOfOthers();
  const folded = foldCase(path);
  return [...code.values()].some((each) => liesIn(each, folded));
}

export function ownerFilePaths(): readonly string[] {
  return ownerFiles;
}

/**
 * Throws `PERMISSION_DENIED` for a name that no call may make, change or remove. `path` is real except for its last
 * name, `root` is the workspace's; `stats` describe the present file.
 */
export function refuseReadOnly(path: string, root: string, stats: Stats | undefined, requestedPath: string): void {
  const quotedPath = JSON.stringify(requestedPath);
  if (isProtectedCode(path) || isLinkToCode(stats))
    throw new PawlError(
      'PERMISSION_DENIED',
      `${quotedPath} is code that Pawl runs outside of the sandbox, or decides what it loads: no tool may change it.`,
    );
  if (isOwnerFile(path, root, ownerFiles, stats?.isDirectory() === true) || isNamed(path))
    throw new PawlError(
      'PERMISSION_DENIED',
      `${quotedPath} is run later by programs of the workspace's owner: no tool may change it (setting readOnlyPaths).`,
    );
}

/** The paths that the settings of git, Yarn and direnv in these folders name, where the settings themselves are read-only. */
export function namedFiles(folders: readonly string[]): readonly string[] {
  return pathsNamedIn(folders, ownerFiles);
}

function isNamed(path: string): boolean {
  const folded = foldCase(path);
  return namedFiles(foldersAbove(dirname(path))).some((named) => liesIn(foldCase(named), folded));
}

/** The stats of the name itself, not of a link's target; undefined where it does not or cannot exist. */
export function statsOf(path: string): Stats | undefined {
  return orUndefined(() => lstatSync(path));
}

/** Whether a name is a hard link to code, or the same name in other letters on a file system that ignores case. */
function isLinkToCode(stats: Stats | undefined): boolean {
  if (stats === undefined || !stats.isFile()) return false;
  if (stats.nlink === 1 && process.platform === 'linux') return false;
  return protectedCode().some((each) => {
    const ownStats = statsOf(each);
    return ownStats !== undefined && ownStats.ino === stats.ino && ownStats.dev === stats.dev;
  });
}

/** Resolves the folder of `path`, which need not exist. A link at its end is kept. */
export function realName(path: string): string {
  const absolute = resolve(path);
  const parent = dirname(absolute);
  if (parent === absolute) return absolute;
  return join(existsSync(parent) ? realpathSync(parent) : realName(parent), basename(absolute));
}

const HOME_CREDENTIALS =
  `.ssh .aws .azure .docker .gnupg .kube .netrc .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .git-credentials .gem/credentials
  .cargo/credentials .cargo/credentials.toml .config/gh .config/hub .config/git/credentials .config/gcloud .config/containers .config/rclone
  .config/op .config/sops .terraform.d .vault-token .password-store .m2/settings.xml .gradle/gradle.properties .composer/auth.json
  .claude.json .claude/.credentials.json .codex/auth.json .gemini/oauth_creds.json .local/share/opencode/auth.json .config/github-copilot
  .oci .aliyun .fly .railway .mc .s3cfg .boto .config/doctl .config/scw .config/hcloud .config/linode-cli .config/netlify .config/.wrangler
  .local/share/com.vercel.cli .config/configstore .config/stripe .config/glab-cli .config/helm/registry .terraformrc .pulumi/credentials.json
  .databrickscfg .snowflake .snowsql .kaggle .cache/huggingface/token .cache/huggingface/stored_tokens .local/share/gem/credentials
  .bundle/config .config/pypoetry/auth.toml .nuget/NuGet/NuGet.Config .m2/settings-security.xml .sbt/.credentials .ivy2/.credentials
  .config/composer/auth.json .subversion/auth .mylogin.cnf .authinfo .msmtprc .config/solana .ethereum .bitcoin
  .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .mozilla .thunderbird .local/share/keyrings
  .bash_history .zsh_history .node_repl_history .psql_history .mysql_history .rediscli_history .python_history
  .mcp-auth .openclaw .qwen/oauth_creds.json .copilot/config.json .factory/auth.json .local/share/amp/secrets.json .config/goose/secrets.yaml
  .local/share/crush/crush.json .continue/config.yaml .continue/config.json .claude-code-router .config/aichat .config/io.datasette.llm
  .ollama/id_ed25519 .lightning/credentials.json .modal.toml .supabase/access-token .config/neonctl .config/turso .sentryclirc .wakatime.cfg
  .doppler .infisical .cloudflared .config/ngrok .ngrok2 .expo/state.json .render/cli.yaml .cf .bluemix .tccli .config/yandex-cloud
  .config/exoscale .civo.json .dbt/profiles.yml .prefect/profiles.toml .pg_service.conf .local/share/DBeaverData .config/JetBrains
  .local/share/uv/credentials .config/pip/pip.conf .pip/pip.conf .condarc .config/nix/nix.conf .config/nix/netrc .config/cachix .hex/hex.config
  .config/dart/pub-credentials.json .argocd .config/argocd .rancher .minikube .talos .tsh .step .chef .vault_pass .vault_pass.txt .putty
  .config/filezilla .config/rbw .local/share/kwalletd .config/Code/User/globalStorage .config/Cursor/User/globalStorage .config/vivaldi
  .config/opera .zen .librewolf snap/firefox .config/discord .config/Slack .config/Signal .local/share/atuin .local/share/fish/fish_history
  .viminfo .lesshst Library/Keychains .config/borg .config/age .gsutil .twilio-cli .circleci .wrangler .davfs2 .smbcredentials .vnc/passwd
  .local/share/remmina .local/share/jupyter/runtime .config/nats .config/keybase .electrum .monero .pki .fetchmailrc .mbsyncrc
  .offlineimaprc .config/msmtp .config/neomutt .config/aerc .config/himalaya .config/tea .jira.d .vagrant.d/insecure_private_keys .openai
  .anthropic .config/openai .config/anthropic .sqlite_history .irb_history .mongodb .duckdb_history .zhistory .histfile .ash_history
  .local/share/zsh/history .local/share/nvim/shada .local/state/nvim/shada`.split(/\s+/);
const MACHINE_CREDENTIALS =
  `/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private /etc/krb5.keytab
  /etc/docker /etc/rancher /etc/kubernetes /var/lib/kubelet /etc/security/opasswd /etc/pki/tls/private /etc/letsencrypt /etc/wireguard
  /etc/openvpn /etc/ipsec.secrets /etc/ipsec.d/private /etc/swanctl /etc/ppp/chap-secrets /etc/ppp/pap-secrets /etc/wpa_supplicant
  /etc/NetworkManager/system-connections /etc/netplan /etc/credstore /etc/credstore.encrypted /etc/redis /etc/mysql/debian.cnf
  /etc/postfix/sasl_passwd /etc/exim4/passwd.client /etc/msmtprc /etc/samba/private /var/lib/samba/private /etc/apt/auth.conf
  /etc/apt/auth.conf.d /etc/gitlab /etc/gitlab-runner /etc/buildkite-agent /etc/cloudflared /etc/vault.d /var/lib/tailscale /var/lib/cloud
  /var/lib/docker /var/backups /var/spool/cron`.split(/\s+/);

/** The homes of this user, from the system, or from the environment unless that names a temporary folder, and those of others. */
export function knownHomes(): readonly string[] {
  const own = [...homesOfUser(), ...(liesIn(tmpdir(), homedir()) ? [] : [homedir()])];
  return [...own, ...realPaths([...own, ...homesOfUsers()])];
}

function homesOfUser(): readonly string[] {
  // Some containers have no entry for the user ID in the user database.
  return orUndefined(() => [userInfo().homedir]) ?? [];
}

function homesOfUsers(): readonly string[] {
  return ['/home', '/Users'].flatMap((parent) => namesIn(parent).map((name) => join(parent, name)));
}

/** The home folders on this machine that can be found. */
function homeFolders(): readonly string[] {
  return [...new Set([homedir(), ...homesOfUser(), '/root', ...homesOfUsers()])];
}

let cached: { readonly atMs: number; readonly paths: readonly string[] } | undefined;
const CACHE_MS = 5_000;

/** Real paths of files and folders with people's credentials. They are looked up again after a while, because they can change. */
export function credentials(): readonly string[] {
  const nowMs = performance.now();
  if (cached !== undefined && nowMs - cached.atMs < CACHE_MS) return cached.paths;
  const hostKeys = namesIn('/etc/ssh').filter((name) => /^ssh_host_.*_key$/.test(name));
  const paths = [
    ...homeFolders().flatMap((home) => HOME_CREDENTIALS.map((name) => join(home, name))),
    ...MACHINE_CREDENTIALS,
    ...hostKeys.map((name) => join('/etc/ssh', name)),
  ];
  // This worker may not read another user's home folder; then none of its programs can either.
  cached = { atMs: nowMs, paths: [...new Set(paths.flatMap((path) => orUndefined(() => realpathSync(path)) ?? []))] };
  return cached.paths;
}

function namesIn(folder: string): readonly string[] {
  return orUndefined(() => readdirSync(folder)) ?? [];
}
