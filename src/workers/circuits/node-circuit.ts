/**
 * The node's own circuit around each tool. When a tool fails on this worker alone, the worker releases that tool's jobs for a while,
 * without consuming an attempt, so that one bad machine cannot open the fleet's circuit. While the fleet's circuit is not closed, the
 * node's circuit is not used: the fleet refuses, probes and closes, and the node's circuit then starts again.
 */
import CircuitBreaker from 'opossum';
import type { CircuitState } from '../../shared/circuits/circuit-breaker.ts';
import { mayUseCircuit } from '../../shared/circuits/circuit-key.ts';
import type { CircuitPolicy } from '../../shared/circuits/circuit-policy.ts';

/** Thrown inside the breaker to make it count a failure; never leaves this file. */
class CountedFailure extends Error {}

/** The share of failed runs at which the node's circuit opens. */
const OPEN_SHARE = 0.9;
const ROLLING_MS = 10_000;
const RETRY_MS = 10_000;

interface Counted<T> {
  readonly value: T;
  /** Whether this result counts against the node. */
  readonly failed: boolean;
}

/** The minimum number of runs. It is below the fleet's threshold, which two failing nodes reach together. */
function volumeOf({ consecutiveFailures }: CircuitPolicy): number {
  return Math.ceil(consecutiveFailures / 2) + 1;
}

type Job = () => Promise<Counted<unknown>>;

export class NodeCircuits {
  readonly #breakers = new Map<string, CircuitBreaker<[Job], Counted<unknown>>>();
  /** Failures since the last success, by tool. */
  readonly #inARow = new Map<string, number>();
  readonly #triedAtMs = new Map<string, number>();
  /** Keys of the fleet's circuits that are not closed. */
  readonly #fleetOpen = new Set<string>();

  /** Whether this node should leave the tool's jobs to other nodes, except for a probe from time to time. */
  isOpen(tool: string): boolean {
    const breaker = this.#breakers.get(tool);
    return breaker !== undefined && !breaker.closed && !this.#fleetIsOpen(tool);
  }

  /** Whether a job may probe now if the tool works here again: one at a time. */
  mayTry(tool: string, nowMs: number): boolean {
    const isTime = this.#breakers.get(tool)?.halfOpen === true;
    if (!isTime || nowMs - (this.#triedAtMs.get(tool) ?? Number.NEGATIVE_INFINITY) < RETRY_MS) return false;
    this.#triedAtMs.set(tool, nowMs);
    return true;
  }

  /**
   * Whether so many consecutive runs of the tool have failed here that further failures prove nothing about other nodes: two nodes that
   * fail alike are enough to open the fleet's circuit, one is not.
   */
  failsInARow(tool: string, policy: CircuitPolicy): boolean {
    return (this.#inARow.get(tool) ?? 0) > Math.ceil(policy.consecutiveFailures / 2);
  }

  #fleetIsOpen(tool: string): boolean {
    for (const key of this.#fleetOpen) if (mayUseCircuit(key, tool)) return true;
    return false;
  }

  /** Applies a change of the fleet's circuit. */
  learn(key: string, state: CircuitState): void {
    if (state !== 'CLOSED') {
      this.#fleetOpen.add(key);
      return;
    }
    this.#fleetOpen.delete(key);
    for (const [tool, breaker] of this.#breakers) {
      if (!mayUseCircuit(key, tool)) continue;
      breaker.shutdown();
      this.#breakers.delete(tool);
      this.#inARow.delete(tool);
    }
  }

  /** Applies the current states of the fleet's circuits, because changes may have been missed. */
  relearn(circuits: ReadonlyMap<string, { readonly state: CircuitState }>): void {
    for (const key of new Set([...this.#fleetOpen, ...circuits.keys()])) {
      const state = circuits.get(key)?.state ?? 'CLOSED';
      if (state !== 'CLOSED' || this.#fleetOpen.has(key)) this.learn(key, state);
    }
  }

  /** Runs an attempt under the tool's breaker. An open breaker runs it as well, without counting. */
  async run<T>(tool: string, policy: CircuitPolicy, job: () => Promise<Counted<T>>): Promise<T> {
    let outcome: Counted<T> | undefined;
    const run = async () => {
      const result = await job();
      this.#inARow.set(tool, result.failed ? (this.#inARow.get(tool) ?? 0) + 1 : 0);
      return result;
    };
    const counted: Job = async () => {
      outcome = await run();
      if (outcome.failed) throw new CountedFailure();
      return outcome;
    };
    const breaker = this.#breaker(tool, policy);
    try {
      await breaker.fire(counted);
    } catch (error) {
      if (!(error instanceof CountedFailure) && (error as { code?: unknown }).code !== 'EOPENBREAKER') throw error;
    }
    if (outcome?.failed === true && breaker.closed && this.#failsForLong(tool, breaker, policy)) breaker.open();
    return (outcome ?? (await run())).value;
  }

  /** Opossum counts running jobs as successes, so with many at a time nearly all would have to fail. */
  #failsForLong(tool: string, { stats }: CircuitBreaker, policy: CircuitPolicy): boolean {
    const total = stats.failures + stats.successes;
    const isFailing = total >= volumeOf(policy) && stats.failures / total > OPEN_SHARE;
    return isFailing || (this.#inARow.get(tool) ?? 0) >= 2 * policy.consecutiveFailures;
  }

  #breaker(tool: string, policy: CircuitPolicy): CircuitBreaker<[Job], Counted<unknown>> {
    let breaker = this.#breakers.get(tool);
    if (breaker === undefined) {
      breaker = new CircuitBreaker((job: Job) => job(), {
        timeout: false,
        volumeThreshold: volumeOf(policy),
        errorThresholdPercentage: 100 * OPEN_SHARE,
        resetTimeout: RETRY_MS,
        rollingCountTimeout: ROLLING_MS,
        rollingPercentilesEnabled: false,
        enableSnapshots: false,
      });
      this.#breakers.set(tool, breaker);
    }
    return breaker;
  }

  close(): void {
    for (const breaker of this.#breakers.values()) breaker.shutdown();
    this.#breakers.clear();
  }
}
