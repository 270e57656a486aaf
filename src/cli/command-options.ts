/** Helpers for the declarations of commands. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { readExactJson } from '../shared/util/json/exact-json.ts';
import type { CliContext } from './context.ts';

/** Receives the exit code of the command. */
export type OnExit = (code: number) => void;

/**
 * Creates the action of a command. The action loads a module and calls its function `name` with the context, the values of `first`,
 * the arguments of the command line, and the options. `--json` is part of the context.
 */
export type Action = <Module>(
  load: () => Promise<Module>,
  name: keyof Module,
  ...first: unknown[]
) => (...args: unknown[]) => Promise<void>;

export function actionFactory(context: CliContext, end: OnExit): Action {
  return (load, name, ...first) =>
    async (...args) => {
      const work = (await load())[name] as (context: CliContext, ...args: unknown[]) => Promise<number>;
      // The last argument is the command itself, the one before it holds its options.
      const { json = false, ...options } = args.at(-2) as { readonly json?: boolean };
      end(await work({ ...context, json }, ...first, ...args.slice(0, -2), options));
    };
}

export function command(parent: Command, name: string, description: string, examples: readonly string[]): Command {
  const path = [...(parent.parent === null ? [] : ['pawl']), parent.name(), name].join(' ');
  return parent
    .command(name)
    .description(description)
    .showHelpAfterError(`'${path} --help' says what it takes, with examples.`)
    .addHelpText(
      'after',
      `\n${examples.length === 1 ? 'Example' : 'Examples'}:\n${examples.map((each) => `  ${each}`).join('\n')}`,
    );
}

/** A command that only holds others. */
export function commandGroup(parent: Command, name: string, description: string, examples: readonly string[]): Command {
  return command(parent, name, description, examples).usage('[ls|…]');
}

export function jsonOption(target: Command, description = 'print JSON'): Command {
  return target.option('--json', description);
}

export function limitOption(target: Command, defaultLimit = 50): Command {
  return target.option('--limit <n>', 'limit of the list', positiveInteger, defaultLimit);
}

export function portOption(): Option {
  return new Option('--port <n>', 'port of the HTTP API (default: PAWL_HTTP_PORT, or 7070)').argParser((text) => {
    const port = Number(text);
    if (!/^\d+$/.test(text) || port > 65_535) throw new InvalidArgumentError('A port is a number from 0 to 65535.');
    return port;
  });
}

/** The most processes that one command starts. */
export const MAX_WORKERS = 256;

/** Makes the parser of a count, which is bounded: a process has this many of something. */
export function countBetween(min: number, max: number): (text: string) => number {
  return (text) => {
    const number = Number(text);
    if (/^\d+$/.test(text) && number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

export function positiveInteger(text: string): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || number < 1 || !Number.isSafeInteger(number))
    throw new InvalidArgumentError('It must be a whole number above 0.');
  return number;
}

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A time span such as `10m` or `1.5h`, in milliseconds; a bare number is milliseconds. */
export function timeSpan(text: string): number {
  const [, number, unit = 'ms'] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text) ?? [];
  const ms = Math.round(Number(number) * (UNITS_MS[unit] ?? 1));
  if (number === undefined || !Number.isSafeInteger(ms))
    throw new InvalidArgumentError('It must be a time span, such as 90s, 10m, 2h or 3d.');
  return ms;
}

export function jsonValue(text: string): unknown {
  const read = readExactJson(text);
  if (read.kind === 'value') return read.value;
  throw new InvalidArgumentError(`It must be JSON; it ${read.problem}.`);
}
