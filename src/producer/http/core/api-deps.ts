import type { Pawl } from '../../client.ts';
import type { FleetView } from '../../operations/fleet-metrics.ts';
import type { LongPolls } from './long-poll.ts';
import type { OpenStreams } from './stream-response.ts';

export interface ApiDeps {
  readonly pawl: Pawl;
  readonly longPolls: LongPolls;
  readonly fleet: FleetView;
  /** The version in the OpenAPI document. */
  readonly version: string;
  readonly streams: OpenStreams;
  /** Throws `BACKEND_UNAVAILABLE` or `RATE_LIMITED` while the server accepts no calls. */
  checkAccepting(): Promise<void>;
}
