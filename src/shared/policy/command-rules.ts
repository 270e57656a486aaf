/** The commands that a call may start, and the rules that match them. */
import { posix } from 'node:path';
import type { ToolRule } from './policy-file.ts';
import { SEVERITY } from './policy-request.ts';
import { ANY_COMMAND, readCommandText, type SimpleCommand } from './shell-command.ts';

/**
 * The rule with the longest prefix that the command starts with; the strictest of equally long ones. For a command that may continue in any
 * way, all rules that it might match. Unless `isExact`, no rule allows it.
 */
export function commandRulesFor({ commands = [] }: ToolRule, { words, open }: SimpleCommand, isExact: boolean) {
  const matchingRules = commands
    .map((rule, index) => ({ rule, index }))
    .filter(({ rule: { prefix, decision } }) => {
      if (decision === 'allow') return isExact && commandStartsWith(words, prefix);
      if (open && words.length === 0) return true;
      const comparable = open ? prefix.slice(0, words.length) : prefix;
      return commandStartsWith(words, comparable) || sameProgramAndWords(words, comparable);
    })
    .sort(
      (a, b) => b.rule.prefix.length - a.rule.prefix.length || SEVERITY[b.rule.decision] - SEVERITY[a.rule.decision],
    );
  return open ? matchingRules : matchingRules.slice(0, 1);
}

/**
 * Whether a command, in the form that `commandOf` returns, starts with the prefix. The prefix may name its program with a system folder.
 */
export function commandStartsWith(command: readonly string[], prefix: readonly string[]): boolean {
  const [program = '', ...rest] = prefix;
  return [programOf(program), ...rest].every((word, index) => command[index] === word);
}

/** Compares program names without their folders: a program that is denied under one name is denied in every folder. */
function sameProgramAndWords(
  [program = '', ...rest]: readonly string[],
  [expectedProgram = '', ...words]: readonly string[],
): boolean {
  return commandStartsWith([posix.basename(program), ...rest], [posix.basename(expectedProgram), ...words]);
}

/** Parameters that hold a command, under the names that tools use; schemas need not mark them. */
const COMMAND_NAMES = ['command', 'argv', 'cmd'] as const;

function commandsIn(params: Readonly<Record<string, unknown>> | undefined): readonly unknown[] {
  return COMMAND_NAMES.map((name) => params?.[name]).filter((command) => command !== undefined && command !== null);
}

/** The argument vector of a call that starts a program; undefined without one, or where there may be several. */
export function commandOf(params: Readonly<Record<string, unknown>> | undefined): readonly string[] | undefined {
  const commands = commandsIn(params);
  return commands.length === 1 ? commandWords(commands[0]) : undefined;
}

function commandWords(command: unknown): readonly string[] | undefined {
  if (!Array.isArray(command) || !command.every((word) => typeof word === 'string')) return undefined;
  const [program = '', ...rest] = command as readonly string[];
  return [programOf(program), ...rest];
}

/** Shells whose command texts `readCommandText` can read. */
const SHELLS = new Set(['sh', 'ash', 'bash', 'dash', 'ksh']);

/** The commands that a call may start. `isExact` means these and no others; only then can rules allow them. */
export function startedCommands(params: Readonly<Record<string, unknown>> | undefined): {
  readonly commands: readonly SimpleCommand[];
  readonly isExact: boolean;
} {
  const commands = commandsIn(params);
  const shell = params?.['shell'];
  const isText = typeof shell !== 'string' || SHELLS.has(programOf(shell));
  const parsed = commands.map((command) => {
    const words = commandWords(command);
    if (words !== undefined) return { commands: [{ words, open: false }], plain: true };
    if (typeof command !== 'string' || !isText) return { commands: [ANY_COMMAND], plain: false };
    const { commands, plain } = readCommandText(command);
    return {
      commands: commands.map(({ words: [program, ...rest], open }) => ({
        words: program === undefined ? [] : [programOf(program), ...rest],
        open,
      })),
      plain,
    };
  });
  return {
    commands: parsed.flatMap(({ commands }) => commands),
    isExact: parsed.length === 1 && parsed.every(({ plain }) => plain),
  };
}

const SYSTEM_FOLDER = /^(?:(?:\/usr(?:\/local)?)?\/s?bin|\/opt\/homebrew\/bin|\/run\/current-system\/sw\/bin)$/;

/** The name of a program: `/bin/rm` and `rm` are one program, but `./rm` may be anything, even put there by the caller. */
function programOf(word: string): string {
  return SYSTEM_FOLDER.test(posix.dirname(word)) ? posix.basename(word) : word;
}
