/** Reads the parameters of a call, as the command line gives them. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { reasonOf } from '../shared/errors/failure.ts';
import { readExactJson } from '../shared/util/json/exact-json.ts';
import { isObject } from '../shared/util/json/json-types.ts';
import { startOf } from '../shared/util/text/text-cut.ts';
import { type CliContext, usageError } from './context.ts';

/** Reads literal JSON, or JSON from `@FILE`, or from standard input with `-`. */
export async function readParams(context: CliContext, argument: string): Promise<Readonly<Record<string, unknown>>> {
  const source = argument === '-' ? 'standard input' : argument.startsWith('@') ? argument.slice(1) : '--params';
  const read = async (): Promise<Uint8Array | string> => {
    if (argument === '-') return buffer(context.input);
    if (!argument.startsWith('@')) return argument;
    try {
      return await readFile(resolve(context.cwd, source));
    } catch (error) {
      throw usageError(`The parameters cannot be read: ${reasonOf(error)}.`);
    }
  };
  const content = await read();
  const parsed = readExactJson(content);
  if (parsed.kind === 'problem')
    throw usageError(
      `The parameters (${source}) ${parsed.problem.replace(/^is /, 'are ').replace(/^holds /, 'hold ')}. An example: --params '{"path":"README.md"}'`,
    );
  const params = parsed.value;
  if (!isObject(params))
    throw usageError(
      `The parameters (${source}) must be a JSON object such as {"path":"README.md"}; got ${startOf(content.toString(), 40)}.`,
    );
  return params as Record<string, unknown>;
}
