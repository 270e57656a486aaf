/**
 * The part of a command that a standing approval can cover: its first two words, unless they leave open what runs. `sh -c` would allow
 * every script, and `sudo apt` everything that apt can do as root.
 */
import { posix } from 'node:path';
import { words } from '../util/text/words.ts';

/** Programs that run a program or text from anywhere in their arguments. */
const RUN_ARGUMENTS = words(`
  bwrap builtin busybox caffeinate chroot chrt cmd command deno doas entr env eval exec expect fd fdfind find firejail flock gdb ionice
  ltrace nice nohup nsenter parallel powershell prlimit pwsh rlwrap runuser script sed setarch setpriv setsid source ssh
  start-stop-daemon stdbuf strace su sudo systemd-run taskset time timeout toybox unbuffer unshare watch wsl xargs
`);

/** Programs that run the file named first. With an option, or nothing, in its place they may run any text. */
const RUN_A_FILE = words(`
  ash awk bash bun bunx csh dash elixir erl fish gawk git groovy java jshell julia ksh lua luajit make mawk mksh nawk node nodejs npx
  osascript perl php pypy python r rscript ruby rsh scala sh tclsh ts-node tsx uvx vi vim wish zsh
`);

/** Programs that run their further arguments after one of these subcommands. */
const RUN_SUBCOMMANDS = new Map<string, readonly string[]>(
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

/** Undefined where a standing approval can only cover the very same command. */
export function commandPrefixRule(command: readonly string[]): readonly string[] | undefined {
  const prefix = command.slice(0, 2);
  return prefix.length === 0 || isOpenPrefix(prefix) ? undefined : prefix;
}

/** Whether a prefix does not determine the program that runs. */
export function isOpenPrefix([program = '', second]: readonly string[]): boolean {
  const name = programName(program);
  if (RUN_ARGUMENTS.includes(name)) return true;
  const isOption = second === undefined || /^[-+]/.test(second);
  const subcommands = RUN_SUBCOMMANDS.get(name);
  if (!RUN_A_FILE.includes(name) && subcommands === undefined) return false;
  return isOption || subcommands?.includes(second) === true;
}

/** The plain name of a program, without folder and version: `python` for `/opt/venv/bin/python3.12`. */
function programName(program: string): string {
  const name = posix.basename(program).toLowerCase();
  return name.replace(/\.exe$/, '').replace(/(?<=\D)-?[\d.]+$/, '');
}
