/** Names the circuit that a call goes through. */
import { startOf } from '../util/text/text-cut.ts';

/** The key of the circuit that a call goes through: one per tool, target of a tool, dependency or tier, and per tenant. */
export function circuitKey(scope: {
  readonly hint: 'tool' | 'dependency' | 'global';
  readonly tool: string;
  readonly dependency?: string | undefined;
  /** The result of `circuitTarget`. */
  readonly target?: string | undefined;
  readonly tenantId?: string | undefined;
}): string {
  const subject =
    scope.hint === 'global'
      ? 'global'
      : scope.hint === 'dependency' && scope.dependency !== undefined
        ? `dependency:${scope.dependency}`
        : `tool:${scope.tool}${scope.target === undefined ? '' : `:${scope.target}`}`;
  return scope.tenantId === undefined ? subject : `${subject}@${scope.tenantId}`;
}

const MAX_TARGET_LENGTH = 260;
/** The members of a list that are read. */
const MAX_TARGETS = 100;
/** A host without a scheme. The case of its letters means nothing. */
const HOST = /^[a-z\d-]{1,63}(?:\.[a-z\d-]{1,63}){1,9}\.?(?::\d{1,5})?$/i;

/**
 * The target that a parameter names: the host of an address, the text itself, a number, or the targets of a list together, because its call
 * does not say which of them failed. Undefined where it names none.
 */
export function circuitTarget(value: unknown): string | undefined {
  if (Array.isArray(value)) {
    const targets = new Set(value.slice(0, MAX_TARGETS).flatMap((each) => circuitTarget(each) ?? []));
    return targets.size === 0 ? undefined : startOf([...targets].sort().join(','), MAX_TARGET_LENGTH);
  }
  if (typeof value === 'number') return String(value);
  if (typeof value !== 'string') return undefined;
  const { host = '' } = URL.canParse(value) ? new URL(value) : {};
  const text = (host || value).trim();
  const subject = (HOST.test(text) ? text.toLowerCase() : text).replace(/\.(?=:\d+$|$)/, '').replaceAll(/[\s@]+/g, '_');
  const target = startOf(subject, MAX_TARGET_LENGTH);
  return target === '' ? undefined : target;
}

/** Errors of a host to which another one redirected, each with the target that the first address names. */
const redirectedErrors = new WeakMap<object, string>();

/** Notes that an error is the fault of the host at `to`, where that is another than the host at `from`, which redirected to it. */
export function noteRedirected<Thrown>(error: Thrown, from: string, to: string): Thrown {
  const target = circuitTarget(from);
  if (typeof error === 'object' && error !== null && target !== undefined && target !== circuitTarget(to))
    redirectedErrors.set(error, target);
  return error;
}

/** Whether an error is the fault of another host than the target, to which the target only redirected. */
export function isBehindTarget(error: unknown, target: unknown): boolean {
  return redirectedErrors.get(error as object) === (circuitTarget(target) ?? null);
}

/** The tool that a circuit's key names; undefined for a dependency or a tier. */
export function toolOfCircuit(key: string): string | undefined {
  return /^tool:([^@:]+)/.exec(key)?.[1];
}

/** The target that a circuit's key names; undefined for a circuit without one. */
export function targetOfCircuit(key: string): string | undefined {
  return /^tool:[^@:]+:([^@]+)/.exec(key)?.[1];
}

/** Whether a circuit holds for one target of its tool. There may be any number of them. */
export function hasTarget(key: string): boolean {
  return targetOfCircuit(key) !== undefined;
}

/** Whether all calls of a tool may go through the circuit of this key: the tool's own, or one that it shares. */
export function mayUseCircuit(key: string, tool: string): boolean {
  return !key.startsWith('tool:') || key === `tool:${tool}` || key.startsWith(`tool:${tool}@`);
}
