/** Gives each step of an attempt the few parts that it uses. */
import { secretsOf } from '../../shared/errors/redaction.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import { AttemptWrites } from '../attempt/retry-write.ts';
import { FleetCircuits } from '../circuits/fleet-circuit.ts';
import { contextFor } from '../context/tool-context.ts';
import { Consensus } from '../outcome/consensus.ts';
import { OutcomeResolver } from '../outcome/decide-outcome.ts';
import { CallEnder } from '../outcome/end-call.ts';
import { Parking } from '../outcome/park-call.ts';
import { PendingCalls } from '../outcome/pend-call.ts';
import { FailedAttempts } from '../outcome/retry-call.ts';
import { CallSettler } from '../outcome/settle-call.ts';
import { CircuitAdmitter } from './admit-circuit.ts';
import { AttemptHooks } from './attempt-hooks.ts';
import { AttemptAudit } from './audit.ts';
import { AttemptStarter } from './begin-attempt.ts';
import { ForcedCircuitCheck } from './check-forced-circuit.ts';
import type { ExecutorDeps } from './executor-deps.ts';
import { PendingExpiry } from './expire-pending.ts';
import { AttemptFactory } from './new-attempt.ts';
import { CallPermits } from './permit-call.ts';
import { StartBarrier } from './persist-start.ts';
import { Preparation } from './prepare-call.ts';
import { Recovery } from './recover-attempt.ts';
import { Suspects } from './run-alone.ts';
import { IncompatibleCalls } from './skip-worker.ts';

export type AttemptSteps = ReturnType<typeof composeSteps>;

export function composeSteps(deps: ExecutorDeps, reachCode: (attempt: Attempt) => Promise<void>) {
  const { settings, backend, log, schedule } = deps;
  const { ledger } = backend;
  const endings = composeEndings(deps);
  const { writes, settler, ender, parking } = endings;
  const hooks = new AttemptHooks(deps.hooks);
  const failed = new FailedAttempts({ ...deps, ...endings, hooks });
  const consensus = new Consensus({ ...deps, toolWaitMs: settings.toolWaitMs, parking, ender });
  const records = backend.completions;
  const pending = new PendingCalls({ ...endings, records, consensus, failed });
  const resolver = new OutcomeResolver({ ender, failed, consensus, parking, settler, pending });
  const audit = new AttemptAudit(deps.audit, log, schedule);
  const preparation = composePreparation(deps, writes);
  return {
    starter: composeStarter(deps, endings, new PendingExpiry({ ...deps, records, settler, audit })),
    recovery: new Recovery({ preparation, hooks, ender, resolver, settler, reachCode }),
    forced: new ForcedCircuitCheck({ ...deps, ender, parking, writes }),
    consensus,
    preparation,
    barrier: new StartBarrier({ ...deps, ledger, parking, resolver }),
    hooks,
    resolver,
    ender,
    parking,
    audit,
  };
}

/** The steps that end or postpone calls, which the others share. */
function composeEndings({ backend, settings, log, schedule, environment, ...deps }: ExecutorDeps) {
  const { ledger, breakers } = backend;
  const { successes, taint, onEvent } = deps;
  const writes = new AttemptWrites(log, schedule);
  const circuits = new FleetCircuits(
    breakers,
    () => ledger.now(),
    (change) => onEvent({ type: 'tool_call_circuit_state', ...change }),
  );
  const settler = new CallSettler({ ledger, settings, log, writes, successes });
  const secrets = secretsOf(settings, environment);
  const ender = new CallEnder({ settler, circuits, writes, secrets, onEvent, ...defined({ taint }) });
  return { writes, circuits, settler, ender, parking: new Parking({ settler, circuits, writes }) };
}

function composeStarter(
  deps: ExecutorDeps,
  { writes, circuits, settler }: ReturnType<typeof composeEndings>,
  expiry: PendingExpiry,
): AttemptStarter {
  const { settings, backend } = deps;
  const { ledger, clustered = false } = backend;
  return new AttemptStarter({
    ...deps,
    ledger,
    leaseMs: settings.lockDurationMs,
    tools: deps,
    suspects: new Suspects(deps.solitude),
    circuits: new CircuitAdmitter({ ...deps, circuits, settler }),
    incompatible: new IncompatibleCalls({ ...deps, ledger, toolWaitMs: settings.toolWaitMs, settler }),
    attempts: new AttemptFactory({ ...deps, ledger, clustered, writes }),
    writes,
    settler,
    expiry,
  });
}

function composePreparation(deps: ExecutorDeps, writes: AttemptWrites): Preparation {
  const services = { ...deps, ledger: deps.backend.ledger, completions: deps.backend.completions, writes };
  return new Preparation({
    ...deps,
    permits: new CallPermits(deps),
    contextFor: (attempt, session, escalated) =>
      contextFor(attempt, session, { ...services, toolsOf: () => deps.toolsOf(session), escalated }),
  });
}
