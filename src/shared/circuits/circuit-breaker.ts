/**
 * The fleet's circuit (R22 to R24): one state for one tool in one context, shared by all workers.
 *
 * CLOSED      calls pass; outcomes are collected in a window. Too many failures open the circuit.
 * OPEN        calls are refused until the cooldown has passed; the first one after it becomes a probe.
 * HALF_OPEN   one leased probe at a time. A failure opens the circuit again, enough successes in a row close it.
 * FORCED_OPEN an operator's decision; only a reset ends it.
 *
 * Every change of state raises `epoch`. Whoever changes a circuit compares the epoch it saw with the one that is stored, and
 * an outcome counts only in the epoch in which its attempt started, so late answers change nothing.
 */

import { z } from 'zod';
import { defined } from '../util/json/omit-undefined.ts';
import { MAX_KEPT_MS } from '../util/time.ts';

export type CircuitState = 'CLOSED' | 'OPEN' | 'HALF_OPEN' | 'FORCED_OPEN';

export interface CircuitPolicy {
  readonly windowMs: number;
  readonly consecutiveFailures: number;
  /** Share of failures, 0 to 1, over the last `rateSamples` outcomes, of which at least `rateMinimum` must exist. */
  readonly failureRate: number;
  readonly rateSamples: number;
  readonly rateMinimum: number;
  readonly cooldownMs: number;
  /** A probe that has not answered by then no longer blocks the next one. */
  readonly probeLeaseMs: number;
  readonly successesToClose: number;
  /** What happens to a queued call that meets an open circuit (DESIGN, ruling 13). */
  readonly whenOpen: 'refuse' | 'park';
  /** Name of what several tools depend on, for `circuitBreakerHint: "dependency"`. */
  readonly dependency?: string;
  /**
   * Name of the parameter that says what a call reaches, such as an address. Each target, of an address its host, then has a circuit
   * of its own: one that fails closes the tool for no other.
   */
  readonly targetParameter?: string;
}

const milliseconds = z.number().int().positive().max(MAX_KEPT_MS);

/** What tools and operators may say of it. */
export const circuitOverridesSchema = z
  .strictObject({
    windowMs: milliseconds,
    consecutiveFailures: z.number().int().min(1).max(1_000_000),
    failureRate: z.number().gt(0).max(1),
    rateSamples: z.number().int().min(1).max(1_000),
    rateMinimum: z.number().int().min(1).max(1_000),
    cooldownMs: milliseconds,
    probeLeaseMs: milliseconds,
    successesToClose: z.number().int().min(1).max(100),
    whenOpen: z.enum(['refuse', 'park']),
    dependency: z.string().min(1),
    targetParameter: z.string().min(1).max(256),
  })
  .partial();
export type CircuitOverrides = { readonly [K in keyof CircuitPolicy]?: CircuitPolicy[K] | undefined };

/** What operators say of the circuits of all tools, and of those of a class: tools that read, and tools that change something. */
export const circuitDefaultsSchema = circuitOverridesSchema.extend({
  readOnly: circuitOverridesSchema.optional(),
  mutating: circuitOverridesSchema.optional(),
});
type CircuitDefaults = CircuitOverrides & {
  readonly readOnly?: CircuitOverrides | undefined;
  readonly mutating?: CircuitOverrides | undefined;
};

const DEFAULT_CIRCUIT: CircuitPolicy = {
  windowMs: 120_000,
  consecutiveFailures: 5,
  failureRate: 0.5,
  rateSamples: 20,
  rateMinimum: 10,
  cooldownMs: 30_000,
  probeLeaseMs: 60_000,
  successesToClose: 2,
  whenOpen: 'refuse',
};

/** Read-only tools may fail more often and recover sooner. Of the operator's defaults, those of the tool's class count more. */
export function circuitPolicy(
  readOnly: boolean,
  tool: CircuitOverrides = {},
  operator: CircuitOverrides = {},
  { readOnly: ofReads, mutating: ofWrites, ...ofAll }: CircuitDefaults = {},
): CircuitPolicy {
  return {
    ...DEFAULT_CIRCUIT,
    ...(readOnly ? { consecutiveFailures: 8, cooldownMs: 20_000 } : {}),
    ...defined<Partial<CircuitPolicy>>(ofAll),
    ...defined<Partial<CircuitPolicy>>((readOnly ? ofReads : ofWrites) ?? {}),
    ...defined<Partial<CircuitPolicy>>(tool),
    ...defined<Partial<CircuitPolicy>>(operator),
  };
}

