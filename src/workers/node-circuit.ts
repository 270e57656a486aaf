/**
 * The node's own circuit around each tool (DESIGN, decision 8): when a tool fails on this worker alone, the worker stops taking
 * that tool's jobs for a while and hands them back unspent, so that one bad machine cannot open the fleet's circuit.
 * While the fleet's circuit is not closed the failures are everybody's, and the node has nothing to add: the fleet refuses,
 * probes and closes in its own time, and the node then starts afresh.
 */
import CircuitBreaker from 'opossum';
import { type CircuitPolicy, type CircuitState, isCircuitOf } from '../shared/breaker.ts';

/** Thrown inside the breaker to make it count a failure; never leaves this file. */
class CountedFailure extends Error {}

const ROLLING_MS = 10_000;
const RETRY_MS = 10_000;

interface Counted<T> {
  readonly value: T;
  /** Whether this ending speaks against the node. */
  readonly failed: boolean;
}

type Job = () => Promise<Counted<unknown>>;

export class NodeCircuits {
  readonly #breakers = new Map<string, CircuitBreaker<[Job], Counted<unknown>>>();
  /** Keys of the fleet's circuits that are not closed. */
  readonly #fleetOpen = new Set<string>();

  /** Whether this node should leave the tool's jobs to others for now. */
  isOpen(tool: string): boolean {
    return (this.#breakers.get(tool)?.opened ?? false) && !this.#fleetIsOpen(tool);
  }

  #fleetIsOpen(tool: string): boolean {
    for (const key of this.#fleetOpen) if (isCircuitOf(key, tool)) return true;
    return false;
  }

  /** Tells of a change of the fleet's circuit. */
  learn(key: string, state: CircuitState): void {
    if (state !== 'CLOSED') {
      this.#fleetOpen.add(key);
      return;
    }
    this.#fleetOpen.delete(key);
    for (const [tool, breaker] of this.#breakers) {
      if (!isCircuitOf(key, tool)) continue;
      breaker.shutdown();
      this.#breakers.delete(tool);
    }
  }

  /** Runs an attempt under the tool's breaker; an open breaker runs it all the same, without counting. */
  async run<T>(tool: string, policy: CircuitPolicy, job: () => Promise<Counted<T>>): Promise<T> {
    let ended: Counted<T> | undefined;
    const counted: Job = async () => {
      ended = await job();
      if (ended.failed) throw new CountedFailure();
      return ended;
    };
    try {
      await this.#breaker(tool, policy).fire(counted);
    } catch (error) {
      if (!(error instanceof CountedFailure) && (error as { code?: unknown }).code !== 'EOPENBREAKER') throw error;
    }
    return (ended ?? (await job())).value;
  }

  #breaker(tool: string, policy: CircuitPolicy): CircuitBreaker<[Job], Counted<unknown>> {
    let breaker = this.#breakers.get(tool);
    if (breaker === undefined) {
      breaker = new CircuitBreaker((job: Job) => job(), {
        timeout: false,
        // Fewer than the fleet's threshold: two failing nodes reach it together, one failing node never does.
        volumeThreshold: Math.ceil(policy.consecutiveFailures / 2) + 1,
        errorThresholdPercentage: 90,
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
