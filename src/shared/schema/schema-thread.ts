/**
 * The thread that compiles and checks what is large, one thing after the other. It is started when it is first needed. A thing that takes
 * too long or too much memory ends the thread; the next one starts another.
 */
import { Worker } from 'node:worker_threads';
import { type Issue, PawlError } from '../errors/failure.ts';
import type { JsonSchema } from './json-schema.ts';
import { isMarkedValid } from './schema.ts';
import type { SanitizedSchema } from './schema-sanitize.ts';
import type { ThreadAnswer, ThreadTask } from './schema-thread-main.ts';

/** The thread's own file, which this thread does not load. A bundle of CommonJS knows no place of its own. */
const fileOfThread = () =>
  new URL(import.meta.url.endsWith('.ts') ? './schema-thread-main.ts' : './schema-thread-main.js', import.meta.url);

/** The time for one check. */
const CHECK_LIMIT_MS = 2_000;
/** The time for a schema that the thread does not know: it is compiled first. */
const COMPILE_LIMIT_MS = 10_000;
const MAX_MEMORY_MB = 512;
/** The thread keeps so many schemas. */
const MAX_SCHEMAS = 200;

interface Waiting {
  /** Makes the task when its time has come, so that a long queue holds no copies. */
  task(): ThreadTask;
  readonly limitMs: () => number;
  readonly resolve: (answer: ThreadAnswer | 'too-long' | 'too-much-memory') => void;
  readonly reject: (error: Error) => void;
}

const waiting: Waiting[] = [];
let thread: Worker | undefined;
let running: Waiting | undefined;
let timer: NodeJS.Timeout | undefined;

/** The number of each schema, and whether the present thread has it. */
const numbers = new WeakMap<JsonSchema, number>();
let count = 0;
const sent = new Set<number>();

/** Throws `CONFIGURATION` when the schema itself is not valid. */
export async function checkInThread(schema: JsonSchema, value: unknown): Promise<readonly Issue[]> {
  const answer = await runWith(schema, 'check', value);
  if (answer === 'too-long')
    return [{ path: '', message: `takes more than ${CHECK_LIMIT_MS / 1_000} s to check by this schema` }];
  if (answer === 'too-much-memory') return [{ path: '', message: 'takes too much memory to check by this schema' }];
  if ('error' in answer) throw new PawlError('CONFIGURATION', answer.error);
  return 'issues' in answer ? answer.issues : [];
}

/** `withoutNulls` for a large value. Where that takes too long, nothing is removed. */
export async function withoutNullsInThread(schema: JsonSchema, value: unknown): Promise<unknown> {
  const answer = await runWith(schema, 'nulls', value);
  return typeof answer === 'object' && 'value' in answer ? JSON.parse(answer.value) : value;
}

async function runWith(schema: JsonSchema, does: 'check' | 'nulls', value: unknown) {
  const number = numbers.get(schema) ?? ++count;
  numbers.set(schema, number);
  const answer = await run({
    task: () => taskWith(number, schema, does, value),
    limitMs: () => (sent.has(number) ? CHECK_LIMIT_MS : COMPILE_LIMIT_MS),
  });
  // The thread keeps no schema that it could not compile.
  if (typeof answer === 'object' && 'error' in answer) sent.delete(number);
  return answer;
}

function taskWith(number: number, schema: JsonSchema, does: 'check' | 'nulls', value: unknown): ThreadTask {
  if (sent.size >= MAX_SCHEMAS && !sent.has(number)) sent.clear();
  const isFirst = sent.size === 0;
  const known = sent.has(number);
  sent.add(number);
  return {
    does,
    number,
    value: JSON.stringify(value),
    forget: isFirst,
    ...(known ? {} : { schema: JSON.stringify(schema), isValid: isMarkedValid(schema) }),
  };
}

/** Repairs and compiles a foreign schema. Throws `CONFIGURATION` when it is not valid, too costly, or takes too long. */
export async function sanitizeInThread(foreign: JsonSchema, of: 'parameters' | 'output'): Promise<SanitizedSchema> {
  const answer = await run({
    task: () => ({ foreign: JSON.stringify(foreign), of }),
    limitMs: () => COMPILE_LIMIT_MS,
  });
  if (answer === 'too-long' || answer === 'too-much-memory') {
    const why = answer === 'too-long' ? `more than ${COMPILE_LIMIT_MS / 1_000} s` : 'too much memory';
    throw new PawlError('CONFIGURATION', `The schema is too costly: to compile it takes ${why}.`);
  }
  if ('error' in answer) throw new PawlError('CONFIGURATION', answer.error);
  if (!('sanitized' in answer)) throw new Error('the schema thread answered something else');
  return JSON.parse(answer.sanitized) as SanitizedSchema;
}

function run(job: Pick<Waiting, 'task' | 'limitMs'>): Promise<ThreadAnswer | 'too-long' | 'too-much-memory'> {
  return new Promise((resolve, reject) => {
    waiting.push({ ...job, resolve, reject });
    next();
  });
}

function next(): void {
  if (running !== undefined) return;
  running = waiting.shift();
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
    end((job) => job.reject(error instanceof Error ? error : new Error(String(error))));
    return;
  }
  timer = setTimeout(() => stopThread('too-long'), limitMs);
}

function end(answer: (job: Waiting) => void): void {
  clearTimeout(timer);
  const job = running;
  running = undefined;
  if (job !== undefined) answer(job);
  next();
}

function stopThread(why: 'too-long' | 'too-much-memory'): void {
  void thread?.terminate();
  thread = undefined;
  sent.clear();
  end((job) => job.resolve(why));
}

function startThread(): Worker {
  const started = new Worker(fileOfThread(), {
    name: 'schemas',
    resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MB },
  });
  const isPresent = () => thread === started;
  started.on('message', (answer: ThreadAnswer) => {
    if (isPresent()) end((job) => job.resolve(answer));
  });
  started.on('error', (error: NodeJS.ErrnoException) => {
    if (!isPresent()) return;
    if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') return stopThread('too-much-memory');
    thread = undefined;
    sent.clear();
    end((job) => job.reject(error));
  });
  return started;
}
