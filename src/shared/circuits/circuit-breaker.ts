/**
 * The fleet's circuit: one state for one tool in one context, shared by all workers.
 *
 * CLOSED      calls pass; outcomes are collected in a window. Too many failures open the circuit.
 * OPEN        calls are refused until the cooldown has passed; the first one after it becomes a probe.
 * HALF_OPEN   one leased probe at a time. A failure opens the circuit again, enough successes in a row close it.
 * FORCED_OPEN an operator's decision; only a reset ends it.
 *
 * Every change of state raises `epoch`. A writer compares the epoch that it read with the stored one, and an outcome counts only in
 * the epoch in which its attempt started, so that late answers change nothing.
 */
import type { CircuitPolicy } from './circuit-policy.ts';

export type CircuitState = 'CLOSED' | 'OPEN' | 'HALF_OPEN' | 'FORCED_OPEN';

export type Circuit =
  | { readonly state: 'CLOSED'; readonly epoch: number }
  | {
      readonly state: 'OPEN';
      readonly epoch: number;
      readonly openedAtMs: number;
      readonly cooldownMs: number;
      /** The failures in the window when the circuit opened. */
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
  /** `openedAtMs` is absent when configuration forces the circuit open. */
  | { readonly state: 'FORCED_OPEN'; readonly epoch: number; readonly openedAtMs?: number; readonly reason: string };

export const FORCED_BY_CONFIGURATION = 'forced by configuration';
/** The reason of a circuit that was forced open without one. */
export const FORCED_BY_OPERATOR = 'forced by an operator';
/** The delay after which a refused caller may try again, because the end of a forced state is unknown. */
export const FORCED_OPEN_RETRY_MS = 30_000;

export const CLOSED_CIRCUIT: Circuit = { state: 'CLOSED', epoch: 0 };

/** One outcome of a window. Windows begin with the newest. */
export interface Sample {
  readonly atMs: number;
  readonly ok: boolean;
  /** The number of successes on the failure's worker since its previous failure. They may not be in the window yet. */
  readonly successesBefore?: number;
}

type CircuitAdmission =
  | { readonly kind: 'pass' }
  | { readonly kind: 'refuse'; readonly retryAfterMs: number }
  /** The call may run as the probe once `next` has replaced the circuit that was read. */
  | { readonly kind: 'probe'; readonly next: Circuit };

/** The clocks of two processes that follow that of Redis differ by less. */
const CLOCK_FAULT_MS = 1_000;

/** The time until a moment that cannot be farther away than `longestMs`; 0 where it is, because Redis' clock was set back since. */
function timeLeft(untilMs: number, nowMs: number, longestMs: number): number {
  const leftMs = untilMs - nowMs;
  return leftMs > longestMs + CLOCK_FAULT_MS ? 0 : leftMs;
}

/** The time until an open circuit lets a probe pass; 0 or less when it does. */
export function remainingCooldownMs(
  { openedAtMs, cooldownMs }: Extract<Circuit, { state: 'OPEN' }>,
  nowMs: number,
): number {
  return timeLeft(openedAtMs + cooldownMs, nowMs, cooldownMs);
}

/** Decides whether a call may start now. `holder` names its attempt. */
export function admit(circuit: Circuit, policy: CircuitPolicy, holder: string, nowMs: number): CircuitAdmission {
  switch (circuit.state) {
    case 'CLOSED':
      return { kind: 'pass' };
    case 'FORCED_OPEN':
      return { kind: 'refuse', retryAfterMs: policy.cooldownMs };
    case 'OPEN': {
      const remainingMs = remainingCooldownMs(circuit, nowMs);
      if (remainingMs > 0) return { kind: 'refuse', retryAfterMs: remainingMs };
      return { kind: 'probe', next: withProbe({ ...circuit, successes: 0 }, policy, holder, nowMs) };
    }
    case 'HALF_OPEN': {
      const leaseMs = circuit.probe === undefined ? 0 : timeLeft(circuit.probe.untilMs, nowMs, policy.probeLeaseMs);
      if (leaseMs > 0) return { kind: 'refuse', retryAfterMs: Math.min(1_000, leaseMs) };
      return { kind: 'probe', next: withProbe(circuit, policy, holder, nowMs) };
    }
  }
}

function withProbe(
  { epoch, openedAtMs, cooldownMs, successes }: Omit<Extract<Circuit, { state: 'HALF_OPEN' }>, 'state' | 'probe'>,
  policy: CircuitPolicy,
  holder: string,
  nowMs: number,
): Circuit {
  return {
    state: 'HALF_OPEN',
    epoch: epoch + 1,
    openedAtMs,
    cooldownMs,
    successes,
    probe: { holder, untilMs: nowMs + policy.probeLeaseMs },
  };
}

/** Opens a closed circuit when its window holds too many failures; undefined leaves it closed. */
export function afterWindow(
  circuit: Circuit,
  window: readonly Sample[],
  policy: CircuitPolicy,
  nowMs: number,
): Circuit | undefined {
  if (circuit.state !== 'CLOSED') return undefined;
  const reason = tripReason(window, policy, nowMs);
  if (reason === undefined) return undefined;
  const failures = recentOf(window, policy, nowMs).filter(({ ok }) => !ok).length;
  return opened(circuit, policy, { failures, reason, nowMs });
}

/** The reason for which the window's outcomes open the circuit; undefined when they do not. */
export function tripReason(window: readonly Sample[], policy: CircuitPolicy, nowMs: number): string | undefined {
  const recent = withSuccessesBefore(recentOf(window, policy, nowMs));
  const firstSuccess = recent.findIndex((sample) => sample.ok);
  const consecutive = firstSuccess === -1 ? recent.length : firstSuccess;
  if (consecutive >= policy.consecutiveFailures) return `${consecutive} failures in a row`;
  const rated = recent.slice(0, policy.rateSamples);
  const failures = rated.filter((sample) => !sample.ok).length;
  if (rated.length >= policy.rateMinimum && failures >= policy.failureRate * rated.length)
    return `${failures} of the last ${rated.length} calls failed`;
  return undefined;
}

function recentOf(window: readonly Sample[], { windowMs }: CircuitPolicy, nowMs: number): readonly Sample[] {
  return window.filter(({ atMs }) => timeLeft(atMs + windowMs, nowMs, windowMs) > 0);
}

/** Adds successes that the window does not hold yet, but that a later failure of the same worker reports. */
function withSuccessesBefore(newestFirst: readonly Sample[]): readonly Sample[] {
  return newestFirst.flatMap((sample, index) => {
    const { atMs, successesBefore = 0 } = sample;
    const isReported = newestFirst[index + 1]?.ok === true;
    return isReported ? [sample] : [sample, ...Array.from({ length: successesBefore }, () => ({ atMs, ok: true }))];
  });
}

/** The outcome of a probe. `ok` is undefined for an outcome that shows nothing about the service (cancelled, refused parameters). */
interface ProbeOutcome {
  readonly holder: string;
  readonly ok: boolean | undefined;
  readonly nowMs: number;
}

/** The circuit after a probe's answer; undefined when the probe no longer holds the lease. */
export function afterProbe(
  circuit: Circuit,
  policy: CircuitPolicy,
  { holder, ok, nowMs }: ProbeOutcome,
): Circuit | undefined {
  if (circuit.state !== 'HALF_OPEN' || circuit.probe?.holder !== holder) return undefined;
  if (ok === false) return opened(circuit, policy, { failures: 1, reason: 'a probe failed', nowMs });
  const { openedAtMs, cooldownMs, epoch } = circuit;
  // An outcome that shows nothing only releases the lease.
  const successes = circuit.successes + (ok === true ? 1 : 0);
  if (successes >= policy.successesToClose) return { state: 'CLOSED', epoch: epoch + 1 };
  return { state: 'HALF_OPEN', epoch: epoch + 1, openedAtMs, cooldownMs, successes };
}

export function forcedOpen(circuit: Circuit, reason: string, nowMs: number): Circuit {
  return { state: 'FORCED_OPEN', epoch: circuit.epoch + 1, openedAtMs: nowMs, reason };
}

/** The message for a caller whom a forced open circuit refuses. */
export function forcedOpenText(toolName: string, reason: string): string {
  return `${toolName} takes no calls for now (${reason}).`;
}

/** Closes the circuit at once, whatever its state. */
export function reset(circuit: Circuit): Circuit {
  return { state: 'CLOSED', epoch: circuit.epoch + 1 };
}

function opened(
  { epoch }: Circuit,
  { cooldownMs }: CircuitPolicy,
  { failures, reason, nowMs }: { readonly failures: number; readonly reason: string; readonly nowMs: number },
): Circuit {
  return { state: 'OPEN', epoch: epoch + 1, openedAtMs: nowMs, cooldownMs, failures, reason };
}

/** An attempt's place in a window: its circuit, the epoch of the circuit when it started, and the window's bounds. */
export interface CircuitSample {
  readonly circuit: string;
  readonly epoch: number;
  readonly windowSize: number;
  readonly windowMs: number;
}

export function sampleFor(circuit: string, { epoch }: Circuit, policy: CircuitPolicy): CircuitSample {
  const windowSize = Math.max(policy.rateSamples, policy.consecutiveFailures);
  return { circuit, epoch, windowSize, windowMs: policy.windowMs };
}
