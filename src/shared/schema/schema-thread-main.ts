/** Runs in the thread of `schema-thread.ts`. */
import { isMainThread, parentPort } from 'node:worker_threads';
import type { Issue } from '../errors/failure.ts';
import { reasonOf } from '../errors/failure.ts';
import type { JsonSchema } from './json-schema.ts';
import { type CompiledSchema, compiledSchema, markValid } from './schema.ts';
import { sanitizeSchema } from './schema-sanitize.ts';
import { withoutNulls } from './without-nulls.ts';

/** Schemas and values are sent as JSON, which is copied much faster than objects. */
export type ThreadTask =
  | { readonly foreign: string; readonly of: 'parameters' | 'output' }
  | {
      readonly does: 'check' | 'nulls';
      readonly number: number;
      readonly value: string | undefined;
      /** The schema, where the thread does not have it yet. */
      readonly schema?: string;
      readonly isValid?: boolean;
      /** All schemas before this one are forgotten. */
      readonly forget: boolean;
    };

export type ThreadAnswer =
  | { readonly sanitized: string }
  | { readonly issues: readonly Issue[] }
  /** The value without nulls, where there were some to remove. */
  | { readonly value: string }
  | { readonly unchanged: true }
  | { readonly error: string };

const schemas = new Map<number, { readonly schema: JsonSchema; readonly compiled: CompiledSchema }>();

if (!isMainThread)
  parentPort?.on('message', (task: ThreadTask) => {
    parentPort?.postMessage(runTask(task));
  });

function runTask(task: ThreadTask): ThreadAnswer {
  try {
    if ('foreign' in task) {
      const sanitized = sanitizeSchema(JSON.parse(task.foreign), task.of);
      compiledSchema(sanitized.schema);
      return { sanitized: JSON.stringify(sanitized) };
    }
    const { schema, compiled } = cachedSchema(task);
    const value: unknown = task.value === undefined ? undefined : JSON.parse(task.value);
    if (task.does === 'check') return { issues: compiled.check(value) };
    const result = withoutNulls(schema, value);
    return result === value ? { unchanged: true } : { value: JSON.stringify(result) };
  } catch (error) {
    return { error: reasonOf(error) };
  }
}

function cachedSchema({ number, schema, isValid, forget }: Exclude<ThreadTask, { foreign: string }>) {
  if (forget) schemas.clear();
  const cached = schemas.get(number);
  if (cached !== undefined) return cached;
  if (schema === undefined) throw new Error(`schema ${number} did not come with the value`);
  const parsed = JSON.parse(schema) as JsonSchema;
  if (isValid === true) markValid(parsed);
  const result = { schema: parsed, compiled: compiledSchema(parsed) };
  schemas.set(number, result);
  return result;
}
