/** What `bench/record.json` holds. */
import type { Compared, Effort } from './comparison.ts';
import type { Machine } from './machine.ts';
import type { PeerResult } from './peers.ts';
import type { BacklogResult } from './scenarios/backlog.ts';
import type { BytesResult } from './scenarios/bytes.ts';
import type { DelayedResult } from './scenarios/delayed.ts';
import type { FixedRatesResult } from './scenarios/fixed-rates.ts';
import type { FloorResult } from './scenarios/floor.ts';
import type { InstalledResult } from './scenarios/installed.ts';
import type { MemoryResult } from './scenarios/memory.ts';
import type { NetworkResult } from './scenarios/network.ts';
import type { PlansResult } from './scenarios/plans.ts';
import type { RefusalsResult } from './scenarios/refusals.ts';
import type { ScaleResult } from './scenarios/scale.ts';
import type { SegmentsResult } from './scenarios/segments.ts';

export interface BenchResult {
  /** Of the run that wrote the file. */
  readonly machine: Machine;
  /** When each workload, scenario and peer was measured: parts may be older. */
  readonly dates: Readonly<Record<string, string>>;
  readonly effort: Effort;
  readonly compared: readonly Compared[];
  /** Long rounds after a long load: what a fleet shows that has run for a while. */
  readonly steady?: PhaseResult;
  /** The first seconds of new processes. */
  readonly cold?: PhaseResult;
  readonly scenarios: Scenarios;
  readonly peers: readonly PeerResult[];
}

export type PhaseResult = Pick<BenchResult, 'dates' | 'effort' | 'compared' | 'peers'>;

/** A scenario that was not run is absent. */
export interface Scenarios {
  readonly floor?: FloorResult;
  readonly refusals?: RefusalsResult;
  readonly 'fixed-rates'?: FixedRatesResult;
  readonly network?: NetworkResult;
  readonly backlog?: BacklogResult;
  readonly installed?: InstalledResult;
  readonly memory?: MemoryResult;
  readonly bytes?: BytesResult;
  readonly scale?: ScaleResult;
  readonly segments?: SegmentsResult;
  readonly delayed?: DelayedResult;
  readonly plans?: PlansResult;
}
