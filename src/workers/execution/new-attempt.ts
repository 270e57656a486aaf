/** Builds the attempt of a call from the answer to its start. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import type { CircuitPolicy } from '../../shared/circuits/circuit-policy.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { circuitPolicyOf, toolPolicy } from '../../shared/config/tool-settings.ts';
import { type Failure, failureOf, isRefusalError } from '../../shared/errors/failure.ts';
import { retryPolicy } from '../../shared/retries/retry.ts';
import { retryAllowance } from '../../shared/retries/retry-budget.ts';
import type { StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import { parseCircuit } from '../../shared/store/circuits/circuits.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { type AnyTool, qualifiedName } from '../../shared/tools/tool.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { Attempt, RegisteredTool } from '../attempt/attempt-state.ts';
import type { CircuitHold } from '../attempt/circuit-hold.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import type { AttemptTraces } from '../attempt/traces.ts';

interface AttemptFactoryDeps {
  readonly settings: Settings;
  readonly workerId: string;
  readonly clock: Clock;
  readonly ledger: Pick<CallLedger, 'requestWithParams'>;
  /** The keys of other shards are on other servers. */
  readonly clustered: boolean;
  readonly writes: AttemptWrites;
  readonly traces?: AttemptTraces | undefined;
}

interface NewAttempt {
  readonly job: CallJob;
  readonly running: RunningAttempt;
  readonly started: StartedAttempt;
  readonly registered: RegisteredTool;
  readonly modes: ReliabilityModes;
  /** The attempt's name as the probe of its circuit. */
  readonly probe: string | undefined;
}

export class AttemptFactory {
  readonly #deps: AttemptFactoryDeps;
  readonly #circuitPolicies = new WeakMap<AnyTool, CircuitPolicy>();

  constructor(deps: AttemptFactoryDeps) {
    this.#deps = deps;
  }

  /** Undefined when the lease was lost while the parameters were read. */
  async create({ job, running, started: answer, registered, modes, probe }: NewAttempt): Promise<Attempt | undefined> {
    const { settings, clock, workerId, traces } = this.#deps;
    const { callId, generation } = job;
    const { tool } = registered;
    const beganMonotonicMs = clock.monotonic();
    const request = await this.#wholeRequest(callId, answer.request, running);
    if (request === undefined) return undefined;
    const started = 'code' in request ? answer : { ...answer, request };
    const { envelope } = started.request;
    const policy = toolPolicy(settings, tool);
    const circuit = this.#circuit(callId, started, registered, { probe, bypassed: !modes.enabled });
    return {
      callId,
      generation,
      envelope,
      ...('code' in request ? { unreadable: request } : {}),
      tool,
      registered,
      policy,
      started,
      running,
      modes,
      retry: retryPolicy(tool.retry, policy.retry, envelope.transport.retryBudget, settings.defaults.retry),
      allowance: retryAllowance(qualifiedName(tool), envelope.target.tenantId, policy.retry?.budget),
      circuit,
      number: started.earlierAttempts.length + 1,
      workerId,
      clock,
      beganMonotonicMs,
      ...(traces !== undefined && { trace: traces.begin(job, started, circuit) }),
    };
  }

  #circuit(
    callId: string,
    { circuit, circuitRaw }: StartedAttempt,
    { tool }: RegisteredTool,
    { probe, bypassed }: { readonly probe: string | undefined; readonly bypassed: boolean },
  ): CircuitHold {
    const { tier, shard } = partitionFor(callId);
    return {
      partition: homePartition(tier),
      key: circuit,
      policy: this.#circuitPolicyOf(tool),
      snapshot: parseCircuit(circuitRaw),
      probe,
      bypassed,
      isRemote: this.#deps.clustered && shard > 0,
    };
  }

  #circuitPolicyOf(tool: AnyTool): CircuitPolicy {
    return getOrInsert(this.#circuitPolicies, tool, () => circuitPolicyOf(this.#deps.settings, tool));
  }

  /** The request with its parameters, which are stored outside of it, or the failure to read them. */
  async #wholeRequest(
    callId: string,
    request: StoredRequest,
    running: RunningAttempt,
  ): Promise<StoredRequest | Failure | undefined> {
    if (request.largeParams === undefined) return request;
    const { ledger, writes } = this.#deps;
    return writes.retry(running, async () => {
      try {
        return await ledger.requestWithParams(callId, request);
      } catch (error) {
        if (!isRefusalError(error)) throw error;
        return failureOf(error.code, error.message);
      }
    });
  }
}
