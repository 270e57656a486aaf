/** Runs in the thread of `schema-thread.ts`. */
import { isMainThread, parentPort } from 'node:worker_threads';
import type { Issue } from '../errors/failure.ts';
import type { JsonSchema } from './json-schema.ts';
import { type CompiledSchema, compiledSchema, markValid } from './schema.ts';
import { sanitizeSchema } from './schema-sanitize.ts';

/** Schemas and values travel as JSON, which is far quicker to copy than objects. */
export type ThreadTask =
  | { readonly foreign: string; readonly of: 'parameters' | 'output' }
  | {
      readonly number: number;
      readonly value: string | undefined;
      /** The schema, where the thread does not know it by its number. */
      readonly schema?: string;
      readonly isValid?: boolean;
      /** All schemas before this one are forgotten. */
      readonly forget: boolean;
    };

export type ThreadAnswer =
  | { readonly sanitized: string }
  | { readonly issues: readonly Issue[] }
  | { readonly error: string };

const schemas = new Map<number, CompiledSchema>();

if (!isMainThread)
  parentPort?.on('message', (task: ThreadTask) => {
    parentPort?.postMessage(answerTo(task));
  });

function answerTo(task: ThreadTask): ThreadAnswer {
  try {
    if ('foreign' in task) {
      const sanitized = sanitizeSchema(JSON.parse(task.foreign), task.of);
      compiledSchema(sanitized.schema);
      return { sanitized: JSON.stringify(sanitized) };
    }
    return { issues: knownSchema(task).check(task.value === undefined ? undefined : JSON.parse(task.value)) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

function knownSchema({ number, schema, isValid, forget }: Exclude<ThreadTask, { foreign: string }>): CompiledSchema {
  if (forget) schemas.clear();
  const known = schemas.get(number);
  if (known !== undefined) return known;
  if (schema === undefined) throw new Error(`schema ${number} did not come with the value`);
  const parsed = JSON.parse(schema) as JsonSchema;
  if (isValid === true) markValid(parsed);
  const compiled = compiledSchema(parsed);
  schemas.set(number, compiled);
  return compiled;
}