export type Circuit =
  | { readonly state: 'CLOSED'; readonly epoch: number }
  | {
      readonly state: 'OPEN';
      readonly epoch: number;
      readonly openedAtMs: number;
      readonly cooldownMs: number;
      /** That opened it. */
      readonly failures: number;
      readonly reason: string;
    }
  | {
      readonly state: 'HALF_OPEN';
      readonly epoch: number;
      readonly openedAtMs: number;
      readonly cooldownMs: number;
      readonly successes: number;
      readonly probe?: { readonly holder: string; readonly untilMs: number };
    }
  /** Without a time when configuration forces it. */
  | { readonly state: 'FORCED_OPEN'; readonly epoch: number; readonly openedAtMs?: number; readonly reason: string };

export const FORCED_BY_CONFIGURATION = 'forced by configuration';
/** When whoever is refused may ask again: nobody knows for how long a circuit is forced open. */
export const FORCED_OPEN_RETRY_MS = 30_000;

export const CLOSED_CIRCUIT: Circuit = { state: 'CLOSED', epoch: 0 };

/** One outcome in the window, the newest first. */
export interface Sample {
  readonly atMs: number;
  readonly ok: boolean;
  /** Of a failure: how many successes came between it and the failure before on its worker. They may not have been added yet. */
  readonly successesBefore?: number;
}

export type Admission =
  | { readonly kind: 'pass' }
  | { readonly kind: 'refuse'; readonly retryAfterMs: number }
  /** The call may run as the probe once `next` has been stored in place of what was seen. */
  | { readonly kind: 'probe'; readonly next: Circuit };

/** May a call start now? `holder` names the attempt that asks. */
export function admit(circuit: Circuit, policy: CircuitPolicy, holder: string, nowMs: number): Admission {
  switch (circuit.state) {
    case 'CLOSED':
      return { kind: 'pass' };
    case 'FORCED_OPEN':
      return { kind: 'refuse', retryAfterMs: policy.cooldownMs };
    case 'OPEN': {
      const remainingMs = circuit.openedAtMs + circuit.cooldownMs - nowMs;
      if (remainingMs > 0) return { kind: 'refuse', retryAfterMs: remainingMs };
      return { kind: 'probe', next: withProbe({ ...circuit, successes: 0 }, policy, holder, nowMs) };
    }
    case 'HALF_OPEN': {
      if (circuit.probe !== undefined && circuit.probe.untilMs > nowMs)
        return { kind: 'refuse', retryAfterMs: Math.min(1_000, circuit.probe.untilMs - nowMs) };
      return { kind: 'probe', next: withProbe(circuit, policy, holder, nowMs) };
    }
  }
}

function withProbe(
  circuit: {
    readonly epoch: number;
    readonly openedAtMs: number;
    readonly cooldownMs: number;
    readonly successes: number;
  },
  policy: CircuitPolicy,
  holder: string,
  nowMs: number,
): Circuit {
  const { epoch, openedAtMs, cooldownMs, successes } = circuit;
  return {
    state: 'HALF_OPEN',
    epoch: epoch + 1,
    openedAtMs,
    cooldownMs,
    successes,
    probe: { holder, untilMs: nowMs + policy.probeLeaseMs },
  };
}

/** Opens a closed circuit when its window says so; undefined leaves it closed. */
export function afterWindow(
  circuit: Circuit,
  window: readonly Sample[],
  policy: CircuitPolicy,
  nowMs: number,
): Circuit | undefined {
  if (circuit.state !== 'CLOSED') return undefined;
  const reason = tripReason(window, policy, nowMs);
  if (reason === undefined) return undefined;
  const failures = window.filter(({ ok, atMs }) => !ok && atMs > nowMs - policy.windowMs).length;
  return opened(circuit, policy, failures, reason, nowMs);
}

/** Why the window's outcomes should open the circuit, if they should. */
export function tripReason(window: readonly Sample[], policy: CircuitPolicy, nowMs: number): string | undefined {
  const recent = withSuccessesBefore(window.filter((sample) => sample.atMs > nowMs - policy.windowMs));
  const firstSuccess = recent.findIndex((sample) => sample.ok);
  const consecutive = firstSuccess === -1 ? recent.length : firstSuccess;
  if (consecutive >= policy.consecutiveFailures) return `${consecutive} failures in a row`;
  const rated = recent.slice(0, policy.rateSamples);
  const failures = rated.filter((sample) => !sample.ok).length;
  if (rated.length >= policy.rateMinimum && failures >= policy.failureRate * rated.length)
    return `${failures} of the last ${rated.length} calls failed`;
  return undefined;
}

