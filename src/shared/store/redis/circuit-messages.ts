/** What travels about circuits: what an attempt adds to a circuit's window, and what all processes hear of a change. */
import type { Circuit } from '../../circuits/circuit-breaker.ts';
import type { Partition } from './keys.ts';

/** A success, as a circuit counts it. */
export interface CircuitSample {
  readonly circuit: string;
  readonly epoch: number;
  readonly windowSize: number;
  readonly windowMs: number;
}

/** What all processes hear when a circuit changes. */
export interface CircuitBroadcast {
  readonly type: 'circuit';
  readonly partition: Partition;
  readonly key: string;
  readonly circuit: Circuit;
  /** Milliseconds until a probe may run, at the time of the change. */
  readonly retryAfterMs: number;
}
