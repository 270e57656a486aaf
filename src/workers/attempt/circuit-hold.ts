import type { Circuit } from '../../shared/circuits/circuit-breaker.ts';
import type { CircuitPolicy } from '../../shared/circuits/circuit-policy.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';

export interface CircuitHold {
  readonly partition: Partition;
  readonly key: string;
  readonly policy: CircuitPolicy;
  readonly snapshot: Circuit;
  /** The attempt's name as the circuit's probe; undefined when it is not the probe. */
  readonly probe: string | undefined;
  /** The kill switch is on: nothing is counted. */
  readonly bypassed?: boolean;
  /** The circuit is in another cluster slot than the call, so the script that ends the call cannot count its success. */
  readonly isRemote?: boolean;
}
