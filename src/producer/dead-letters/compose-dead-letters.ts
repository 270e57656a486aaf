/** Composes the services of dead letters. A redriven call goes through the same checks as a new one. */
import { PawlError } from '../../shared/errors/failure.ts';
import { requireUsable } from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import { type AuthorizeDeps, CallAuthorizer } from '../calls/authorize-call.ts';
import { CallIdentifier, type IdentifyDeps } from '../calls/identify-call.ts';
import { CircuitCheck, type CircuitCheckDeps } from '../circuits/circuit-check.ts';
import type { ProducerSessions } from '../sessions/session-cache.ts';
import { DeadLetterService, type DeadLetterServiceDeps } from './dead-letter-service.ts';
import { CallRedriver } from './redrive-call.ts';
import { RedriveRunner } from './redrive-runner.ts';

interface DeadLetterDeps
  extends Pick<AuthorizeDeps, 'settings' | 'catalogue'>,
    Pick<CircuitCheckDeps, 'switches'>,
    Pick<IdentifyDeps, 'clock'>,
    Pick<DeadLetterServiceDeps, 'recordOverride' | 'operator'> {
  readonly backend: Pick<Backend, 'ledger' | 'shards' | 'deadLetters' | 'redrives'>;
  readonly view: CircuitCheckDeps['circuits'];
  readonly sessionCache: Pick<ProducerSessions, 'find'>;
  readonly approvals: ApprovalService;
  onError(error: Error): void;
}

export function composeDeadLetters(deps: DeadLetterDeps) {
  const { backend, sessionCache, view, approvals } = deps;
  // Unlike a new call, a redrive must not open an expired session again.
  const sessions: AuthorizeDeps['sessions'] = {
    peekOf: () => undefined,
    resolve: async ({ target }) => {
      const session = await sessionCache.find(target.sessionKey);
      if (session === undefined) throw new PawlError('UNKNOWN_SESSION');
      return requireUsable(session, target);
    },
  };
  const redriver = new CallRedriver({
    ledger: backend.ledger,
    authorizer: new CallAuthorizer({ ...deps, sessions }),
    circuits: new CircuitCheck({ ...deps, circuits: view }),
    identifier: new CallIdentifier({ ...deps, shards: backend.shards }),
    approvals,
  });
  const runner = new RedriveRunner({ ...deps, redrives: backend.redrives, redriver });
  return { deadLetters: new DeadLetterService({ ...deps, redriver, runner }), redriveRunner: runner };
}
