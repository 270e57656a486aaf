/**
 * The fleet's circuit of an attempt: the attempt is its probe, or its result is added to the window. `circuit-breaker.ts` decides,
 * `circuits.ts` stores.
 */
import {
  admit,
  afterProbe,
  afterWindow,
  type Circuit,
  type CircuitSample,
  type CircuitState,
  sampleFor,
} from '../../shared/circuits/circuit-breaker.ts';
import type { Failure } from '../../shared/errors/failure.ts';
import type { CircuitRecords } from '../../shared/store/ports.ts';
import type { CircuitTransition } from '../../shared/telemetry/call-events.ts';
import type { CircuitHold } from '../attempt/circuit-hold.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';

export type Entry =
  | { readonly kind: 'pass' }
  | { readonly kind: 'refuse'; readonly retryAfterMs: number }
  /** This attempt holds the probe's lease. */
  | { readonly kind: 'probe'; readonly hold: CircuitHold }
  /** Another worker changed the circuit meanwhile: try again. */
  | { readonly kind: 'again' };

export class FleetCircuits {
  readonly #breakers: CircuitRecords;
  readonly #now: () => Promise<number>;
  readonly #onChange: (change: CircuitTransition) => void;
  /** Successes since the last failure, by tier and key of their circuit, and those that have not been written yet. */
  readonly #successes = new Map<string, number>();
  readonly #unwritten = new Map<string, number>();

  /** `now` is Redis' clock. */
  constructor(breakers: CircuitRecords, now: () => Promise<number>, onChange: (change: CircuitTransition) => void) {
    this.#breakers = breakers;
    this.#now = now;
    this.#onChange = onChange;
  }

  /** Admits an attempt through a circuit that is not closed; `holder` identifies the attempt. */
  async enter(hold: CircuitHold, holder: string, nowMs: number): Promise<Entry> {
    const admission = admit(hold.snapshot, hold.policy, holder, nowMs);
    if (admission.kind !== 'probe') return admission;
    const changed = await this.#change(hold, admission.next, 0);
    return changed.kind === 'changed'
      ? { kind: 'probe', hold: { ...hold, snapshot: admission.next, probe: holder } }
      : { kind: 'again' };
  }

  /** A circuit with a reason that callers may read. */
  verified(key: string, circuit: Circuit): Circuit {
    return this.#breakers.verified?.(key, circuit) ?? circuit;
  }

  /** Counts a failure, if it counts against the circuit. Returns the circuit's state after it. */
  async failed(hold: CircuitHold, failure: Failure): Promise<CircuitState> {
    if (hold.probe !== undefined) return this.#answerProbe(hold, failure.againstCircuit ? false : undefined);
    if (hold.bypassed === true) return 'CLOSED';
    if (!failure.againstCircuit) return hold.snapshot.state;
    const { partition, key, policy, snapshot } = hold;
    // Successes are written with the ends of their calls, possibly after later failures.
    const name = `${partition.tier} ${key}`;
    const successesBefore = Math.min(this.#successes.get(name) ?? 0, this.#unwritten.get(name) ?? 0);
    this.#successes.delete(name);
    const counted = await this.#breakers.addFailure(partition, sampleFor(key, snapshot, policy), successesBefore);
    const next = afterWindow(counted.circuit, counted.window, policy, counted.nowMs);
    if (next === undefined) return counted.circuit.state;
    return (await this.#change({ ...hold, snapshot: counted.circuit }, next, policy.cooldownMs)).state;
  }

  /** A success ends a probe at once. Otherwise the returned sample is added to the window together with the outcome. */
  async succeeded(hold: CircuitHold, running?: Pick<RunningAttempt, 'onRelease'>): Promise<CircuitSample | undefined> {
    const { partition, key, policy, snapshot, isRemote = false, bypassed = false } = hold;
    if (hold.probe !== undefined) await this.#answerProbe(hold, true);
    if (bypassed) return undefined;
    const name = `${partition.tier} ${key}`;
    if (running !== undefined) {
      addTo(this.#successes, name, 1);
      addTo(this.#unwritten, name, 1);
      running.onRelease(() => this.#written(name));
    }
    const sample = sampleFor(key, snapshot, policy);
    if (!isRemote) return sample;
    // If Redis is unavailable, the success is not counted; the call is not affected.
    this.#breakers.addSuccessApart?.(partition, sample).catch(() => {});
    return undefined;
  }

  /** Drops the counters of a circuit whose successes are all written: there may be a circuit per tenant. */
  #written(name: string): void {
    addTo(this.#unwritten, name, -1);
    if ((this.#unwritten.get(name) ?? 0) > 0) return;
    this.#unwritten.delete(name);
    this.#successes.delete(name);
  }

  /** The attempt ended without a result for the circuit: another one may be the probe. */
  async release(hold: CircuitHold): Promise<void> {
    if (hold.probe !== undefined) await this.#answerProbe(hold, undefined);
  }

  async #answerProbe(hold: CircuitHold, ok: boolean | undefined): Promise<CircuitState> {
    const next = afterProbe(hold.snapshot, hold.policy, { holder: hold.probe ?? '', ok, nowMs: await this.#now() });
    if (next === undefined) return hold.snapshot.state;
    return (await this.#change(hold, next, next.state === 'OPEN' ? next.cooldownMs : 0)).state;
  }

  async #change(
    { partition, key, snapshot }: CircuitHold,
    next: Circuit,
    retryAfterMs: number,
  ): Promise<{ readonly kind: 'changed' | 'stale'; readonly state: CircuitState }> {
    const { changed, circuit } = await this.#breakers.change({ partition, key }, snapshot, next, retryAfterMs);
    if (changed && snapshot.state !== next.state) {
      const reason = next.state === 'OPEN' ? { reason: next.reason } : {};
      this.#onChange({ circuit: key, from: snapshot.state, to: next.state, ...reason });
    }
    return { kind: changed ? 'changed' : 'stale', state: circuit.state };
  }
}

function addTo(counts: Map<string, number>, name: string, number: number): void {
  counts.set(name, (counts.get(name) ?? 0) + number);
}
