/** The parts that an executor is composed of, in groups. A step never takes all of them: `compose-steps.ts` gives each one its own. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import type { CallOf } from '../../shared/calls/compensation.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { SwitchCache } from '../../shared/config/switches.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import type { CallLedger, CircuitRecords, PendingRecords } from '../../shared/store/ports.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { ToolReference } from '../../shared/tools/tool.ts';
import type { AgentTool } from '../../shared/tools/tool-context.ts';
import type { Clock, Random, Schedule } from '../../shared/util/time.ts';
import type { ApprovalGate } from '../approvals/approval-gate.ts';
import type { RegisteredTool } from '../attempt/attempt-state.ts';
import type { AttemptTraces } from '../attempt/traces.ts';
import type { ForcedCircuits } from '../circuits/forced-circuits.ts';
import type { NodeCircuits } from '../circuits/node-circuit.ts';
import type { PolicyLookup } from '../connectors/declared-tools.ts';
import type { ToolContextDeps } from '../context/tool-context.ts';
import type { ConsensusDeps } from '../outcome/consensus.ts';
import type { CallEnderDeps } from '../outcome/end-call.ts';
import type { SettlePort } from '../outcome/settle-port.ts';
import type { LimitAcquirer } from './acquire-limits.ts';
import type { AttemptLocks } from './acquire-resource.ts';
import type { Solitude } from './run-alone.ts';
import type { LastPublished } from './version-check.ts';

export interface WorkerTools {
  toolNamed(namespace: string, name: string): RegisteredTool | undefined;
  /** The declared tool that a call was validated with, when this worker has a newer one. */
  readonly toolOf?: (request: StoredRequest) => Promise<RegisteredTool | undefined>;
  readonly toolPolicyFor?: (tool: ToolReference) => PolicyLookup;
}

export interface CallLookups extends Pick<CallEnderDeps, 'taint'> {
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** The tools that a session may call. */
  toolsOf(session: SessionRecord): Promise<readonly AgentTool[]>;
  /** Reads the call that another one undoes. Default: no call can be undone. */
  readonly callOf?: CallOf;
}

/** The services that a tool can use through its context. */
export interface ToolServices
  extends Pick<ToolContextDeps, 'environment' | 'memory' | 'channels' | 'terminals' | 'agents'> {
  /** The configured sandbox does not work in this process: programs run only after a person has approved their call. */
  readonly unconfined?: boolean;
}

export interface FleetState extends Pick<ConsensusDeps, 'othersWith' | 'isAlone'> {
  /** When the fleet could last run a call like this one. */
  lastPublished(request: StoredRequest): Promise<LastPublished>;
}

/** The checks that can make an attempt wait, or keep it from running. */
interface AttemptGuards {
  readonly nodeCircuits: Pick<NodeCircuits, 'run' | 'failsInARow'>;
  /** Absent where every call goes through its tool's own circuit. */
  readonly forced?: Pick<ForcedCircuits, 'mayBeAny' | 'reasonFor'>;
  readonly switches: Pick<SwitchCache, 'modes'>;
  /** Lets a suspect call have the worker to itself. Absent where nothing else runs beside it. */
  readonly solitude?: Pick<Solitude, 'enter' | 'leave' | 'isHeldBy' | 'untilOldEnoughMs'>;
  /** Absent where no tool needs a resource lock. */
  readonly locks?: AttemptLocks;
  /** The limits of the whole fleet. Default: none. */
  readonly limits?: Pick<LimitAcquirer, 'acquire' | 'release'>;
  /** Without a gate, a call that a person must approve is denied. */
  readonly gate?: Pick<ApprovalGate, 'handlePending' | 'reportEnded' | 'requireApproval' | 'release'>;
  /** Resolves when all that Redis has acknowledged is on its disk. Absent where no tool asks for it. */
  readonly onDisk?: (callId: string) => Promise<void>;
}

export interface ExecutorDeps extends WorkerTools, CallLookups, ToolServices, FleetState, AttemptGuards {
  readonly settings: Settings;
  readonly backend: {
    readonly ledger: CallLedger;
    readonly completions: PendingRecords;
    readonly breakers: CircuitRecords;
    readonly clustered?: boolean;
  };
  readonly workerId: string;
  readonly clock: Clock;
  readonly random: Random;
  /** The timers of time limits and repeated writes. Default: the system's. */
  readonly schedule?: Schedule;
  readonly log: Logger;
  readonly hooks: Hooks;
  readonly traces?: AttemptTraces;
  readonly audit?: RecordAudit;
  /** Writes the outcome of a successful call. Default: at once. */
  readonly successes?: SettlePort;
  onEvent(event: WorkerEvent): void;
}
