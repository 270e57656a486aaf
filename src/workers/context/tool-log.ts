/** Turns a tool's log call into a log line. Not every tool is type-checked, and a wrong argument must not fail its call. */
import { stackOf } from '../../shared/errors/classify-error.ts';

/** Accepts an error in place of the text or the fields, and the fields before the text, as pino does. */
export function toolLogLine(message: unknown, fields: unknown): { readonly text: string; readonly fields: object } {
  if (typeof message !== 'object' || message === null) return { text: String(message), fields: withStacks(fields) };
  const text = typeof fields === 'string' ? fields : message instanceof Error ? message.message : '';
  return { text, fields: withStacks(message) };
}

/** JSON writes an error as {}, so its stack is logged instead. */
function withStacks(fields: unknown): object {
  if (fields === undefined || fields === null) return {};
  if (fields instanceof Error) return { error: stackOf(fields) };
  if (typeof fields !== 'object') return { fields };
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? stackOf(value) : value]),
  );
}
