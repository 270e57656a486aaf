/** Composes the steps of a submission. */
import type { Hooks } from '../../shared/calls/hooks.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import type { Clock, Schedule } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import { CircuitCheck, type CircuitCheckDeps } from '../circuits/circuit-check.ts';
import type { CallAudit } from './audit.ts';
import { type AuthorizeDeps, CallAuthorizer } from './authorize-call.ts';
import { type AwaitDeps, ResultAwaiter } from './await-result.ts';
import { ClaimBuilder } from './build-claim.ts';
import { CallClaimer } from './claim-call.ts';
import { CallIdentifier } from './identify-call.ts';
import { CallRefusals } from './refusals.ts';
import type { ResultWaiters } from './result-waiters.ts';
import type { DispatchEvent } from './submission.ts';
import { CallSubmitter } from './submit-call.ts';
import type { CallTraces } from './traces.ts';

interface SubmitterDeps extends Pick<AuthorizeDeps, 'catalogue' | 'sessions'>, Pick<AwaitDeps, 'taint'> {
  readonly settings: Settings;
  readonly ledger: CallLedger;
  readonly switches: CircuitCheckDeps['switches'];
  readonly circuits: CircuitCheckDeps['circuits'];
  readonly hooks: Hooks;
  readonly results: ResultWaiters;
  readonly inboxId: string;
  readonly clock: Clock;
  /** Default: the system's timers. */
  readonly schedule?: Schedule;
  /** Default: one shard of each tier. */
  readonly shards?: Pick<Shards, 'layout'>;
  readonly traces?: CallTraces | undefined;
  readonly audit?: Pick<CallAudit, 'newRecord'>;
  /** Without it, a call that a person must approve is denied. */
  readonly approvals?: Pick<ApprovalService, 'routeOf' | 'isGranted' | 'requestFor' | 'requested' | 'cancelled'>;
  onEvent(event: DispatchEvent): void;
}

export function composeSubmitter(deps: SubmitterDeps): CallSubmitter {
  const refusals = new CallRefusals(deps.onEvent);
  return new CallSubmitter(
    {
      authorizer: new CallAuthorizer(deps),
      circuits: new CircuitCheck(deps),
      identifier: new CallIdentifier(deps),
      claimer: new CallClaimer({ ...deps, builder: new ClaimBuilder(deps), refusals }),
      awaiter: new ResultAwaiter({ ...deps, deadlines: deps }),
      refusals,
    },
    deps,
  );
}
