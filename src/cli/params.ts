/** Reads the parameters of a call, as the command line gives them. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { reasonOf } from '../shared/errors/failure.ts';
import { readExactJson } from '../shared/util/json/exact-json.ts';
import { isObject } from '../shared/util/json/json-types.ts';
import { startOf } from '../shared/util/text/text-cut.ts';
import { type CliContext, usageError } from './context.ts';

/** The words for what is read, in messages. */
interface Wording {
  readonly subject: string;
  readonly isPlural: boolean;
  /** A JSON object of this kind. */
  readonly example: string;
  /** The option that gives it, where it is not read from a file. */
  readonly option: string;
}

const PARAMS: Wording = {
  subject: 'The parameters',
  isPlural: true,
  example: '{"path":"README.md"}',
  option: '--params',
};
const PLAN: Wording = {
  subject: 'The plan',
  isPlural: false,
  example: '{"nodes":{"list":{"tool":"list_dir","params":{"path":"."}}}}',
  option: '',
};

/** Reads literal JSON, or JSON from `@FILE`, or from standard input with `-`. */
export function readParams(context: CliContext, argument: string): Promise<Readonly<Record<string, unknown>>> {
  return readObject(context, argument, PARAMS);
}

/** Reads a plan from a file, or from standard input with `-`. */
export function readPlan(context: CliContext, file: string): Promise<Readonly<Record<string, unknown>>> {
  return readObject(context, file === '-' ? '-' : `@${file}`, PLAN);
}

async function readObject(
  context: CliContext,
  argument: string,
  { subject, isPlural, example, option }: Wording,
): Promise<Readonly<Record<string, unknown>>> {
  const source = argument === '-' ? 'standard input' : argument.startsWith('@') ? argument.slice(1) : option;
  const read = async (): Promise<Uint8Array | string> => {
    if (argument === '-') return buffer(context.input);
    if (!argument.startsWith('@')) return argument;
    try {
      return await readFile(resolve(context.cwd, source));
    } catch (error) {
      throw usageError(`${subject} cannot be read: ${reasonOf(error)}.`);
    }
  };
  const content = await read();
  const parsed = readExactJson(content);
  if (parsed.kind === 'problem') {
    const problem = isPlural ? parsed.problem.replace(/^is /, 'are ').replace(/^holds /, 'hold ') : parsed.problem;
    const shown = option === '' ? example : `${option} '${example}'`;
    throw usageError(`${subject} (${source}) ${problem}. An example: ${shown}`);
  }
  const value = parsed.value;
  if (!isObject(value))
    throw usageError(
      `${subject} (${source}) must be a JSON object such as ${example}; got ${startOf(content.toString().trim(), 40)}.`,
    );
  return value as Record<string, unknown>;
}
