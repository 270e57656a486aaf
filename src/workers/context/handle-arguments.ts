/**
 * Checks what tools hand over to the methods of their context's handles. Authors without TypeScript get an error that names the argument;
 * nothing has happened then.
 */
import { isUint8Array } from 'node:util/types';
import { z } from 'zod';
import { PawlError } from '../../shared/errors/failure.ts';
import { WITHOUT_RECEIVED } from '../../shared/schema/zod-issues.ts';
import { describeValue } from '../../shared/tools/tool-answers.ts';
import { isObject } from '../../shared/util/json/json-types.ts';

const text = z.string();
const flag = z.boolean().optional();
// Numbers are checked here, because zod's number refuses Infinity, which stands for no bound.
const ms = z.custom<number>((value) => typeof value === 'number' && value >= 0, 'must be a number from 0 on');
const whole = z.custom<number>(
  (value) => Number.isInteger(value === Number.POSITIVE_INFINITY ? 0 : value) && (value as number) >= 0,
  'must be a whole number from 0 on',
);
const count = whole.optional();
/** An object of texts; zod's record alone would refuse `process.env` and objects of a class. */
const texts = z.preprocess(
  (value) => (isObject(value) && !(Symbol.iterator in value) ? { ...value } : value),
  z.record(text, text).optional(),
);

function workspaceArguments() {
  const content = z.custom<string | Uint8Array>(
    (value) => typeof value === 'string' || isUint8Array(value),
    'must be a text or bytes',
  );
  const writeOptions = { expected: text.optional(), like: text.optional(), isExecutable: flag };
  const change = z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('write'), path: text, content, ...writeOptions }),
    z.strictObject({ kind: z.literal('remove'), path: text, expected: text.optional() }),
  ]);
  const search = { path: text, glob: text, pattern: text, ignoreCase: z.boolean(), literal: z.boolean() };
  const limits = { contextLines: whole, includeIgnored: z.boolean(), limit: whole };
  return {
    'workspace.read': { path: text, options: z.strictObject({ maxBytes: count }).optional() },
    'workspace.list': { path: text },
    'workspace.write': { path: text, content, options: z.strictObject(writeOptions).optional() },
    'workspace.commit': { changes: z.array(change) },
    'workspace.search': { search: z.strictObject({ ...search, ...limits }).partial() },
  };
}

/** The arguments of each method by name, in their order. Made at the first use, because many tools use no handle. */
function makeArguments() {
  const program = { argv: z.array(text).min(1), cwd: text.optional(), env: texts };
  const option = z.strictObject({ value: text, label: text, description: text.optional() });
  const message = z.strictObject({ text, format: z.enum(['text', 'markdown']).optional() });
  const storeOptions = { metadata: texts, ttlMs: ms, source: text, tainted: flag, id: text };
  const question = { text, options: z.array(option).optional(), freeText: flag, timeoutMs: ms.optional() };
  return {
    ...workspaceArguments(),
    'processes.run': {
      request: z.strictObject({ ...program, stdin: text.optional(), timeoutMs: ms.optional(), maxOutputBytes: count }),
    },
    'terminals.start': { request: z.strictObject({ ...program, tty: flag, timeoutMs: ms, waitMs: ms }) },
    'terminals.write': { terminalId: text, chars: text, waitMs: ms },
    'memory.search': { query: text, options: z.strictObject({ limit: count, metadata: texts }).optional() },
    'memory.store': { text, options: z.strictObject(storeOptions).partial().optional() },
    'memory.get': { id: text },
    'memory.forget': { id: text },
    'channel.send': {
      message: z.preprocess((value) => (typeof value === 'string' ? { text: value } : value), message),
    },
    'channel.ask': { question: z.strictObject(question) },
    'agents.spawn': { message: text, agentType: text.optional() },
    'agents.send': { agentId: text, message: text, interrupt: flag },
    'agents.resume': { agentId: text },
    'agents.look': { agentIds: z.array(text) },
    'agents.haveAnswered': { agentIds: z.array(text) },
    'agents.close': { agentId: text },
  };
}

export type HandleMethod = keyof ReturnType<typeof makeArguments>;
let allArguments: ReturnType<typeof makeArguments> | undefined;
const schemas = new Map<HandleMethod, z.ZodObject>();

/** Throws `RESULT_INVALID` for arguments of another type, as `ctx.progress` does. */
export function checkHandleArguments(method: HandleMethod, ...values: readonly unknown[]): void {
  allArguments ??= makeArguments();
  const shape: z.ZodRawShape = allArguments[method];
  const schema = schemas.get(method) ?? z.strictObject(shape);
  schemas.set(method, schema);
  const named = Object.fromEntries(Object.keys(shape).map((name, index) => [name, values[index]]));
  const { error } = schema.safeParse(named, { ...WITHOUT_RECEIVED, reportInput: true });
  if (error === undefined) return;
  const [issue] = error.issues;
  const path = issue?.path.map(String).join('.') ?? '';
  const isNamed = issue?.input === undefined || issue.code === 'unrecognized_keys';
  const received = isNamed ? '' : `; got ${describeValue(issue.input)}`;
  throw new PawlError('RESULT_INVALID', `ctx.${method}: ${path} ${issue?.message}${received}.`);
}
