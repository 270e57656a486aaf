/** Renews the leases of running attempts: of the call's record, its resource lock and its slots under the fleet's limits. */
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallLedger, ResourceLockRecords } from '../../shared/store/ports.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import type { LimitAcquirer } from './acquire-limits.ts';

interface AttemptLeasesDeps {
  readonly ledger: Pick<CallLedger, 'renewLease'>;
  readonly locks: Pick<ResourceLockRecords, 'renew'>;
  readonly limits: Pick<LimitAcquirer, 'renew'>;
  readonly leaseMs: number;
}

/** The answer to a renewal also says whether the call was cancelled, or recovered by another worker. */
export async function renewLeases(deps: AttemptLeasesDeps, attempt: RunningAttempt): Promise<void> {
  const { ledger, locks, limits, leaseMs } = deps;
  const { callId, fence } = attempt;
  if (fence === 0) return;
  const { renewed, cancelRequested } = await ledger.renewLease(callId, fence, leaseMs);
  const keepsLock = !attempt.holdsLock || (await locks.renew(callId, fence));
  if (!keepsLock) attempt.abort(new PawlError('LEASE_LOST', 'Another call holds the lock of the resource.'));
  else if (!renewed) attempt.abort(new PawlError('LEASE_LOST', 'Another attempt holds the call.'));
  else if (cancelRequested) attempt.abort(new PawlError('CANCELLED'));
  if (renewed) await limits.renew(attempt);
}
