/** Pawl runs an AI agent's tool calls on a fleet of workers, each call once. */
import './node-version.ts';
import './shared/store/redis/own-files.ts';

export { type ReliableExecution, ToolReliabilityMiddleware } from './local/reliability-middleware.ts';
export { type ConnectOptions, connect, type StartWorkerOptions, startWorker } from './main.ts';
export type { ApprovalListing, ApprovalQuery, ApprovalService, DecideOptions } from './producer/approvals/approvals.ts';
export type { QuestionService, Reply } from './producer/approvals/questions.ts';
export type { AuditQuery } from './producer/calls/audit.ts';
export type { CallOptions } from './producer/calls/call-envelope.ts';
export type { CallSubscriber } from './producer/calls/call-events.ts';
export type { CallFilter } from './producer/calls/find-calls.ts';
export type { Resolution } from './producer/calls/resolution.ts';
export type { DispatchEvent, PendingSubmission, Submission, SubmitOptions } from './producer/calls/submission.ts';
export type { Position } from './producer/calls/timeline.ts';
export { MAX_REASKS, type Reask, type ReaskOptions } from './producer/calls/validation-retry.ts';
export type { CircuitListing, CircuitSelection } from './producer/circuits/circuit-admin.ts';
export type { EnforcedCircuit } from './producer/circuits/circuit-effects.ts';
export type { Cancellation, Pawl } from './producer/client.ts';
export type { CompletionAnswer } from './producer/completions/completion-service.ts';
export type {
  BulkAnswer,
  DeadLetter,
  DeadLetterPage,
  DeadLetterQuery,
  DeadLetterSelection,
  DeadLetterService,
} from './producer/dead-letters/dead-letter-service.ts';
export type { BatchCallOf, BatchOptions, RunningBatch } from './producer/groups/session-batch.ts';
export type { PlanOptions, RunningPlan } from './producer/groups/session-plan.ts';
export type { BulkResolution } from './producer/operations/bulk-resolution.ts';
export type { CallSelection, CallService } from './producer/operations/call-service.ts';
export type { CircuitService } from './producer/operations/circuit-service.ts';
export type { ShardService, ShardView, WorkerService } from './producer/operations/fleet-services.ts';
export type { Reliability, ReliabilityService, ReliabilityWord } from './producer/operations/reliability-service.ts';
export type { PutSchedule, ScheduleOptions, ScheduleService } from './producer/schedules/schedule-service.ts';
export type { OccurrenceView, ScheduleView } from './producer/schedules/schedule-view.ts';
export type { AgentEvent } from './producer/sessions/session.ts';
export { Session, type SessionEvents } from './producer/sessions/session.ts';
export type { SessionService } from './producer/sessions/session-service.ts';
export type { Skills } from './producer/sessions/skills.ts';
export type { ChangeOptions, PutOptions, Registry } from './producer/tools/registry.ts';
export type { ServedCall, ServedTool, ServedTools, ServeOptions } from './producer/tools/served-tools.ts';
export type { ToolViewer } from './producer/tools/session-tools.ts';
export type { ApprovalRequest, ApprovalState, Decision, StandingApprovalRequest } from './shared/approvals/approval.ts';
export type { AttemptRecord, CallState, Phase, Settlement } from './shared/calls/call-state.ts';
export type { Completion } from './shared/calls/completion.ts';
export { defineHook, type Hook } from './shared/calls/define-hook.ts';
export {
  acceptedForm,
  type CallerAnswers,
  type ClientRequest,
  callerAnswers,
  elicit,
} from './shared/calls/elicitation.ts';
export {
  contractSchemas,
  type ResultError,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
  toolCallEnvelopeSchema,
  toolResultEnvelopeSchema,
} from './shared/calls/envelope.ts';
export {
  type AfterAttemptAnswer,
  type AfterAttemptEvent,
  type AfterCallAnswer,
  type AfterCallEvent,
  type ApprovalAnswer,
  type ApprovalEvent,
  type AttemptEvent,
  type BeforeAttemptAnswer,
  type BeforeCallAnswer,
  type BeforeCallEvent,
  HOOK_KINDS,
  type HookEvent,
  type HookedTool,
  type HookKind,
  type RetryAnswer,
  type RetryEvent,
  type ShortCircuit,
  type ShortCircuitEvent,
} from './shared/calls/hook-events.ts';
export type { Outcome } from './shared/calls/outcome.ts';
export type { CircuitState } from './shared/circuits/circuit-breaker.ts';
export type { CircuitOverrides } from './shared/circuits/circuit-policy.ts';
export type { ApiRole, Settings, SettingsInput } from './shared/config/config.ts';
export type { ToolPolicy } from './shared/config/tool-settings.ts';
export type {
  CheckedDeclaredTool,
  CodeSwitchRecord,
  DeclaredTool,
  DeclaredToolRecord,
  RegistryRecord,
} from './shared/connectors/declared-tool.ts';
export { type ClassificationOverrides, toolCallErrorClassifier } from './shared/errors/classify-error.ts';
export { type Issue, PawlError, ToolError } from './shared/errors/failure.ts';
export { FAILURES, type FailureCode } from './shared/errors/failure-codes.ts';
export type { FailureKind } from './shared/errors/failure-kind.ts';
export type { ResultStatus } from './shared/errors/result-status.ts';
export { type DecodedCall, decodeCall, type ProviderCall } from './shared/model-tools/decode.ts';
export {
  type ExportableTool,
  type ExportedTool,
  type ExportOptions,
  PROVIDERS,
  type Provider,
  type ToolExport,
  type ToolReport,
} from './shared/model-tools/export-types.ts';
export type { ToolReference } from './shared/model-tools/names.ts';
export type { RemovedKeyword } from './shared/model-tools/provider-subset.ts';
export { repairParams } from './shared/model-tools/repair-params.ts';
export { toolsFor } from './shared/model-tools/tools-for.ts';
export type { RetryOverrides } from './shared/retries/retry.ts';
export { type SanitizedSchema, sanitizeSchema } from './shared/schema/schema-sanitize.ts';
export type { OpenSession, SessionRecord } from './shared/sessions/session.ts';
export type { SessionKind } from './shared/sessions/session-kinds.ts';
export type { PutSkill, SkillRecord } from './shared/sessions/skill.ts';
export type { ApprovalRecord, BriefApproval } from './shared/store/approvals/approvals.ts';
export type { QuestionRecord } from './shared/store/approvals/questions.ts';
export type { AuditEntry } from './shared/store/audit/audit-trail.ts';
export type { Flushed } from './shared/store/calls/call-index.ts';
export type { CallRecord, StoredRequest } from './shared/store/calls/call-record.ts';
export type { CircuitChange } from './shared/store/circuits/circuits.ts';
export type { CatalogueContent, PublishedTool, WorkerRecord } from './shared/store/fleet/catalogue.ts';
export type { FleetMetrics } from './shared/store/telemetry/fleet-metrics.ts';
export type { WorkerEvent } from './shared/telemetry/call-events.ts';
export type { Logger } from './shared/telemetry/log.ts';
export { defineTool } from './shared/tools/define-tool.ts';
export type { AgentOrder, AgentReply } from './shared/tools/sub-agent.ts';
export type {
  AgentReport,
  AgentState,
  Agents,
  AgentTool,
  Answer,
  AnyTool,
  Artifact,
  CallingAgent,
  Capability,
  CapabilityOwner,
  Channel,
  ChannelMessage,
  Channels,
  CommittedChange,
  ContentBlock,
  DiffTracker,
  Effects,
  FileChange,
  FreeformFormat,
  InputOf,
  Memory,
  MemoryHit,
  MemoryRecord,
  MemorySearchOptions,
  MemoryStore,
  MemoryStoreOptions,
  OutputOf,
  PendingOptions,
  PendingResult,
  PreviewContext,
  ProbeAnswer,
  Processes,
  ProcessRequest,
  ProcessResult,
  Progress,
  Question,
  Readiness,
  StoredMemory,
  TerminalReport,
  TerminalRequest,
  Terminals,
  Tier,
  Tool,
  ToolAnnotations,
  ToolBudget,
  ToolContext,
  ToolExample,
  ToolIcon,
  ToolLogger,
  ToolOptions,
  ToolPreview,
  ToolResult,
  ToolSpec,
  ToolVariant,
  Workspace,
  WorkspaceChange,
  WorkspaceEntry,
  WorkspaceFinding,
  WorkspaceLine,
  WorkspaceSearch,
} from './shared/tools/tool.ts';
export {
  defineFreeformTool,
  defineUntypedTool,
  type FreeformToolSpec,
  type FunctionToolOptions,
  functionTool,
  type UntypedToolSpec,
} from './shared/tools/tool-forms.ts';
export {
  cached,
  filtered,
  prefixed,
  renamed,
  resolveToolsets,
  type Toolset,
  type ToolsetRequest,
  toolset,
} from './shared/tools/toolset.ts';
export { baseTools } from './workers/tools/index.ts';
export type { ToolWorker } from './workers/worker.ts';
