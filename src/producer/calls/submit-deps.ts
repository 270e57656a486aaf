import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { SwitchCache } from '../../shared/config/switches.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import type { Clock, Schedule } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { CircuitView } from '../circuits/circuit-cache.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { CallAudit } from './audit.ts';
import type { DispatchEvent } from './producer-event.ts';
import type { Results } from './result-waiters.ts';
import type { CallTraces } from './traces.ts';

export interface SubmitDeps {
  readonly settings: Settings;
  readonly ledger: CallLedger;
  readonly catalogue: Pick<ToolCatalogue, 'peek' | 'find'> & Partial<Pick<ToolCatalogue, 'toolPolicyFor'>>;
  readonly circuits: CircuitView;
  readonly hooks: Hooks;
  readonly switches: Pick<SwitchCache, 'modes'>;
  readonly results: Results;
  readonly inboxId: string;
  readonly clock: Clock;
  /** Default: one of each tier. */
  readonly shards?: Pick<Shards, 'layout'>;
  readonly traces?: CallTraces;
  readonly audit?: Pick<CallAudit, 'asked'>;
  /** Of deadlines. Default: the system's timers. */
  readonly schedule?: Schedule;
  /** Without one, what a person must approve is denied. */
  readonly approvals?: Pick<ApprovalService, 'routeOf' | 'isGranted' | 'requestFor' | 'requested' | 'cancelled'>;
  /** Writes down that a session has seen what a tool brought from outside; resolves when its next call is judged by it. */
  taint?(sessionKey: string, source: string): Promise<void>;
  /** Finds the session that an envelope names, and opens one that is not there, as it was `opened` before. Throws `SESSION_CLOSED`. */
  sessionOf(envelope: ToolCallEnvelope, opened?: SessionRecord): Promise<SessionRecord> | SessionRecord;
  onEvent(event: DispatchEvent): void;
}