/** With those successes that are known of from the failures behind them alone. */
function withSuccessesBefore(newestFirst: readonly Sample[]): readonly Sample[] {
  return newestFirst.flatMap((sample, index) => {
    const { atMs, successesBefore = 0 } = sample;
    const areAdded = newestFirst[index + 1]?.ok === true;
    return areAdded ? [sample] : [sample, ...Array.from({ length: successesBefore }, () => ({ atMs, ok: true }))];
  });
}

/** What a probe's answer makes of the circuit; undefined when the probe no longer holds the lease. */
export function afterProbe(
  circuit: Circuit,
  policy: CircuitPolicy,
  holder: string,
  ok: boolean | undefined,
  nowMs: number,
): Circuit | undefined {
  if (circuit.state !== 'HALF_OPEN' || circuit.probe?.holder !== holder) return undefined;
  if (ok === false) return opened(circuit, policy, 1, 'a probe failed', nowMs);
  const { openedAtMs, cooldownMs, epoch } = circuit;
  // An ending that says nothing about the service (cancelled, refused parameters) only gives the lease back.
  const successes = circuit.successes + (ok === true ? 1 : 0);
  if (successes >= policy.successesToClose) return { state: 'CLOSED', epoch: epoch + 1 };
  return { state: 'HALF_OPEN', epoch: epoch + 1, openedAtMs, cooldownMs, successes };
}

export function forcedOpen(circuit: Circuit, reason: string, nowMs: number): Circuit {
  return { state: 'FORCED_OPEN', epoch: circuit.epoch + 1, openedAtMs: nowMs, reason };
}

/** What whoever is refused hears of a circuit that somebody, or the configuration, forced open. */
export function forcedOpenText(toolName: string, reason: string): string {
  return `${toolName} takes no calls for now (${reason}).`;
}

/** Any manual reset closes at once, whatever the state. */
export function reset(circuit: Circuit): Circuit {
  return { state: 'CLOSED', epoch: circuit.epoch + 1 };
}

function opened(circuit: Circuit, policy: CircuitPolicy, failures: number, reason: string, nowMs: number): Circuit {
  const { cooldownMs } = policy;
  return { state: 'OPEN', epoch: circuit.epoch + 1, openedAtMs: nowMs, cooldownMs, failures, reason };
}

/** How many outcomes a window must remember for its policy. */
export function windowSize(policy: CircuitPolicy): number {
  return Math.max(policy.rateSamples, policy.consecutiveFailures);
}

/** The key of the circuit that a call goes through: one per tool, target of a tool, dependency or tier, and per tenant. */
export function circuitKey(scope: {
  readonly hint: 'tool' | 'dependency' | 'global';
  readonly tool: string;
  readonly dependency?: string | undefined;
  /** What `targetOf` says. */
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

/** The target that a parameter names: the host of an address, or the text itself. Undefined where it names none. */
export function targetOf(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  const { host = '' } = URL.canParse(value) ? new URL(value) : {};
  const target = (host || value)
    .trim()
    .replace(/\.(?=:\d+$|$)/, '')
    .replaceAll(/[\s@]+/g, '_')
    .slice(0, MAX_TARGET_LENGTH);
  return target === '' ? undefined : target;
}

/** The tool that a circuit's key names; undefined of a dependency or a tier. */
export function toolOfCircuit(key: string): string | undefined {
  return /^tool:([^@:]+)/.exec(key)?.[1];
}

/** The target of a circuit that holds for one of its tool's; undefined of any other. */
export function targetOfCircuit(key: string): string | undefined {
  return /^tool:[^@:]+:([^@]+)/.exec(key)?.[1];
}

/** Whether a circuit holds for one target of its tool: there may be any number of them. */
export function isOfTarget(key: string): boolean {
  return targetOfCircuit(key) !== undefined;
}

/** Whether all calls of a tool may go through the circuit of this key: its own, or one that it shares. */
export function isCircuitOf(key: string, tool: string): boolean {
  return !key.startsWith('tool:') || key === `tool:${tool}` || key.startsWith(`tool:${tool}@`);
}
