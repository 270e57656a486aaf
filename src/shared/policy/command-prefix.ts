/**
 * What of a command may be remembered as allowed (C24): its first two words, unless they leave open what runs. `sh -c` would allow
 * every script there is, and `sudo apt` whatever apt can do as root.
 */
import { posix } from 'node:path';

/** They run a program, or a text, that is named somewhere behind them. */
const RUN_WHAT_FOLLOWS = words(`
  bwrap builtin busybox caffeinate chroot chrt cmd command deno doas entr env eval exec expect fd fdfind find firejail flock gdb ionice
  ltrace nice nohup nsenter parallel powershell prlimit pwsh rlwrap runuser script sed setarch setpriv setsid source ssh
  start-stop-daemon stdbuf strace su sudo systemd-run taskset time timeout toybox unbuffer unshare watch wsl xargs
`);

/** They run a file that is named first; with an option, or nothing, in its place it may be any text. */
const RUN_A_FILE = words(`
  ash awk bash bun bunx csh dash elixir erl fish gawk git groovy java jshell julia ksh lua luajit make mawk mksh nawk node nodejs npx
  osascript perl php pypy python r rscript ruby rsh scala sh tclsh ts-node tsx uvx vi vim wish zsh
`);

/** They do many things; what they do under these words is to run what follows. */
const RUN_UNDER = new Map<string, readonly string[]>(
  Object.entries({
    bundle: ['exec'],
    docker: ['compose', 'container', 'exec', 'run'],
    kubectl: ['debug', 'exec', 'run'],
    nerdctl: ['compose', 'exec', 'run'],
    nix: ['develop', 'run', 'shell'],
    npm: ['exec', 'x'],
    pipx: ['run'],
    pnpm: ['dlx', 'exec'],
    podman: ['compose', 'container', 'exec', 'run'],
    poetry: ['run'],
    uv: ['run', 'tool'],
    yarn: ['dlx', 'exec'],
  }),
);

/** Undefined where only the very same command is like this one. */
export function commandPrefixRule(command: readonly string[]): readonly string[] | undefined {
  const prefix = command.slice(0, 2);
  return prefix.length === 0 || isOpen(prefix) ? undefined : prefix;
}

/** Whether a prefix leaves open what runs. */
export function isOpen([program = '', second]: readonly string[]): boolean {
  const name = nameOf(program);
  if (RUN_WHAT_FOLLOWS.has(name)) return true;
  const isOption = second === undefined || /^[-+]/.test(second);
  const under = RUN_UNDER.get(name);
  if (!RUN_A_FILE.has(name) && under === undefined) return false;
  return isOption || under?.includes(second) === true;
}

/** Of `/opt/venv/bin/python3.12`, `python`: wherever it lies, and of whatever version. */
function nameOf(program: string): string {
  const name = posix.basename(program).toLowerCase();
  return name.replace(/\.exe$/, '').replace(/(?<=\D)-?[\d.]+$/, '');
}

function words(text: string): ReadonlySet<string> {
  return new Set(text.trim().split(/\s+/));
}
