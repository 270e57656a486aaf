/**
 * Checks the answers of a tool's functions, its progress reports, and the answers of hooks. Authors without TypeScript get an error that
 * names an invalid answer; it is never treated as a valid one.
 */
import { PawlError } from '../errors/failure.ts';
import { describeUnknown } from '../schema/known-members.ts';
import { findUnserializable } from '../util/json/json-support.ts';
import { isObject, membersIn } from '../util/json/json-types.ts';
import { orUndefined } from '../util/or-undefined.ts';
import type { Progress } from './tool-context.ts';

/** The expected answers of the functions, in words for the tool's author. */
const EXPECTED = {
  preview: '{ summary, details? } with texts',
  probe: "{ state: 'done', result }, { state: 'not-done' } or { state: 'unknown' }",
  ready: '{ ready: true }, or { ready: false, againInMs } with a time in milliseconds',
  compensate: 'nothing, or throw when it could not undo the call',
  isMutating: 'true or false',
} as const;

type CheckedFunction = keyof typeof EXPECTED;

const IS_ANSWER: Readonly<Record<CheckedFunction, (value: unknown) => boolean>> = {
  preview: (value) => {
    const { summary, details } = membersIn(value);
    return typeof summary === 'string' && (details === undefined || typeof details === 'string');
  },
  probe: (value) => {
    const { state, result } = membersIn(value);
    return state === 'not-done' || state === 'unknown' || (state === 'done' && result !== undefined);
  },
  // Without a time, the worker would poll without a pause.
  ready: (value) => {
    const { ready, againInMs } = membersIn(value);
    return ready === true || (ready === false && Number.isFinite(againInMs));
  },
  // An arrow function may return any last expression, so only an explicit "no" counts as a failure.
  compensate: (value) => value !== false && membersIn(value)['success'] !== false,
  isMutating: (value) => value === undefined || typeof value === 'boolean',
};

/** A sentence about an invalid answer of a function; undefined for a valid one. */
export function answerFault(functionName: CheckedFunction, tool: string, value: unknown): string | undefined {
  if (!isAnswer(functionName, value))
    return `${functionName} of ${tool} must return ${EXPECTED[functionName]}; it returned ${describeValue(value)}.`;
  return functionName === 'preview' ? unknownMember('preview', tool, value, ['summary', 'details']) : undefined;
}

/** A sentence about a misspelt member, which would silently be missing. */
function unknownMember(subject: string, tool: string, value: unknown, known: readonly string[]): string | undefined {
  const unknown = Object.keys(membersIn(value)).filter((name) => !known.includes(name));
  return unknown.length === 0 ? undefined : `${subject} of ${tool} ${describeUnknown(unknown, known)}.`;
}

/** The members of a value can throw, in a getter or a proxy. */
function isAnswer(functionName: CheckedFunction, value: unknown): boolean {
  return orUndefined(() => IS_ANSWER[functionName](value)) === true;
}

/** Checks a tool's report of progress. Throws `RESULT_INVALID` for any other value. */
export function checkedProgress(tool: string, value: unknown): Progress {
  const { progress, total, message } = membersIn(value);
  const isReport =
    Number.isFinite(progress) &&
    (total === undefined || Number.isFinite(total)) &&
    (message === undefined || typeof message === 'string');
  if (!isReport)
    throw new PawlError(
      'RESULT_INVALID',
      `progress of ${tool} takes { progress, total?, message? } with two numbers and a text, such as progress({ progress: 1, total: 3, message: 'read' }); it got ${describeValue(value)}.`,
    );
  const misspelt = unknownMember('progress', tool, value, ['progress', 'total', 'message']);
  if (misspelt !== undefined) throw new PawlError('RESULT_INVALID', misspelt);
  return {
    progress: progress as number,
    ...(total !== undefined && { total: total as number }),
    ...(message !== undefined && { message }),
  };
}

/** Describes a value by its kind and its first members, for an error's sentence. */
export function describeValue(value: unknown): string {
  return orUndefined(() => described(value)) ?? 'an object that cannot be read';
}

function described(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (typeof value === 'string') return value === '' ? 'an empty text' : 'a text';
  if (value === null || typeof value === 'boolean' || typeof value === 'number') return String(value);
  if (Array.isArray(value)) return 'a list';
  if (value instanceof Promise) return 'a promise';
  if (typeof value !== 'object') return `a ${typeof value}`;
  const members = Object.entries(value).slice(0, 5);
  const shown = members.map(([name, member]) =>
    typeof member === 'object' && member !== null ? name : `${name}: ${describeValue(member)}`,
  );
  return shown.length === 0 ? 'an object without members' : `{ ${shown.join(', ')} }`;
}

/** A sentence about a wrong member of a hook's answer; undefined where all have their types. */
export function hookAnswerFault(answer: object): string | undefined {
  const { deny, content, ...members } = answer as Readonly<Record<string, unknown>>;
  if (deny !== undefined && deny !== true && typeof deny !== 'string')
    return `deny must be a text that says why; it answered ${describeValue(deny)}`;
  const invalid = HOOK_MEMBERS.find(([name, is]) => members[name] !== undefined && !is(members[name]));
  if (invalid !== undefined)
    return `${invalid[0]} must be ${invalid[2]}; it answered ${describeValue(members[invalid[0]])}`;
  const unserializable = findUnserializable(content);
  return unserializable === undefined
    ? undefined
    : `content must be JSON-serializable; it answered ${unserializable.kind} in content${unserializable.path}`;
}

const HOOK_MEMBERS: readonly [name: string, is: (value: unknown) => boolean, expected: string][] = [
  ['params', isObject, 'an object'],
  ['idempotencyKey', (value) => typeof value === 'string', 'a text'],
  ['hints', isObject, 'an object'],
  ['carry', isObject, 'an object of texts'],
  ['result', isObject, 'a result with output'],
  ['metadata', (value) => isObject(value) && findUnserializable(value) === undefined, 'a JSON-serializable object'],
];
