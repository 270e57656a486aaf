/** The types behind `pawl`: records, events, options and handles, for a program that has to name one. */
export type { ReliableExecution } from './local/reliability-middleware.ts';
export type { ApprovalListing, ApprovalQuery, ApprovalService, DecideOptions } from './producer/approvals/approvals.ts';
export type { QuestionService, Reply } from './producer/approvals/questions.ts';
export type { AuditQuery } from './producer/calls/audit.ts';
export type { CallSubscriber } from './producer/calls/call-events.ts';
export type { DispatchEvent, PendingSubmission } from './producer/calls/submission.ts';
export type { Position } from './producer/calls/timeline.ts';
export type { Reask, ReaskOptions } from './producer/calls/validation-retry.ts';
export type { CircuitListing, CircuitSelection } from './producer/circuits/circuit-admin.ts';
export type { EnforcedCircuit } from './producer/circuits/circuit-effects.ts';
export type { CompletionAnswer } from './producer/completions/completion-service.ts';
export type {
  BulkAnswer,
  DeadLetter,
  DeadLetterPage,
  DeadLetterQuery,
  DeadLetterSelection,
  DeadLetterService,
} from './producer/dead-letters/dead-letter-service.ts';
export type { PlanView } from './producer/groups/plan-view.ts';
export type { BatchCallOf } from './producer/groups/session-batch.ts';
export type { BulkResolution } from './producer/operations/bulk-resolution.ts';
export type { CallSelection, CallService } from './producer/operations/call-service.ts';
export type { CircuitService } from './producer/operations/circuit-service.ts';
export type { ShardService, ShardView, WorkerService } from './producer/operations/fleet-services.ts';
export type { Reliability, ReliabilityService, ReliabilityWord } from './producer/operations/reliability-service.ts';
export type { ScheduleOptions, ScheduleService } from './producer/schedules/schedule-service.ts';
export type { OccurrenceView, ScheduleView } from './producer/schedules/schedule-view.ts';
export type { AgentEvent } from './producer/sessions/session.ts';
export type { SessionService } from './producer/sessions/session-service.ts';
export type { Skills } from './producer/sessions/skills.ts';
export type { ChangeOptions, PutOptions, Registry } from './producer/tools/registry.ts';
export type { ServedCall, ServedTool, ServedTools, ServeOptions } from './producer/tools/served-tools.ts';
export type { ToolViewer } from './producer/tools/session-tools.ts';
export type { ApprovalState, Decision, StandingApprovalRequest } from './shared/approvals/approval.ts';
export type { AttemptRecord, CallState, Settlement } from './shared/calls/call-state.ts';
export type { CallerAnswers, ClientRequest } from './shared/calls/elicitation.ts';
export type {
  AfterAttemptAnswer,
  AfterAttemptEvent,
  AfterCallAnswer,
  AfterCallEvent,
  ApprovalAnswer,
  ApprovalEvent,
  AttemptEvent,
  BeforeAttemptAnswer,
  BeforeCallAnswer,
  BeforeCallEvent,
  HookedTool,
  HookKind,
  RetryAnswer,
  RetryEvent,
  ShortCircuit,
  ShortCircuitEvent,
} from './shared/calls/hook-events.ts';
export type { Outcome } from './shared/calls/outcome.ts';
export type { CircuitState } from './shared/circuits/circuit-breaker.ts';
export type { CircuitOverrides } from './shared/circuits/circuit-policy.ts';
export type { ApiRole, Settings } from './shared/config/config.ts';
export type {
  CheckedDeclaredTool,
  CodeSwitchRecord,
  DeclaredToolRecord,
  RegistryRecord,
} from './shared/connectors/declared-tool.ts';
export type { ClassificationOverrides } from './shared/errors/classify-error.ts';
export type { FailureKind } from './shared/errors/failure-kind.ts';
export type { ResultStatus } from './shared/errors/result-status.ts';
export type { DecodedCall, ProviderCall } from './shared/model-tools/decode.ts';
export type { ExportableTool, ExportedTool, ExportOptions, ToolReport } from './shared/model-tools/export-types.ts';
export type { RemovedKeyword } from './shared/model-tools/provider-subset.ts';
export type { RetryOverrides } from './shared/retries/retry.ts';
export type { SanitizedSchema } from './shared/schema/schema-sanitize.ts';
export type { PutSkill, SkillRecord } from './shared/sessions/skill.ts';
export type { BriefApproval } from './shared/store/approvals/approvals.ts';
export type { QuestionRecord } from './shared/store/approvals/questions.ts';
export type { AuditEntry } from './shared/store/audit/audit-trail.ts';
export type { FlushCounts as Flushed } from './shared/store/calls/call-index.ts';
export type { StoredRequest } from './shared/store/calls/call-record.ts';
export type { CircuitChange } from './shared/store/circuits/circuits.ts';
export type { CatalogueContent, WorkerRecord } from './shared/store/fleet/catalogue.ts';
export type { FleetMetrics } from './shared/store/telemetry/fleet-metrics.ts';
export type { WorkerEvent } from './shared/telemetry/call-events.ts';
export type {
  Answer,
  CapabilityOwner,
  CommittedChange,
  DiffTracker,
  FileChange,
  Memory,
  MemoryHit,
  MemoryRecord,
  MemorySearchOptions,
  MemoryStoreOptions,
  Processes,
  ProcessRequest,
  ProcessResult,
  Question,
  TerminalReport,
  TerminalRequest,
  Terminals,
  WorkspaceChange,
  WorkspaceEntry,
  WorkspaceFinding,
  WorkspaceLine,
  WorkspaceSearch,
} from './shared/tools/capabilities.ts';
export type { PendingOptions, PendingResult } from './shared/tools/pending.ts';
export type { AgentOrder, AgentReply, AgentReport, AgentState, Agents } from './shared/tools/sub-agent.ts';
export type { ToolReference } from './shared/tools/tool.ts';
export type { AgentTool, CallingAgent, ToolLogger } from './shared/tools/tool-context.ts';
export type { FreeformToolSpec, FunctionToolOptions, UntypedToolSpec } from './shared/tools/tool-forms.ts';
export type { Artifact, ContentBlock } from './shared/tools/tool-result.ts';
export type {
  FreeformFormat,
  PreviewContext,
  ToolBudget,
  ToolExample,
  ToolIcon,
  ToolVariant,
} from './shared/tools/tool-variant.ts';
export type { ToolsetRequest } from './shared/tools/toolset.ts';
