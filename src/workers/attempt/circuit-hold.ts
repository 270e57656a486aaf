import type { Circuit } from '../../shared/circuits/circuit-breaker.ts';
import type { CircuitPolicy } from '../../shared/circuits/circuit-policy.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';

export interface CircuitHold {
  readonly partition: Partition;
  readonly key: string;
  readonly policy: CircuitPolicy;
  readonly seen: Circuit;
  /** The attempt's name as the probe; undefined when it is none. */
  readonly probe: string | undefined;
  /** The kill switch is thrown: nothing is counted. */
  readonly bypassed?: boolean;
  /** The circuit is not beside the call: the step that ends the call cannot count its success. */
  readonly apart?: boolean;
}
