/** Gives each step of an attempt the few parts that it uses. */
import { secretsOf } from '../../shared/errors/redaction.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import { LeaseWrites } from '../attempt/retry-write.ts';
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

export interface AttemptSteps {
  readonly starter: AttemptStarter;
  readonly recovery: Recovery;
  readonly forced: ForcedCircuitCheck;
  readonly consensus: Consensus;
  readonly preparation: Preparation;
  readonly barrier: StartBarrier;
  readonly hooks: AttemptHooks;
  readonly resolver: OutcomeResolver;
  readonly ender: CallEnder;
  readonly parking: Parking;
  readonly audit: AttemptAudit;
}

/** The steps that end or postpone calls, which the others share. */
interface EndingSteps {
  readonly writes: LeaseWrites;
  readonly circuits: FleetCircuits;
  readonly settler: CallSettler;
  readonly ender: CallEnder;
  readonly parking: Parking;
}

export function composeSteps(deps: ExecutorDeps, reachCode: (attempt: Attempt) => Promise<void>): AttemptSteps {
  const { settings, backend, log, schedule } = deps;
  const { ledger } = backend;
  const endings = composeEndings(deps);
  const { writes, settler, ender, parking } = endings;
  const hooks = new AttemptHooks(deps.hooks);
  const failed = new FailedAttempts({ ...deps, ...endings, hooks });
  const { toolWaitMs } = settings;
  const consensus = new Consensus({ ...isolation(deps), toolWaitMs, parking, ender, schedule });
  const records = backend.completions;
  const pending = new PendingCalls({ ...endings, records, consensus, failed });
  const resolver = new OutcomeResolver({ ender, failed, consensus, parking, settler, pending });
  const audit = new AttemptAudit(deps.audit, log, schedule);
  const preparation = composePreparation(deps, writes);
  return {
    starter: composeStarter(deps, endings, new PendingExpiry({ ...deps, records, settler, audit })),
    recovery: new Recovery({ preparation, hooks, ender, resolver, settler, reachCode }),
    forced: new ForcedCircuitCheck({ forced: deps.forced, ender, parking, writes, onEvent: deps.onEvent }),
    consensus,
    preparation,
    barrier: new StartBarrier({ settings, ledger, onDisk: deps.onDisk, parking, resolver, log }),
    hooks,
    resolver,
    ender,
    parking,
    audit,
  };
}

function composeEndings({ backend, settings, log, schedule, environment, ...deps }: ExecutorDeps): EndingSteps {
  const { ledger, breakers } = backend;
  const { successes, taint, onEvent } = deps;
  const writes = new LeaseWrites(log, schedule);
  const circuits = new FleetCircuits(
    breakers,
    () => ledger.now(),
    (change) => onEvent({ type: 'tool_call_circuit_state', ...change }),
  );
  const settler = new CallSettler({ ledger, settings, log, writes, successes });
  const secrets = secretsOf(settings, environment);
  const ender = new CallEnder({
    settler,
    circuits,
    writes,
    secrets,
    onEvent,
    ...(taint !== undefined && { taint }),
  });
  return { writes, circuits, settler, ender, parking: new Parking({ settler, circuits, writes }) };
}

function composeStarter(
  deps: ExecutorDeps,
  { writes, circuits, settler }: EndingSteps,
  expiry: PendingExpiry,
): AttemptStarter {
  const { settings, backend, workerId, clock, traces, log, onEvent } = deps;
  const { ledger, clustered = false } = backend;
  return new AttemptStarter({
    ledger,
    leaseMs: settings.lockDurationMs,
    workerId,
    tools: deps,
    switches: deps.switches,
    suspects: new Suspects(deps.solitude),
    circuits: new CircuitAdmitter({ settings, workerId, circuits, settler, onEvent }),
    incompatible: new IncompatibleCalls({
      ledger,
      toolWaitMs: settings.toolWaitMs,
      lastPublished: (request) => deps.lastPublished(request),
      settler,
      log,
    }),
    attempts: new AttemptFactory({ settings, workerId, clock, ledger, clustered, writes, traces }),
    settler,
    expiry,
    log,
    ...(deps.gate !== undefined && { gate: deps.gate }),
  });
}

function composePreparation(deps: ExecutorDeps, writes: LeaseWrites): Preparation {
  const { settings, backend, log, environment, schedule, memory, channels, agents, terminals } = deps;
  const services = {
    settings,
    ledger: backend.ledger,
    writes,
    completions: backend.completions,
    log,
    environment,
    ...defined({ memory, channels, agents, terminals }),
  };
  return new Preparation({
    permits: new CallPermits(deps),
    sessionOf: (sessionKey) => deps.sessionOf(sessionKey),
    contextFor: (attempt, session, escalated) =>
      contextFor(attempt, session, { ...services, toolsOf: () => deps.toolsOf(session), escalated }),
    callOf: deps.callOf,
    log,
    schedule,
  });
}

function isolation({ isAlone, othersWith }: ExecutorDeps) {
  return { isAlone, ...(othersWith !== undefined && { othersWith }) };
}
