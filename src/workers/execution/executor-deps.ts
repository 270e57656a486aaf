/**
 * What an executor is made of.
 */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import type { CompensatedCall } from '../../shared/calls/compensation.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { SwitchCache } from '../../shared/config/switches.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import type { CallLedger, CircuitRecords } from '../../shared/store/ports.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { AgentTool, AnyTool, Channels, MemoryStore } from '../../shared/tools/tool.ts';
import type { Clock, Random, Schedule } from '../../shared/util/time.ts';
import type { ApprovalGate } from '../approvals/approval-gate.ts';
import type { RegisteredTool } from '../attempt/attempt-state.ts';
import type { AttemptTraces } from '../attempt/traces.ts';
import type { ForcedCircuits } from '../circuits/forced-circuits.ts';
import type { NodeCircuits } from '../circuits/node-circuit.ts';
import type { RuleFound } from '../connectors/declared-tools.ts';
import type { WorkerAgents } from '../context/sub-agents.ts';
import type { TerminalHost } from '../context/terminal-host.ts';
import type { LimitAcquirer } from './acquire-limits.ts';
import type { AttemptLocks } from './acquire-resource.ts';
import type { Solitude } from './run-alone.ts';
import type { LastPublished } from './version-check.ts';

export interface ExecutorDeps {
  readonly settings: Settings;
  readonly backend: { readonly ledger: CallLedger; readonly breakers: CircuitRecords; readonly clustered?: boolean };
  readonly workerId: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Of time limits and of writing again. Default: the system's timers. */
  readonly schedule?: Schedule;
  readonly log: Logger;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** No sandbox works in this process, and one should: programs run when a person has decided on their call. */
  readonly unconfined?: boolean;
  readonly hooks: Hooks;
  readonly memory?: MemoryStore;
  readonly channels?: Channels;
  readonly terminals?: TerminalHost;
  readonly agents?: WorkerAgents;
  readonly nodeCircuits: Pick<NodeCircuits, 'run' | 'failsInARow'>;
  /** IDs of other living workers that have the tool. */
  othersWith?(tool: AnyTool): readonly string[];
  /** Absent where every call goes through its tool's own circuit. */
  readonly forced?: Pick<ForcedCircuits, 'mayBeAny' | 'reasonFor'>;
  readonly traces?: AttemptTraces;
  readonly switches: Pick<SwitchCache, 'modes'>;
  /** Lets a suspect call have the worker to itself. Absent where nothing else runs beside it. */
  readonly solitude?: Pick<Solitude, 'enter' | 'leave' | 'isOf'>;
  /** Absent where no tool takes turns. */
  readonly locks?: AttemptLocks;
  /** Limits that hold for the whole fleet. Default: none. */
  readonly limits?: Pick<LimitAcquirer, 'enter' | 'leave'>;
  /** Without one, what a person must approve is denied. */
  readonly gate?: Pick<ApprovalGate, 'attend' | 'again' | 'pass' | 'leave'>;
  readonly audit?: RecordAudit;
  /** Whoever ends the jobs writes a success in the same step: the verdict holds what is `unwritten`. Default: no. */
  readonly endsWithJob?: boolean;
  /** There are no other workers: what needs a consensus runs once. Default: no. */
  readonly isAlone?: boolean;
  toolNamed(namespace: string, name: string): RegisteredTool | undefined;
  /** The declared tool that a call was validated with, where it is not, or not yet, the newest one here. */
  readonly toolOf?: (request: StoredRequest) => Promise<RegisteredTool | undefined>;
  /** What the registry says of calls of a tool now. */
  readonly toolPolicyFor?: (tool: { readonly namespace: string; readonly name: string }) => RuleFound;
  /** The record of another call, for one that undoes it. Default: none can be. */
  readonly callOf?: (callId: string) => Promise<CompensatedCall | undefined>;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** The tools that a session may call. */
  toolsOf(session: SessionRecord): Promise<readonly AgentTool[]>;
  /** Writes down that a session has seen what a tool brought from outside. */
  taint?(sessionKey: string, source: string, atMs: number): Promise<void>;
  /** When the fleet could last run a call like this one. */
  lastPublished(request: StoredRequest): Promise<LastPublished>;
  /** Resolves when all that Redis has acknowledged is on its disk; absent where no tool asks for it. */
  readonly onDisk?: (callId: string) => Promise<void>;
  onEvent(event: WorkerEvent): void;
}
