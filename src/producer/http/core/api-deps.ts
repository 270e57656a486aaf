import type { Pawl } from '../../client.ts';
import type { FleetView } from '../../operations/fleet-metrics.ts';
import type { Waits } from './long-poll.ts';
import type { Streams } from './open-streams.ts';

/** The parts that routes are made of. */
export interface ApiDeps {
  readonly pawl: Pawl;
  readonly waits: Waits;
  readonly fleet: FleetView;
  /** Shown in the OpenAPI document. */
  readonly version: string;
  readonly streams: Streams;
  /** Throws `BACKEND_UNAVAILABLE` or `RATE_LIMITED` while no further call may be handed in. */
  checkAccepting(): Promise<void>;
}
