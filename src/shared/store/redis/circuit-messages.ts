/** Messages about circuits: the sample that an attempt adds to a window, and the broadcast of a change. */
import type { Circuit } from '../../circuits/circuit-breaker.ts';
import type { Partition } from './keys.ts';

export interface CircuitSample {
  readonly circuit: string;
  readonly epoch: number;
  readonly windowSize: number;
  readonly windowMs: number;
}

export interface CircuitBroadcast {
  readonly type: 'circuit';
  readonly partition: Partition;
  readonly key: string;
  readonly circuit: Circuit;
  /** Milliseconds until a probe may run, at the time of the change. */
  readonly retryAfterMs: number;
}
