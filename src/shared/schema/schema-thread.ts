/**
 * The thread that compiles and checks large schemas and values, one after the other. It is started when it is first needed. A task that
 * takes too long or too much memory ends the thread; the next task starts another.
 */
import { Worker } from 'node:worker_threads';
import { type Issue, PawlError } from '../errors/failure.ts';
import type { JsonSchema } from './json-schema.ts';
import { isMarkedValid } from './schema.ts';
import type { SanitizedSchema } from './schema-sanitize.ts';
import type { ThreadAnswer, ThreadTask } from './schema-thread-main.ts';

/** The thread's entry file, which the main thread does not load. A CommonJS bundle has no `import.meta.url`. */
const fileOfThread = () =>
  new URL(import.meta.url.endsWith('.ts') ? './schema-thread-main.ts' : './schema-thread-main.js', import.meta.url);

const CHECK_LIMIT_MS = 2_000;
/** The time for a check whose schema must be compiled first. */
const COMPILE_LIMIT_MS = 10_000;
const MAX_MEMORY_MB = 512;
/** The thread keeps so many schemas. */
const MAX_SCHEMAS = 200;

interface SchemaJob {
  /** Makes the task when it is sent, so that a long queue holds no copies. */
  task(): ThreadTask;
  readonly limitMs: () => number;
  readonly resolve: (answer: ThreadAnswer | 'too-long' | 'too-much-memory') => void;
  readonly reject: (error: Error) => void;
}

const queue: SchemaJob[] = [];
let thread: Worker | undefined;
let running: SchemaJob | undefined;
let timer: NodeJS.Timeout | undefined;

/** The number of each schema, and the numbers that the current thread has. */
const numbers = new WeakMap<JsonSchema, number>();
let count = 0;
const sentSchemas = new Set<number>();

/** Throws `CONFIGURATION` when the schema itself is not valid. */
export async function checkInThread(schema: JsonSchema, value: unknown): Promise<readonly Issue[]> {
  const answer = await runWithSchema(schema, 'check', value);
  if (answer === 'too-long')
    return [{ path: '', message: `takes more than ${CHECK_LIMIT_MS / 1_000} s to check by this schema` }];
  if (answer === 'too-much-memory') return [{ path: '', message: 'takes too much memory to check by this schema' }];
  if ('error' in answer) throw new PawlError('CONFIGURATION', answer.error);
  return 'issues' in answer ? answer.issues : [];
}

/** `withoutNulls` for a large value. Where that takes too long, nothing is removed. */
export async function withoutNullsInThread(schema: JsonSchema, value: unknown): Promise<unknown> {
  const answer = await runWithSchema(schema, 'nulls', value);
  return typeof answer === 'object' && 'value' in answer ? JSON.parse(answer.value) : value;
}

async function runWithSchema(schema: JsonSchema, action: 'check' | 'nulls', value: unknown) {
  const number = numbers.get(schema) ?? ++count;
  numbers.set(schema, number);
  const answer = await run({
    task: () => schemaTask(number, schema, action, value),
    limitMs: () => (sentSchemas.has(number) ? CHECK_LIMIT_MS : COMPILE_LIMIT_MS),
  });
  // The thread keeps no schema that it could not compile.
  if (typeof answer === 'object' && 'error' in answer) sentSchemas.delete(number);
  return answer;
}

function schemaTask(number: number, schema: JsonSchema, action: 'check' | 'nulls', value: unknown): ThreadTask {
  if (sentSchemas.size >= MAX_SCHEMAS && !sentSchemas.has(number)) sentSchemas.clear();
  const isFirst = sentSchemas.size === 0;
  const isSent = sentSchemas.has(number);
  sentSchemas.add(number);
  return {
    does: action,
    number,
    value: JSON.stringify(value),
    forget: isFirst,
    ...(isSent ? {} : { schema: JSON.stringify(schema), isValid: isMarkedValid(schema) }),
  };
}

/** Repairs and compiles a foreign schema. Throws `CONFIGURATION` when it is not valid, too costly, or takes too long. */
export async function sanitizeInThread(foreign: JsonSchema, of: 'parameters' | 'output'): Promise<SanitizedSchema> {
  const answer = await run({
    task: () => ({ foreign: JSON.stringify(foreign), of }),
    limitMs: () => COMPILE_LIMIT_MS,
  });
  if (answer === 'too-long' || answer === 'too-much-memory') {
    const reason = answer === 'too-long' ? `more than ${COMPILE_LIMIT_MS / 1_000} s` : 'too much memory';
    throw new PawlError('CONFIGURATION', `The schema is too costly: to compile it takes ${reason}.`);
  }
  if ('error' in answer) throw new PawlError('CONFIGURATION', answer.error);
  if (!('sanitized' in answer)) throw new Error('the schema thread answered something else');
  return JSON.parse(answer.sanitized) as SanitizedSchema;
}

function run(job: Pick<SchemaJob, 'task' | 'limitMs'>): Promise<ThreadAnswer | 'too-long' | 'too-much-memory'> {
  return new Promise((resolve, reject) => {
    queue.push({ ...job, resolve, reject });
    startNext();
  });
}

function startNext(): void {
  if (running !== undefined) return;
  running = queue.shift();
  if (running === undefined) {
    thread?.unref();
    return;
  }
  const limitMs = running.limitMs();
  try {
    thread ??= startThread();
    thread.ref();
    thread.postMessage(running.task());
  } catch (error) {
    // JSON has no form for the value, or the thread cannot start.
    finishJob((job) => job.reject(error instanceof Error ? error : new Error(String(error))));
    return;
  }
  timer = setTimeout(() => stopThread('too-long'), limitMs);
}

function finishJob(settle: (job: SchemaJob) => void): void {
  clearTimeout(timer);
  const job = running;
  running = undefined;
  if (job !== undefined) settle(job);
  startNext();
}

function stopThread(reason: 'too-long' | 'too-much-memory'): void {
  void thread?.terminate();
  thread = undefined;
  sentSchemas.clear();
  finishJob((job) => job.resolve(reason));
}

function startThread(): Worker {
  const started = new Worker(fileOfThread(), {
    name: 'schemas',
    resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MB },
  });
  const isCurrent = () => thread === started;
  started.on('message', (answer: ThreadAnswer) => {
    if (isCurrent()) finishJob((job) => job.resolve(answer));
  });
  started.on('error', (error: NodeJS.ErrnoException) => {
    if (!isCurrent()) return;
    if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') return stopThread('too-much-memory');
    thread = undefined;
    sentSchemas.clear();
    finishJob((job) => job.reject(error));
  });
  return started;
}
